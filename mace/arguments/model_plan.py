"""Which model a run builds: every architecture argument, reconciled and parsed."""

from __future__ import annotations

from dataclasses import dataclass

FERMI_MODELS = ("FermiMACE",)


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """Architecture and outputs of the model.

    ``hidden_irreps`` and ``MLP_irreps`` are sorted and simplified strings (``8x0e+8x1o``). Which quantities
    the model is asked for in training is here too: a model without a Fermi level cannot be asked for one.
    """

    model: str  # name as on the command line
    r_max: float  # Angstrom
    radial_type: str
    num_radial_basis: int
    num_cutoff_basis: int
    pair_repulsion: bool
    distance_transform: str
    interaction: str
    interaction_first: str  # what is built: MACE and FermiMACE never begin with a residual block
    max_ell: int
    correlation: int
    num_interactions: int
    hidden_irreps: str
    num_channels: int
    max_L: int
    MLP_irreps: str
    radial_MLP: tuple[int, ...]
    gate: str | None
    scaling: str
    compute_forces: bool
    compute_stress: bool
    compute_virials: bool
    compute_potential: bool
    enable_cueq: bool

    @property
    def needs_electron(self) -> bool:
        """Whether every frame must carry a number of electrons."""
        return self.model in FERMI_MODELS

    @property
    def has_potential(self) -> bool:
        """Whether the model has a head for the Fermi level."""
        return self.model in FERMI_MODELS
