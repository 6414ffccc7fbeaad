"""The four equivariant operations a model is made of, behind one small interface with two back ends.

A back end is a set of four module classes. e3nn's is the default; cuEquivariance's is chosen per model
through ``cueq_config`` and imported only then. Whatever the back end, features between operations are
multiplicity-major ("mul_ir"), and parameters and buffers have the same names, shapes and meaning, so that a
state dict moves between back ends as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from e3nn import o3

from mace.exceptions import InputError
from mace.modules import _e3nn as e3nn_operations
from mace.modules._backend import Backend
from mace.modules.symmetric_contraction import SymmetricContraction


@dataclass
class CuEquivarianceConfig:
    """Which operations cuEquivariance evaluates.

    Args:
        enabled: without it every operation is e3nn's, whatever the other fields say.
        layout: "mul_ir" or "ir_mul", the order of features between operations in other implementations. Ours
            keeps e3nn's order there and changes it inside the operations: the value has no effect.
        layout_str: the same, for configurations written elsewhere.
        group: coupling conventions; "O3_e3nn" is the one that agrees with the models' spherical harmonics.
        optimize_all: all four operations; otherwise each ``optimize_*`` switches one.
        optimize_linear: linear maps.
        optimize_channelwise: tensor products with the harmonics of edges.
        optimize_symmetric: symmetric contractions.
        optimize_fctp: fully connected tensor products.

    Raises:
        InputError: unknown layout, or a group whose couplings do not fit the models.
    """

    enabled: bool = False
    layout: str = "mul_ir"
    layout_str: str = "mul_ir"
    group: str = "O3"
    optimize_all: bool = False
    optimize_linear: bool = False
    optimize_channelwise: bool = False
    optimize_symmetric: bool = False
    optimize_fctp: bool = False

    def __post_init__(self) -> None:
        if self.layout not in ("mul_ir", "ir_mul"):
            raise InputError(f"cueq_config: layout '{self.layout}' is not known; use 'mul_ir' or 'ir_mul'")
        if self.enabled and self.group != "O3_e3nn":
            raise InputError(
                f"cueq_config: the couplings of group '{self.group}' do not fit the models' harmonics; "
                "use 'O3_e3nn'"
            )

    @classmethod
    def coerce(cls, value: CueqConfig) -> CuEquivarianceConfig:
        """A configuration from what constructors take.

        Raises:
            InputError: the dictionary has a field that does not exist.
        """
        if isinstance(value, CuEquivarianceConfig):
            return value
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(value or {}) - set(known))
        if unknown:
            raise InputError(
                f"cueq_config: field '{unknown[0]}' is not known; choose from {', '.join(known)}"
            )
        return cls(**(value or {}))


CueqConfig = CuEquivarianceConfig | Mapping[str, Any] | None  # a configuration, its plain dictionary, or e3nn


E3NN = Backend(
    linear=e3nn_operations.linear,
    tensor_product=e3nn_operations.tensor_product,
    fully_connected_tensor_product=e3nn_operations.fully_connected_tensor_product,
    symmetric_contraction=SymmetricContraction,
)


def backend(cueq_config: CueqConfig, operation: str) -> Backend:
    """The back end of an operation ("linear", "channelwise", "symmetric" or "fctp") in this configuration.

    Raises:
        InputError: cuEquivariance is asked for and its Python package is not installed.
    """
    config = CuEquivarianceConfig.coerce(cueq_config)
    if not config.enabled or not (config.optimize_all or getattr(config, f"optimize_{operation}")):
        return E3NN
    try:
        from mace.modules._cueq import CUEQ
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("cuequivariance"):
            raise
        raise InputError(
            f"cuEquivariance is enabled but its package '{error.name}' is not installed: "
            "run 'pip install cuequivariance-torch', or do not enable it"
        ) from error
    return CUEQ


def Linear(  # noqa: N802 - the name other projects import
    irreps_in: o3.Irreps,
    irreps_out: o3.Irreps,
    shared_weights: bool = True,
    internal_weights: bool = True,
    cueq_config: CueqConfig = None,
) -> torch.nn.Module:
    """Equivariant linear map without bias: [..., irreps_in.dim] -> [..., irreps_out.dim]."""
    return backend(cueq_config, "linear").linear(
        irreps_in, irreps_out, shared_weights=shared_weights, internal_weights=internal_weights
    )


def TensorProduct(  # noqa: N802 - the name other projects import
    irreps_in1: o3.Irreps,
    irreps_in2: o3.Irreps,
    irreps_out: o3.Irreps,
    instructions: Sequence[tuple[Any, ...]] | None = None,
    shared_weights: bool = False,
    internal_weights: bool = False,
    cueq_config: CueqConfig = None,
) -> torch.nn.Module:
    """Channel-wise ("uvu") tensor product with weights per edge.

    It maps x1 [E, irreps_in1.dim], x2 [E, irreps_in2.dim], weight [E, weight_numel] to [E, irreps_out.dim].
    """
    return backend(cueq_config, "channelwise").tensor_product(
        irreps_in1,
        irreps_in2,
        irreps_out,
        instructions=instructions,
        shared_weights=shared_weights,
        internal_weights=internal_weights,
    )


def FullyConnectedTensorProduct(  # noqa: N802 - the name other projects import
    irreps_in1: o3.Irreps,
    irreps_in2: o3.Irreps,
    irreps_out: o3.Irreps,
    shared_weights: bool = True,
    internal_weights: bool = True,
    cueq_config: CueqConfig = None,
) -> torch.nn.Module:
    """Tensor product of everything with everything: x1 [N, .] and x2 [N, .] to [N, irreps_out.dim]."""
    return backend(cueq_config, "fctp").fully_connected_tensor_product(
        irreps_in1, irreps_in2, irreps_out, shared_weights=shared_weights, internal_weights=internal_weights
    )


def SymmetricContractionWrapper(  # noqa: N802 - the name other projects import
    irreps_in: o3.Irreps,
    irreps_out: o3.Irreps,
    correlation: int,
    num_elements: int | None = None,
    cueq_config: CueqConfig = None,
    use_reduced_cg: bool = False,
) -> torch.nn.Module:
    """Symmetric contraction: x [N, C, D] and element one-hot [N, Z] to [N, irreps_out.dim]."""
    return backend(cueq_config, "symmetric").symmetric_contraction(
        irreps_in, irreps_out, correlation, num_elements=num_elements, use_reduced_cg=use_reduced_cg
    )
