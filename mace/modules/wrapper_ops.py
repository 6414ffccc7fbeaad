"""The four equivariant operations a model is made of, behind one small interface with two back ends.

A back end is an object with four methods. e3nn is the default; cuEquivariance is chosen per model through ``cueq_config`` and imported only
then. Whatever the back end, features between operations are multiplicity-major ("mul_ir") and parameters and buffers carry e3nn's names and
shapes, so that a state dict moves between back ends as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from e3nn import o3

from mace.exceptions import InputError
from mace.modules.symmetric_contraction import SymmetricContraction


@dataclass
class CuEquivarianceConfig:
    """Which operations cuEquivariance evaluates.

    Args:
        enabled: without it every operation is e3nn's, whatever the other fields say.
        layout: order of features between operations in other implementations of this interface. Ours always keeps e3nn's order there and
            changes it inside an operation, so the value ("mul_ir" or "ir_mul") is recorded and has no effect on results.
        layout_str: the same as text, kept for configurations written elsewhere.
        group: coupling conventions; "O3_e3nn" is the one that agrees with the spherical harmonics of the models.
        optimize_all: all four operations; otherwise each ``optimize_*`` switches one.
        optimize_linear: linear maps.
        optimize_channelwise: tensor products with edge harmonics.
        optimize_symmetric: symmetric contractions.
        optimize_fctp: fully connected tensor products.

    Raises:
        InputError: unknown layout or group, or a group whose couplings do not fit the models.
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
            raise InputError(f"cueq_config: layout {self.layout!r} is not known; use 'mul_ir' or 'ir_mul'")
        if self.enabled and self.group != "O3_e3nn":
            raise InputError(
                f"cueq_config: group {self.group!r} couples in another basis than the model's spherical harmonics; use 'O3_e3nn'"
            )

    @classmethod
    def coerce(cls, value: CuEquivarianceConfig | Mapping[str, Any] | None) -> CuEquivarianceConfig:
        """A configuration from what constructors accept: a configuration, its plain dictionary, or None (e3nn).

        Raises:
            InputError: the dictionary has a field that does not exist.
        """
        if value is None:
            return cls()
        if isinstance(value, cls):
            return value
        unknown = sorted(set(value) - set(cls.__dataclass_fields__))
        if unknown:
            raise InputError(
                f"cueq_config: unknown field {unknown[0]!r}; known are {', '.join(cls.__dataclass_fields__)}"
            )
        return cls(**value)


class Backend(Protocol):
    """What evaluates the operations. Irreps are e3nn's; the modules returned take and give multiplicity-major features."""

    def linear(self, irreps_in: o3.Irreps, irreps_out: o3.Irreps, **weights: bool) -> torch.nn.Module: ...

    def tensor_product(
        self,
        irreps_in1: o3.Irreps,
        irreps_in2: o3.Irreps,
        irreps_out: o3.Irreps,
        instructions: Sequence,
        **weights: bool,
    ) -> torch.nn.Module: ...

    def fully_connected(
        self, irreps_in1: o3.Irreps, irreps_in2: o3.Irreps, irreps_out: o3.Irreps, **weights: bool
    ) -> torch.nn.Module: ...

    def symmetric_contraction(
        self, irreps_in: o3.Irreps, irreps_out: o3.Irreps, correlation: int, num_elements: int
    ) -> torch.nn.Module: ...


class E3nnBackend:
    """e3nn's operations and our symmetric contraction: the default."""

    def linear(self, irreps_in: o3.Irreps, irreps_out: o3.Irreps, **weights: bool) -> torch.nn.Module:
        return o3.Linear(irreps_in, irreps_out, **weights)

    def tensor_product(
        self,
        irreps_in1: o3.Irreps,
        irreps_in2: o3.Irreps,
        irreps_out: o3.Irreps,
        instructions: Sequence,
        **weights: bool,
    ) -> torch.nn.Module:
        return o3.TensorProduct(irreps_in1, irreps_in2, irreps_out, instructions=instructions, **weights)

    def fully_connected(
        self, irreps_in1: o3.Irreps, irreps_in2: o3.Irreps, irreps_out: o3.Irreps, **weights: bool
    ) -> torch.nn.Module:
        return o3.FullyConnectedTensorProduct(irreps_in1, irreps_in2, irreps_out, **weights)

    def symmetric_contraction(
        self, irreps_in: o3.Irreps, irreps_out: o3.Irreps, correlation: int, num_elements: int
    ) -> torch.nn.Module:
        return SymmetricContraction(irreps_in, irreps_out, correlation, num_elements=num_elements)


