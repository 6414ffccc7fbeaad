"""Tensor product of features with edge harmonics, summed over the edges of each receiver.

Edges are sorted by receiver and cut into groups of a few edges with one receiver. The sum over a group is
then part of the matrix product that couples features and harmonics, so that nothing of the size edges x
output is ever stored.
"""

# No "from __future__ import annotations": TorchScript needs the types of the attributes, not their text.
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from e3nn import o3
from e3nn.util.jit import compile_mode
from torch import Tensor


class EdgeGroups(NamedTuple):
    """Edges in groups of ``size`` places with one receiver; places left over repeat an edge with weight 0."""

    size: int
    edges: Tensor  # int64 [n_groups * size], the edge at each place
    is_edge: Tensor  # [n_groups * size, 1], 1 or 0 (left over), floating point
    receivers: Tensor  # int64 [n_groups]


def group_edges(receivers: Tensor, num_nodes: int, like: Tensor, size: int = 4) -> EdgeGroups:
    """Groups of the edges that end in ``receivers`` [n_edges].

    Args:
        receivers: int64 [n_edges], in any order.
        num_nodes: number of nodes.
        like: gives the floating-point type.
        size: places of a group. A few: large groups waste places, small ones leave more to add up.
    """
    num_edges = receivers.shape[0]
    order = torch.argsort(receivers, stable=True)
    degrees = torch.bincount(receivers, minlength=num_nodes)
    groups_of_node = (degrees + (size - 1)) // size
    first_place = size * (torch.cumsum(groups_of_node, 0) - groups_of_node)
    first_edge = torch.cumsum(degrees, 0) - degrees
    sorted_receivers = receivers[order]
    place = (
        first_place[sorted_receivers]
        + torch.arange(num_edges, device=order.device)
        - first_edge[sorted_receivers]
    )
    nodes = torch.repeat_interleave(torch.arange(num_nodes, device=order.device), groups_of_node)
    edges = torch.zeros(size * nodes.shape[0], dtype=order.dtype, device=order.device)
    is_edge = torch.zeros([size * nodes.shape[0], 1], dtype=like.dtype, device=like.device)
    return EdgeGroups(size, edges.index_copy(0, place, order), is_edge.index_fill(0, place, 1.0), nodes)


def _scaled_wigner_3j(l_1: int, l_2: int, l_3: int, symbol: Tensor | None) -> Tensor:
    """sqrt(2 l_3 + 1) w3j(l_1, l_2, l_3), [2 l_2 + 1, (2 l_1 + 1) (2 l_3 + 1)], float64.

    ``symbol`` is the 3j symbol, None where one l is 0.
    """
    if symbol is None:
        size = 2 * max(l_1, l_2, l_3) + 1
        symbol = torch.eye(size, dtype=torch.float64) / math.sqrt(size)
    shape = (2 * l_1 + 1, 2 * l_2 + 1, 2 * l_3 + 1)
    return math.sqrt(2 * l_3 + 1) * symbol.cpu().double().reshape(shape).transpose(0, 1).flatten(1)


@compile_mode("script")
class _Couplings(torch.nn.Module):
    """The Wigner 3j symbols of a tensor product, under the names that e3nn's generated code gives them.

    Args:
        num_harmonics: components of the edge harmonics.
        degrees: l_1, l_2, l_3 of every path.
        harmonics: components of the harmonics that each path takes.

    Its forward pass: [n, num_harmonics] -> [n, sum over paths of (2 l_1 + 1) (2 l_3 + 1)].
    """

    def __init__(
        self, num_harmonics: int, degrees: Sequence[tuple[int, int, int]], harmonics: Sequence[slice]
    ) -> None:
        super().__init__()
        self._num_harmonics, self._degrees, self._harmonics = num_harmonics, list(degrees), list(harmonics)
        for triple in dict.fromkeys(self._degrees):
            if min(triple) > 0:
                self.register_buffer(
                    self._name(triple), o3.wigner_3j(*triple, dtype=torch.get_default_dtype())
                )
        self.register_buffer("matrix", torch.zeros(0), persistent=False)
        self._refresh()

    @staticmethod
    def _name(triple: tuple[int, int, int]) -> str:
        return "_w3j_{}_{}_{}".format(*triple)

    def _refresh(self) -> None:
        """The matrix of the forward pass, from the symbols in the state, whatever precision they came in."""
        blocks = []
        for triple, rows in zip(self._degrees, self._harmonics, strict=True):
            block = _scaled_wigner_3j(*triple, getattr(self, self._name(triple), None))
            blocks.append(torch.zeros(self._num_harmonics, block.shape[1], dtype=torch.float64))
            blocks[-1][rows] = block
        self.matrix = torch.cat(blocks, dim=1).to(self.matrix)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> torch.nn.Module:
        super()._apply(fn, recurse)
        self._refresh()
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._refresh()

    def forward(self, harmonics: Tensor) -> Tensor:
        return harmonics @ self.matrix


def can_convolve(
    irreps_in1: o3.Irreps, irreps_in2: o3.Irreps, irreps_out: o3.Irreps, instructions: Sequence
) -> bool:
    """Whether `Convolution` covers this: one path per output block, mode "uvu", one number of channels."""
    return (
        len({mul for mul, _ in [*irreps_in1, *irreps_out]}) == 1
        and all(mul == 1 for mul, _ in irreps_in2)
        and [instruction[2] for instruction in instructions] == list(range(len(irreps_out)))
        and all(tuple(instruction[3:]) == ("uvu", True) for instruction in instructions)
    )


