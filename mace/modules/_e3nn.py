"""The default back end: e3nn's operations, evaluated by code of ours in the cases that models consist of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from e3nn import o3

from mace.modules._convolution import Convolution, can_convolve
from mace.modules._linear import ElementLinear, Linear


def linear(
    irreps_in: o3.Irreps, irreps_out: o3.Irreps, *, shared_weights: bool, internal_weights: bool
) -> torch.nn.Module:
    """`o3.Linear` without bias."""
    if shared_weights and internal_weights:
        return Linear(irreps_in, irreps_out)
    return o3.Linear(irreps_in, irreps_out, shared_weights=shared_weights, internal_weights=internal_weights)


def tensor_product(
    irreps_in1: o3.Irreps,
    irreps_in2: o3.Irreps,
    irreps_out: o3.Irreps,
    *,
    instructions: Sequence[tuple],
    shared_weights: bool,
    internal_weights: bool,
) -> torch.nn.Module:
    """`o3.TensorProduct`."""
    operands = o3.Irreps(irreps_in1), o3.Irreps(irreps_in2), o3.Irreps(irreps_out)
    if can_convolve(*operands, instructions) and not shared_weights and not internal_weights:
        return Convolution(*operands, instructions)
    return o3.TensorProduct(
        *operands, instructions, shared_weights=shared_weights, internal_weights=internal_weights
    )


def fully_connected_tensor_product(
    irreps_in1: o3.Irreps,
    irreps_in2: o3.Irreps,
    irreps_out: o3.Irreps,
    *,
    shared_weights: bool,
    internal_weights: bool,
) -> torch.nn.Module:
    """`o3.FullyConnectedTensorProduct`."""
    scalars = o3.Irreps(irreps_in2)
    if len(scalars) == 1 and scalars[0].ir.is_scalar() and shared_weights and internal_weights:
        return ElementLinear(irreps_in1, scalars, irreps_out)
    return o3.FullyConnectedTensorProduct(
        irreps_in1, scalars, irreps_out, shared_weights=shared_weights, internal_weights=internal_weights
    )
