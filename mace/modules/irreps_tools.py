"""Bookkeeping of irreducible representations: tensor-product instructions, channel layout, head masks."""

from __future__ import annotations

from typing import Any

import torch
from e3nn import o3
from e3nn.util.jit import compile_mode
from torch import Tensor

from mace.exceptions import InputError


def tp_out_irreps_with_instructions(
    irreps1: o3.Irreps, irreps2: o3.Irreps, target_irreps: o3.Irreps
) -> tuple[o3.Irreps, list[tuple[int, int, int, str, bool]]]:
    """Output irreps and "uvu" instructions of a tensor product that keeps what ``target_irreps`` contains.

    Every pair (block of ``irreps1``, block of ``irreps2``) and every allowed irrep of their product that
    occurs in ``target_irreps`` gets an output block of its own with the multiplicity of the first factor.
    The blocks are sorted by (l, parity), stably; the instructions follow the order of their output
    blocks, and so do the weights.

    Returns:
        (irreps_out, [(i_in1, i_in2, i_out, "uvu", True), ...])
    """
    paths = [
        (mul, ir_out, i1, i2)
        for i1, (mul, ir1) in enumerate(irreps1)
        for i2, (_, ir2) in enumerate(irreps2)
        for ir_out in ir1 * ir2
        if ir_out in target_irreps
    ]
    paths.sort(key=lambda path: (path[1].l, path[1].p))
    irreps_out = o3.Irreps([(mul, ir_out) for mul, ir_out, _, _ in paths])
    return irreps_out, [(i1, i2, i_out, "uvu", True) for i_out, (_, _, i1, i2) in enumerate(paths)]


def linear_out_irreps(irreps: o3.Irreps, target_irreps: o3.Irreps) -> o3.Irreps:
    """For each block of ``irreps`` the block of ``target_irreps`` with the same irrep.

    Raises:
        RuntimeError: ``target_irreps`` lacks an irrep of ``irreps``.
    """
    blocks = []
    for _, ir_in in irreps:
        matching = [(mul, ir) for mul, ir in target_irreps if ir == ir_in]
        if not matching:
            raise RuntimeError(f"{ir_in} does not occur in the target irreps {target_irreps}")
        blocks.append(matching[0])
    return o3.Irreps(blocks)


def uniform_multiplicity(irreps: o3.Irreps, what: str) -> int:
    """The common multiplicity of all blocks of ``irreps``.

    Raises:
        InputError: the blocks have different multiplicities, or there is no block.
    """
    multiplicities = {mul for mul, _ in irreps}
    if len(multiplicities) != 1:
        raise InputError(
            f"{what} '{irreps}' must have the same multiplicity for every irrep, like 32x0e + 32x1o"
        )
    return multiplicities.pop()


@compile_mode("script")
class reshape_irreps(torch.nn.Module):  # noqa: N801 (the name is part of the public interface)
    """Separate the channels of features from their components.

    [n, sum mul (2l+1)] -> [n, mul, sum (2l+1)], multiplicity-major on both sides; block l ends in the columns
    l^2 .. (l+1)^2 - 1 when the blocks are l = 0, 1, 2 ... The layout is the same for every back end.
    """

    def __init__(self, irreps: o3.Irreps, cueq_config: Any | None = None) -> None:
        super().__init__()
        self.irreps = o3.Irreps(irreps)
        self.cueq_config = cueq_config
        self.dims = [ir.dim for _, ir in self.irreps]
        self.muls = [mul for mul, _ in self.irreps]

    def forward(self, tensor: Tensor) -> Tensor:
        """[n, irreps.dim] -> [n, channels, components]."""
        fields: list[Tensor] = []
        start = 0
        for mul, dim in zip(self.muls, self.dims):  # noqa: B905 - TorchScript knows no strict
            fields.append(tensor[:, start : start + mul * dim].reshape(tensor.shape[0], mul, dim))
            start += mul * dim
        return torch.cat(fields, dim=2)


def mask_head(x: Tensor, head: Tensor, num_heads: int) -> Tensor:
    """Keep the block of columns that belongs to each atom's head, zero the others.

    Args:
        x: [n_atoms, num_heads * m], head-major.
        head: [n_atoms], index of each atom's head.
        num_heads: number of heads.
    """
    blocks = x.view(x.shape[0], num_heads, -1)
    own = torch.arange(num_heads, device=x.device).unsqueeze(0) == head.unsqueeze(-1)
    return (blocks * own.unsqueeze(-1).to(x.dtype)).view(x.shape)
