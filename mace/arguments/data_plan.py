"""What a run reads: the heads, their files and the names of their labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mace.arguments.parsing import atomic_energies_literal, is_hdf5_path


@dataclass(frozen=True, kw_only=True)
class LabelKeys:
    """Names under which a file holds its labels.

    All are entries of ``atoms.info`` except forces and charges, which are entries of ``atoms.arrays``.
    """

    energy: str = "REF_energy"
    forces: str = "REF_forces"
    stress: str = "REF_stress"
    virials: str = "REF_virials"
    dipole: str = "REF_dipole"
    charges: str = "REF_charges"
    electron: str = "electron"
    potential: str = "potential"
    head: str = "head"


@dataclass(frozen=True, kw_only=True)
class HeadPlan:
    """One head: the level of theory its files were computed with, and how they are read."""

    name: str
    train_file: str
    valid_file: str | None
    test_file: str | None
    test_dir: str | None
    valid_fraction: float  # used without valid_file; 0 < fraction < 1
    E0s: (
        str | None
    )  # "average", the path of a .json file or a dict literal {atomic number: eV}; see explicit_E0s
    statistics_file: str | None
    config_type_weights: Mapping[str, float]
    keys: LabelKeys
    keep_isolated_atoms: bool
    atomic_numbers: tuple[int, ...] | None
    mean: float | None  # eV per atom; None: measured
    std: float | None  # output scale (eV/Angstrom or eV per atom, by the scaling); None: measured
    avg_num_neighbors: float  # used when compute_avg_num_neighbors is off
    compute_avg_num_neighbors: bool

    @property
    def is_prepared(self) -> bool:
        """Whether all files are HDF5 files of mace_prepare_data."""
        files = (self.train_file, self.valid_file, self.test_file)
        return all(is_hdf5_path(file) for file in files if file is not None)

    def explicit_E0s(self) -> dict[int, float] | None:
        """Energies of isolated atoms (eV) if E0s is a dict literal, None for every other form."""
        return None if self.E0s is None else atomic_energies_literal(self.E0s)


@dataclass(frozen=True, kw_only=True)
class DataPlan:
    """Files to graphs to batches."""

    heads: tuple[HeadPlan, ...]
    seed: int
    r_max: float  # Angstrom
    batch_size: int  # graphs per training step on each rank
    valid_batch_size: int
    num_workers: int
    pin_memory: bool
    multi_processed_test: bool  # every folder in a head's test_dir is a test set
    empty_potential_value: float  # a label of this value means: no label

    @property
    def head_names(self) -> tuple[str, ...]:
        """Names of the heads, in the order of their indices."""
        return tuple(head.name for head in self.heads)

    def indices_name(self, head: HeadPlan) -> str | None:
        """What tells a head's file of validation indices from those of the others; None for a single head."""
        return head.name if len(self.heads) > 1 else None

    @property
    def indices_names(self) -> tuple[str | None, ...]:
        """The ``indices_name`` of every head whose validation set is split off its training data."""
        return tuple(self.indices_name(head) for head in self.heads if head.valid_file is None)