def backend(cueq_config: CuEquivarianceConfig | Mapping[str, Any] | None, operation: str) -> Backend:
    """The back end that evaluates ``operation`` ("linear", "channelwise", "symmetric" or "fctp") of a model with this configuration.

    Raises:
        InputError: cuEquivariance is asked for and its Python package is not installed.
    """
    config = CuEquivarianceConfig.coerce(cueq_config)
    if not config.enabled or not (config.optimize_all or getattr(config, f"optimize_{operation}")):
        return E3nnBackend()
    try:
        from mace.modules._cueq import CueqBackend
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("cuequivariance"):
            raise
        raise InputError(
            f"cuEquivariance is enabled but the package {error.name!r} is not installed: pip install cuequivariance-torch, or disable it"
        ) from error
    return CueqBackend()


def Linear(  # noqa: N802 - the name other projects import
    irreps_in: o3.Irreps,
    irreps_out: o3.Irreps,
    shared_weights: bool = True,
    internal_weights: bool = True,
    cueq_config: CuEquivarianceConfig | Mapping[str, Any] | None = None,
) -> torch.nn.Module:
    """Equivariant linear map without bias: [..., irreps_in.dim] -> [..., irreps_out.dim]."""
    return backend(cueq_config, "linear").linear(
        o3.Irreps(irreps_in),
        o3.Irreps(irreps_out),
        shared_weights=shared_weights,
        internal_weights=internal_weights,
    )


def TensorProduct(  # noqa: N802 - the name other projects import
    irreps_in1: o3.Irreps,
    irreps_in2: o3.Irreps,
    irreps_out: o3.Irreps,
    instructions: Sequence | None = None,
    shared_weights: bool = False,
    internal_weights: bool = False,
    cueq_config: CuEquivarianceConfig | Mapping[str, Any] | None = None,
) -> torch.nn.Module:
    """Channel-wise ("uvu") tensor product with one weight vector per row: (x1 [E, .], x2 [E, .], weight [E, weight_numel]) -> [E, .]."""
    return backend(cueq_config, "channelwise").tensor_product(
        o3.Irreps(irreps_in1),
        o3.Irreps(irreps_in2),
        o3.Irreps(irreps_out),
        instructions or [],
        shared_weights=shared_weights,
        internal_weights=internal_weights,
    )


def FullyConnectedTensorProduct(  # noqa: N802 - the name other projects import
    irreps_in1: o3.Irreps,
    irreps_in2: o3.Irreps,
    irreps_out: o3.Irreps,
    shared_weights: bool = True,
    internal_weights: bool = True,
    cueq_config: CuEquivarianceConfig | Mapping[str, Any] | None = None,
) -> torch.nn.Module:
    """Tensor product that connects every pair of inputs to every output: (x1 [N, .], x2 [N, .]) -> [N, irreps_out.dim]."""
    return backend(cueq_config, "fctp").fully_connected(
        o3.Irreps(irreps_in1),
        o3.Irreps(irreps_in2),
        o3.Irreps(irreps_out),
        shared_weights=shared_weights,
        internal_weights=internal_weights,
    )


def SymmetricContractionWrapper(  # noqa: N802 - the name other projects import
    irreps_in: o3.Irreps,
    irreps_out: o3.Irreps,
    correlation: int,
    num_elements: int | None = None,
    cueq_config: CuEquivarianceConfig | Mapping[str, Any] | None = None,
) -> torch.nn.Module:
    """Symmetric contraction: (x [N, C, D], element one-hot [N, Z]) -> [N, irreps_out.dim]; see ``SymmetricContraction``."""
    assert num_elements is not None, "the weights of a symmetric contraction are per element"
    return backend(cueq_config, "symmetric").symmetric_contraction(
        o3.Irreps(irreps_in), o3.Irreps(irreps_out), correlation, num_elements
    )
