"""Equivariant linear maps, with e3nn's arguments, parameters and buffers and without its code generation.

Features are multiplicity-major; every irrep block [n, mul * (2l+1)] is one matrix product over its
multiplicities.
"""

# No "from __future__ import annotations": TorchScript needs the types of the attributes, not their text.
import math
from typing import NamedTuple

import torch
from e3nn import o3
from e3nn.util.jit import compile_mode
from torch import Tensor


class Path(NamedTuple):
    """From one input block to one output block with the same irrep."""

    i_in: int
    i_out: int
    num_weights: int


def _paths(irreps_in: o3.Irreps, irreps_out: o3.Irreps, num_elements: int) -> list[Path]:
    """All paths in the order of their weights: input blocks outside, output blocks inside."""
    return [
        Path(i_in, i_out, mul_in * num_elements * mul_out)
        for i_in, (mul_in, ir_in) in enumerate(irreps_in)
        for i_out, (mul_out, ir_out) in enumerate(irreps_out)
        if ir_in == ir_out
    ]


def _merged(irreps_in: o3.Irreps, irreps_out: o3.Irreps) -> o3.Irreps:
    """Neighbouring input blocks of one irrep as one block, where the order of the weights stays the same."""
    goals = [ir for _, ir in irreps_out]
    return irreps_in.simplify() if len(set(goals)) == len(goals) else irreps_in


def components_first(block: Tensor, mul: int, dim: int) -> Tensor:
    """[n, mul * dim] -> [n * dim, mul]."""
    if dim == 1:
        return block
    return block.reshape(-1, mul, dim).transpose(1, 2).reshape(-1, mul)


def multiplicity_first(block: Tensor, mul: int, dim: int) -> Tensor:
    """[n * dim, mul] -> [n, mul * dim]."""
    if dim == 1:
        return block
    return block.reshape(-1, dim, mul).transpose(1, 2).reshape(-1, mul * dim)


class _BlockwiseMap(torch.nn.Module):
    """The weights of a linear map, for every element its own ones, and which block they take where."""

    _in_blocks: list[tuple[int, int]]  # multiplicity and components
    _in_sizes: list[int]
    _out_blocks: list[tuple[int, int, float]]  # multiplicity, components, normalisation of the weights
    _paths: list[tuple[int, int, int]]  # input block, output block, place of the weights
    _weight_sizes: list[int]

    def __init__(
        self, irreps_in: o3.Irreps, irreps_out: o3.Irreps, num_elements: int, empty_bias: bool = False
    ) -> None:
        super().__init__()
        blocks = _merged(irreps_in, irreps_out)
        paths = _paths(blocks, irreps_out, num_elements)
        reached = [sum(blocks[p.i_in].mul for p in paths if p.i_out == i) for i in range(len(irreps_out))]
        self._in_blocks = [(mul, ir.dim) for mul, ir in blocks]
        self._in_sizes = [block.dim for block in blocks]
        self._out_blocks = [
            (mul, ir.dim, 1.0 / math.sqrt(max(fan_in * num_elements, 1)))
            for fan_in, (mul, ir) in zip(reached, irreps_out, strict=True)
        ]
        self._paths = [(path.i_in, path.i_out, place) for place, path in enumerate(paths)]
        self._weight_sizes = [path.num_weights for path in paths]
        self.num_elements = num_elements
        self.weight_numel = sum(self._weight_sizes)
        if self.weight_numel > 0:
            self.weight = torch.nn.Parameter(torch.randn(self.weight_numel))
        else:
            self.register_buffer("weight", torch.zeros(0))
        if empty_bias:  # here, because the order of a state dict is part of what is kept
            self.register_buffer("bias", torch.zeros(0))
        dims = [block.dim for block in irreps_out]
        mask = [torch.full((dim,), float(fan_in > 0)) for fan_in, dim in zip(reached, dims, strict=True)]
        self.register_buffer("output_mask", torch.cat(mask) if mask else torch.ones(0))

    def mapped(self, features: Tensor, counts: list[int]) -> Tensor:
        """Rows [n, irreps_in.dim], sorted by element, ``counts`` of each -> [n, irreps_out.dim]."""
        blocks = torch.split(features, self._in_sizes, dim=1)
        weights = torch.split(self.weight, self._weight_sizes)
        outputs: list[Tensor] = []
        for i_out, (mul, dim, factor) in enumerate(self._out_blocks):
            total = torch.zeros([1], dtype=features.dtype, device=features.device)
            is_reached = False
            for i_in, to, place in self._paths:
                if to == i_out:
                    mul_in = self._in_blocks[i_in][0]
                    rows = components_first(blocks[i_in], mul_in, dim)
                    matrices = (factor * weights[place]).view(mul_in, self.num_elements, mul)
                    product = self.multiplied(rows, matrices, [count * dim for count in counts])
                    total = total + product if is_reached else product
                    is_reached = True
            if is_reached:
                outputs.append(multiplicity_first(total, mul, dim))
            else:
                outputs.append(total.expand(features.shape[0], mul * dim))
        if len(outputs) == 0:  # there are no output irreps
            return torch.zeros([features.shape[0], 0], dtype=features.dtype, device=features.device)
        return torch.cat(outputs, dim=1)

    def multiplied(self, rows: Tensor, matrices: Tensor, counts: list[int]) -> Tensor:
        """Rows [n, mul_in], sorted by element, times ``matrices`` [mul_in, n_elements, mul_out]."""
        if self.num_elements == 1:
            return rows @ matrices.squeeze(1)
        of_element = matrices.unbind(1)
        return torch.cat([part @ of_element[i] for i, part in enumerate(torch.split(rows, counts))])


