"""The blocks a model is made of: embeddings, interactions, products, readouts, energies.

Node features are [n_atoms, irreps.dim], multiplicity-major.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from e3nn import nn, o3
from e3nn.util.jit import compile_mode
from torch import Tensor

from mace.exceptions import InputError
from mace.modules._interaction import (
    AttendedEdges,
    AverageNorm,
    DensityNorm,
    ElementMixing,
    ElementSkip,
    InteractionBlock,
    LinearSkip,
)
from mace.modules._state import StateAdapter
from mace.modules.irreps_tools import mask_head, uniform_multiplicity
from mace.modules.radial import (
    AgnesiTransform,
    BesselBasis,
    ChebychevBasis,
    GaussianBasis,
    LegacySoftTransform,
    PolynomialCutoff,
    SoftTransform,
)
from mace.modules.wrapper_ops import Linear, SymmetricContractionWrapper

__all__ = [
    "AtomicEnergiesBlock",
    "EquivariantProductBasisBlock",
    "InteractionBlock",
    "LinearNodeEmbeddingBlock",
    "LinearReadoutBlock",
    "NonLinearReadoutBlock",
    "RadialEmbeddingBlock",
    "RealAgnosticAttResidualInteractionBlock",
    "RealAgnosticDensityInteractionBlock",
    "RealAgnosticDensityResidualInteractionBlock",
    "RealAgnosticInteractionBlock",
    "RealAgnosticResidualInteractionBlock",
    "ScaleShiftBlock",
]

Gate = Callable[[Tensor], Tensor]

RADIAL_BASES: dict[str, Callable[[float, int], torch.nn.Module]] = {
    "bessel": lambda r_max, num_basis: BesselBasis(r_max=r_max, num_basis=num_basis),
    "gaussian": lambda r_max, num_basis: GaussianBasis(r_max=r_max, num_basis=num_basis),
    "chebyshev": lambda r_max, num_basis: ChebychevBasis(r_max=r_max, num_basis=num_basis),
    # what MACE and CP-MACE mean by "chebyshev": T_n of the distance in Angstrom; for models made by them
    "chebyshev_raw": lambda r_max, num_basis: ChebychevBasis(r_max=r_max, num_basis=num_basis, rescale=False),
}
DISTANCE_TRANSFORMS: dict[str, Callable[[], torch.nn.Module]] = {
    "Agnesi": AgnesiTransform,
    "Soft": SoftTransform,
    "SoftLegacy": LegacySoftTransform,  # what MACE before 0.3.10 meant by "Soft"
}


@compile_mode("script")
class LinearNodeEmbeddingBlock(torch.nn.Module):
    """Linear map of the node attributes to the first features."""

    def __init__(self, irreps_in: o3.Irreps, irreps_out: o3.Irreps, cueq_config: Any | None = None) -> None:
        super().__init__()
        self.linear = Linear(o3.Irreps(irreps_in), o3.Irreps(irreps_out), cueq_config=cueq_config)

    def forward(self, node_attrs: Tensor) -> Tensor:
        """[n_atoms, irreps_in.dim] -> [n_atoms, irreps_out.dim]."""
        return self.linear(node_attrs)


@compile_mode("script")
class RadialEmbeddingBlock(torch.nn.Module):
    """basis(transform(distance)) * cutoff(distance), [n_edges, num_bessel].

    Args:
        r_max: cutoff radius, Angstrom.
        num_bessel: number of basis functions, whatever their kind.
        num_polynomial_cutoff: p of the envelope.
        radial_type: "bessel", "gaussian", "chebyshev" or "chebyshev_raw".
        distance_transform: "None", "Agnesi", "Soft" or "SoftLegacy".

    Raises:
        InputError: unknown name.
    """

    def __init__(
        self,
        r_max: float,
        num_bessel: int,
        num_polynomial_cutoff: int,
        radial_type: str = "bessel",
        distance_transform: str = "None",
    ) -> None:
        super().__init__()
        if radial_type not in RADIAL_BASES:
            raise InputError(
                f"radial_type '{radial_type}' is not known; choose one of {', '.join(RADIAL_BASES)}"
            )
        self.bessel_fn = RADIAL_BASES[radial_type](r_max, num_bessel)
        self.has_transform = distance_transform != "None"
        if self.has_transform:
            if distance_transform not in DISTANCE_TRANSFORMS:
                known = ", ".join(["None", *DISTANCE_TRANSFORMS])
                raise InputError(
                    f"distance_transform '{distance_transform}' is not known; choose one of {known}"
                )
            self.distance_transform = DISTANCE_TRANSFORMS[distance_transform]()
        self.cutoff_fn = PolynomialCutoff(r_max=r_max, p=num_polynomial_cutoff)
        self.out_dim = num_bessel

    __constants__ = ["has_transform"]

    def forward(
        self, edge_lengths: Tensor, node_attrs: Tensor, edge_index: Tensor, atomic_numbers: Tensor
    ) -> Tensor:
        """Radial features of edges with ``edge_lengths`` [n_edges, 1], Angstrom; see `ZBLBasis.forward`."""
        cutoff = self.cutoff_fn(edge_lengths)
        if self.has_transform:
            edge_lengths = self.distance_transform(edge_lengths, node_attrs, edge_index, atomic_numbers)
        return self.bessel_fn(edge_lengths) * cutoff


@compile_mode("script")
class AtomicEnergiesBlock(StateAdapter):
    """Energies of isolated atoms, eV: [n_elements] or [n_heads, n_elements]."""

    def __init__(self, atomic_energies: np.ndarray | Tensor | list) -> None:
        super().__init__()
        energies = torch.as_tensor(np.asarray(atomic_energies, dtype=np.float64)).to(
            torch.get_default_dtype()
        )
        self.register_buffer("atomic_energies", energies)

    def forward(self, x: Tensor) -> Tensor:
        """One-hot elements [n_atoms, n_elements] -> energies [n_atoms, n_heads]."""
        return torch.matmul(x, torch.atleast_2d(self.atomic_energies).T)

    def __repr__(self) -> str:
        rows = torch.atleast_2d(self.atomic_energies).tolist()
        energies = "; ".join(", ".join(f"{value:.4f}" for value in row) for row in rows)
        return f"{self.__class__.__name__}(energies=[{energies}])"


@compile_mode("script")
class ScaleShiftBlock(StateAdapter):
    """scale[head] * x + shift[head]; shift None means none."""

    def __init__(self, scale: float | np.ndarray, shift: float | np.ndarray | None) -> None:
        super().__init__()
        dtype = torch.get_default_dtype()
        self.register_buffer("scale", torch.as_tensor(np.asarray(scale, dtype=np.float64)).to(dtype))
        shift = (
            np.zeros_like(scale, dtype=np.float64) if shift is None else np.asarray(shift, dtype=np.float64)
        )
        self.register_buffer("shift", torch.as_tensor(shift).to(dtype))

    def forward(self, x: Tensor, head: Tensor) -> Tensor:
        """Values [n_atoms] and the head index [n_atoms] of each atom -> [n_atoms]."""
        return torch.atleast_1d(self.scale)[head] * x + torch.atleast_1d(self.shift)[head]

    def __repr__(self) -> str:
        scale = ", ".join(f"{value:.6f}" for value in torch.atleast_1d(self.scale).tolist())
        shift = ", ".join(f"{value:.6f}" for value in torch.atleast_1d(self.shift).tolist())
        return f"{self.__class__.__name__}(scale={scale}, shift={shift})"


@compile_mode("script")
class LinearReadoutBlock(torch.nn.Module):
    """Linear map of features to one scalar per head."""

    def __init__(
        self, irreps_in: o3.Irreps, irrep_out: o3.Irreps = "0e", cueq_config: Any | None = None
    ) -> None:
        super().__init__()
        self.linear = Linear(o3.Irreps(irreps_in), o3.Irreps(irrep_out), cueq_config=cueq_config)

    def forward(self, x: Tensor, heads: Tensor | None = None) -> Tensor:
        """[n_atoms, irreps_in.dim] -> [n_atoms, n_heads]; ``heads`` is not needed."""
        return self.linear(x)


@compile_mode("script")
class NonLinearReadoutBlock(torch.nn.Module):
    """linear_2(mask(gate(linear_1(x)))): scalars through a hidden layer with a block of columns per head."""

    def __init__(
        self,
        irreps_in: o3.Irreps,
        MLP_irreps: o3.Irreps,  # noqa: N803 (public name)
        gate: Gate | None,
        irrep_out: o3.Irreps = "0e",
        num_heads: int = 1,
        cueq_config: Any | None = None,
    ) -> None:
        super().__init__()
        self.hidden_irreps = o3.Irreps(MLP_irreps)
        self.num_heads = num_heads
        self.linear_1 = Linear(o3.Irreps(irreps_in), self.hidden_irreps, cueq_config=cueq_config)
        self.non_linearity = nn.Activation(
            irreps_in=self.hidden_irreps, acts=[gate] * len(self.hidden_irreps)
        )
        self.linear_2 = Linear(self.hidden_irreps, o3.Irreps(irrep_out), cueq_config=cueq_config)

    def forward(self, x: Tensor, heads: Tensor | None = None) -> Tensor:
        """[n_atoms, irreps_in.dim] and the head index [n_atoms] of each atom -> [n_atoms, n_heads]."""
        x = self.non_linearity(self.linear_1(x))
        if self.num_heads > 1 and heads is not None:
            x = mask_head(x, heads, self.num_heads)
        return self.linear_2(x)


@compile_mode("script")
class EquivariantProductBasisBlock(torch.nn.Module):
    """Many-body features: linear(symmetric contraction of the messages) + self connection."""

    def __init__(
        self,
        node_feats_irreps: o3.Irreps,
        target_irreps: o3.Irreps,
        correlation: int,
        use_sc: bool = True,
        num_elements: int | None = None,
        cueq_config: Any | None = None,
        use_reduced_cg: bool = False,
    ) -> None:
        super().__init__()
        self.use_sc = use_sc
        target_irreps = o3.Irreps(target_irreps)
        uniform_multiplicity(target_irreps, "irreps of a product block")
        self.symmetric_contractions = SymmetricContractionWrapper(
            o3.Irreps(node_feats_irreps),
            target_irreps,
            correlation,
            num_elements=num_elements,
            cueq_config=cueq_config,
            use_reduced_cg=use_reduced_cg,
        )
        self.linear = Linear(target_irreps, target_irreps, cueq_config=cueq_config)

    def forward(self, node_feats: Tensor, sc: Tensor | None, node_attrs: Tensor) -> Tensor:
        """Features of the next layer, [n_atoms, target_irreps.dim].

        Args:
            node_feats: messages [n_atoms, channels, sum (2l+1)].
            sc: self connection [n_atoms, target_irreps.dim] or None.
            node_attrs: one-hot elements [n_atoms, n_elements].
        """
        node_feats = self.linear(self.symmetric_contractions(node_feats, node_attrs))
        if self.use_sc and sc is not None:
            return node_feats + sc
        return node_feats


@compile_mode("script")
class RealAgnosticInteractionBlock(AverageNorm, ElementMixing):
    """Sum over neighbours / average count, then an element-dependent linear map."""


@compile_mode("script")
class RealAgnosticResidualInteractionBlock(AverageNorm, ElementSkip):
    """Sum over neighbours / average count; element-dependent self connection."""


@compile_mode("script")
class RealAgnosticDensityInteractionBlock(DensityNorm, ElementMixing):
    """Sum over neighbours / learned count, then an element-dependent linear map."""


@compile_mode("script")
class RealAgnosticDensityResidualInteractionBlock(DensityNorm, ElementSkip):
    """Sum over neighbours / learned count; element-dependent self connection."""


@compile_mode("script")
class RealAgnosticAttResidualInteractionBlock(AverageNorm, LinearSkip, AttendedEdges):
    """Sum over neighbours / average count; radial weights depend on both ends; linear self connection."""
