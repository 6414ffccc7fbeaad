"""Which model a run builds: every architecture argument, reconciled and parsed."""

from __future__ import annotations

from dataclasses import dataclass

_OF_ENERGIES = (
    "ef",
    "weighted",
    "forces_only",
    "stress",
    "virials",
    "huber",
    "universal",
    "l1l2energyforces",
)


@dataclass(frozen=True, kw_only=True)
class ModelKind:
    """What the name of a model on the command line implies.

    Attributes:
        losses: those that train all of it.
        error_tables: those that show its errors, the first where none is given; empty: any but dipoles'.
        has_energy: it has an energy, and forces.
        has_scale: its interaction energies are scaled by the training data's statistics.
        has_shift: they are shifted too.
        has_potential: it takes the electron number and has a head for the Fermi level.
        has_dipole: it has a dipole moment, and takes charges.
        two_body: its layers are BOTNet's, without products.
        residual_first: its first block may have a self connection.
        fixed: flags of the architecture that it does not have.
    """

    losses: tuple[str, ...] = _OF_ENERGIES
    error_tables: tuple[str, ...] = ()
    has_energy: bool = True
    has_scale: bool = True
    has_shift: bool = False
    has_potential: bool = False
    has_dipole: bool = False
    two_body: bool = False
    residual_first: bool = False
    fixed: tuple[str, ...] = ()


_MACE_ONLY = ("pair_repulsion", "distance_transform", "use_reduced_cg")
_BOTNET_LACKS = (*_MACE_ONLY, "radial_type")


def _fermi(loss: str) -> ModelKind:
    return ModelKind(losses=(loss,), has_potential=True)


MODEL_KINDS = {
    "MACE": ModelKind(),
    "ScaleShiftMACE": ModelKind(has_shift=True, residual_first=True),
    "FermiMACE": _fermi("fermi_weighted"),
    "FermiMACE_2": _fermi("fermi_weighted"),
    "FermiMACE_uncertainty": _fermi("fermi_weighted_uncertainty"),
    "FermiMACE_evidential": _fermi("fermi_weighted_evidential"),
    "BOTNet": ModelKind(has_scale=False, two_body=True, fixed=_BOTNET_LACKS),
    "ScaleShiftBOTNet": ModelKind(has_shift=True, two_body=True, fixed=_BOTNET_LACKS),
    "AtomicDipolesMACE": ModelKind(
        losses=("dipole",),
        error_tables=("DipoleRMSE", "DipoleMAE"),
        has_energy=False,
        has_scale=False,
        has_dipole=True,
        fixed=_MACE_ONLY,
    ),
    "EnergyDipolesMACE": ModelKind(
        losses=("energy_forces_dipole",),
        error_tables=("EnergyDipoleRMSE",),
        has_scale=False,
        has_dipole=True,
        fixed=_BOTNET_LACKS,
    ),
}


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
    use_reduced_cg: bool
    scaling: str
    compute_forces: bool
    compute_stress: bool
    compute_virials: bool
    compute_potential: bool
    enable_cueq: bool

    @property
    def kind(self) -> ModelKind:
        """What the name implies."""
        return MODEL_KINDS[self.model]

    @property
    def needs_electron(self) -> bool:
        """Whether every frame must carry a number of electrons."""
        return self.kind.has_potential

    @property
    def has_potential(self) -> bool:
        """Whether the model has a head for the Fermi level."""
        return self.kind.has_potential