@compile_mode("script")
class Linear(_BlockwiseMap):
    """`e3nn.o3.Linear` without bias.

    y_j = sum of x_i W_ij / sqrt(F_j), F_j the sum of the multiplicities that reach block j.
    State: weight, the [mul_i, mul_j] matrices of all paths one after the other; bias, empty; output_mask.
    """

    def __init__(self, irreps_in: o3.Irreps, irreps_out: o3.Irreps) -> None:
        super().__init__(o3.Irreps(irreps_in), o3.Irreps(irreps_out), 1, empty_bias=True)
        self.irreps_in, self.irreps_out = o3.Irreps(irreps_in), o3.Irreps(irreps_out)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.irreps_in} -> {self.irreps_out} | {self.weight_numel} weights)"
        )

    def forward(self, features: Tensor) -> Tensor:
        """[n, irreps_in.dim] -> [n, irreps_out.dim]."""
        return self.mapped(features, [features.shape[0]])


@compile_mode("script")
class ElementLinear(_BlockwiseMap):
    """`e3nn.o3.FullyConnectedTensorProduct` with scalars: a linear map with own matrices for every element.

    y_j = sum over i, z of x_i a_z W_izj / sqrt(F_j n_elements). State: weight, the [mul_i, n_elements,
    mul_j] arrays of all paths one after the other; output_mask. Rows are sorted by element, so that the
    cost does not grow with the number of elements when the second operand is one-hot; any other operand
    is right too.
    """

    def __init__(self, irreps_in1: o3.Irreps, irreps_in2: o3.Irreps, irreps_out: o3.Irreps) -> None:
        super().__init__(o3.Irreps(irreps_in1), o3.Irreps(irreps_out), o3.Irreps(irreps_in2).dim)
        self.irreps_in1, self.irreps_in2 = o3.Irreps(irreps_in1), o3.Irreps(irreps_in2)
        self.irreps_out = o3.Irreps(irreps_out)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.irreps_in1} x {self.irreps_in2} -> {self.irreps_out} | "
            f"{self.weight_numel} weights)"
        )

    def forward(self, features: Tensor, attributes: Tensor) -> Tensor:
        """[n, irreps_in1.dim], [n, n_elements] -> [n, irreps_out.dim]."""
        element, row = torch.nonzero(attributes.t()).unbind(1)  # sorted by element
        weighted = features.index_select(0, row) * attributes[row, element].unsqueeze(1)
        counts: list[int] = torch.bincount(element, minlength=self.num_elements).tolist()
        sorted_output = self.mapped(weighted, counts)
        shape = [features.shape[0], sorted_output.shape[1]]
        output = torch.zeros(shape, dtype=sorted_output.dtype, device=sorted_output.device)
        return output.index_add(0, row, sorted_output)