@compile_mode("script")
class Convolution(torch.nn.Module):
    """`e3nn.o3.TensorProduct` of mode "uvu" with weights for every row, and its sum over neighbours.

    y_k[u, c] = w_k[u] sqrt(2 l_3 + 1) sum_ab w3j(l_1, l_2, l_3)[a, b, c] x_i[u, a] Y_j[b], one output
    block per path.
    State: weight, empty; output_mask; _compiled_main_left_right._w3j_l1_l2_l3, the symbols with all l > 0.
    """

    _paths: list[tuple[int, int, int]]  # input block, components of it, components of the output
    _coupled_sizes: list[int]

    def __init__(
        self,
        irreps_in1: o3.Irreps,
        irreps_in2: o3.Irreps,
        irreps_out: o3.Irreps,
        instructions: Sequence[tuple],
    ) -> None:
        super().__init__()
        assert can_convolve(irreps_in1, irreps_in2, irreps_out, instructions)
        self.irreps_in1, self.irreps_in2, self.irreps_out = irreps_in1, irreps_in2, irreps_out
        self.num_channels = irreps_out[0].mul
        self.weight_numel = len(instructions) * self.num_channels
        self.register_buffer("weight", torch.zeros(0))
        self.register_buffer("output_mask", torch.ones(irreps_out.dim))
        degrees = [
            (irreps_in1[i].ir.l, irreps_in2[j].ir.l, irreps_out[k].ir.l) for i, j, k, *_ in instructions
        ]
        harmonics = [irreps_in2.slices()[j] for _, j, *_ in instructions]
        self._compiled_main_left_right = _Couplings(irreps_in2.dim, degrees, harmonics)
        self._in_dims = [ir.dim for _, ir in irreps_in1]
        self._paths = [
            (ins[0], 2 * l_1 + 1, 2 * l_3 + 1)
            for ins, (l_1, _, l_3) in zip(instructions, degrees, strict=True)
        ]
        self._out_dims = [dim_out for _, _, dim_out in self._paths]
        self._coupled_sizes = [dim_in * dim_out for _, dim_in, dim_out in self._paths]

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.irreps_in1.simplify()} x {self.irreps_in2.simplify()} -> "
            f"{self.irreps_out.simplify()} | {self.weight_numel} weights)"
        )

    def _product(self, rows: list[Tensor], harmonics: Tensor, weights: Tensor, group: int) -> list[Tensor]:
        """Sums over groups of ``group`` rows, one [n_groups, 2 l_3 + 1, channels] per path.

        Args:
            rows: features of every input block, [n, 2 l_1 + 1, channels].
            harmonics: [n, irreps_in2.dim].
            weights: [n, weight_numel].
            group: rows that belong together.
        """
        num_groups = harmonics.shape[0] // group
        coupled = torch.split(self._compiled_main_left_right(harmonics), self._coupled_sizes, dim=1)
        weight_of_path = weights.view(weights.shape[0], len(self._paths), 1, self.num_channels).unbind(1)
        outputs: list[Tensor] = []
        for path, (i_in, dim_in, dim_out) in enumerate(self._paths):
            weighted = (rows[i_in] * weight_of_path[path]).view(num_groups, group * dim_in, self.num_channels)
            coupling = coupled[path].reshape(num_groups, group * dim_in, dim_out).transpose(1, 2)
            outputs.append(torch.bmm(coupling, weighted))
        return outputs

    def _blocks(self, features: Tensor) -> list[Tensor]:
        """[n, irreps_in1.dim] -> [n, 2 l + 1, channels] of every block."""
        blocks: list[Tensor] = []
        start = 0
        for dim in self._in_dims:
            block = features[:, start : start + dim * self.num_channels]
            blocks.append(block.reshape(-1, self.num_channels, dim).transpose(1, 2).contiguous())
            start += dim * self.num_channels
        return blocks

    def _flat(self, outputs: list[Tensor]) -> Tensor:
        """[n, 2 l + 1, channels] of every block -> [n, irreps_out.dim]."""
        return torch.cat([block.transpose(1, 2).flatten(1) for block in outputs], dim=1)

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Features, harmonics, weights [n, weight_numel] -> [n, irreps_out.dim], nothing summed."""
        return self._flat(self._product(self._blocks(x), y, weight, 1))

    @torch.jit.export
    def summed(
        self, features: Tensor, harmonics: Tensor, weights: Tensor, senders: Tensor, groups: EdgeGroups
    ) -> Tensor:
        """Sum of the products over the edges of each receiver, [n_nodes, irreps_out.dim].

        Args:
            features: [n_nodes, irreps_in1.dim].
            harmonics: [n_edges, irreps_in2.dim].
            weights: [n_places, weight_numel], for the places of ``groups``.
            senders: int64 [n_edges].
            groups: from `group_edges`.
        """
        places = senders[groups.edges]
        rows = [block.index_select(0, places) for block in self._blocks(features)]
        at_places = harmonics.index_select(0, groups.edges) * groups.is_edge
        per_group = torch.cat(self._product(rows, at_places, weights, groups.size), dim=1)
        shape = [features.shape[0], per_group.shape[1], per_group.shape[2]]
        per_node = torch.zeros(shape, dtype=per_group.dtype, device=per_group.device)
        per_node = per_node.index_add(0, groups.receivers, per_group)
        return self._flat(list(torch.split(per_node, self._out_dims, dim=1)))
