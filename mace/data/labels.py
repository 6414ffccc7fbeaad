"""The quantities that a data file can hold for a structure: one declaration each.

Reader, graphs, loss, metrics and calculator take name, shape, unit and weight from here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Label:
    """One quantity of a structure.

    Attributes:
        name: attribute of a configuration, key of graphs, batches and model outputs.
        meaning: what it is, with its sign convention.
        unit: in data files and everywhere else.
        key: where files hold it by default, in ``atoms.arrays`` if it is per atom, else in ``atoms.info``.
        flag: the command line option that names another key.
        per_atom: whether every atom has its own value.
        shape: of one value in a graph; (1, 3, 3) and (1, 3) have a dimension to join graphs along.
        shapes: of one value that are accepted in files; empty: ``shape`` alone.
        weight: name of its term weight in a configuration and in graphs, None if it has none. A file may
            set it in ``atoms.info`` under this name with ``config_`` before it.
        ase_property: whether ASE knows the quantity under its name and keeps it in a calculator's results.
    """

    name: str
    meaning: str
    unit: str
    key: str
    flag: str
    per_atom: bool = False
    shape: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    weight: str | None = None
    ase_property: bool = False

    @property
    def place(self) -> str:
        """The part of an ``ase.Atoms`` object that holds it."""
        return "arrays" if self.per_atom else "info"

    def parse(self, value: object, n_atoms: int) -> np.ndarray:
        """Numbers, float64, from what a file has, in one of the accepted shapes, atoms first if per atom.

        Raises:
            ValueError: not numbers, not finite, or another shape; the message begins with "is".
        """
        try:
            numbers = np.array(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"is {value!r}, which is no number") from None
        shapes = [(n_atoms, *shape) if self.per_atom else shape for shape in self.shapes or (self.shape,)]
        if numbers.shape not in shapes:
            if shapes != [()] or numbers.size != 1:
                accepted = " or ".join(map(str, shapes))
                raise ValueError(f"is of shape {numbers.shape}, expected {accepted}")
            numbers = numbers.reshape(())
        if not np.isfinite(numbers).all():
            raise ValueError("is not finite" if numbers.ndim else f"is {numbers}, which is not finite")
        return numbers


_MATRIX_SHAPES = ((6,), (9,), (3, 3))

ENERGY = Label(
    name="energy",
    meaning="total energy",
    unit="eV",
    key="REF_energy",
    flag="--energy_key",
    weight="energy_weight",
    ase_property=True,
)
FORCES = Label(
    name="forces",
    meaning="forces, -dE/d(position)",
    unit="eV/Angstrom",
    key="REF_forces",
    flag="--forces_key",
    per_atom=True,
    shape=(3,),
    weight="forces_weight",
    ase_property=True,
)
STRESS = Label(
    name="stress",
    meaning="stress, +dE/d(strain)/volume",
    unit="eV/Angstrom^3",
    key="REF_stress",
    flag="--stress_key",
    shape=(1, 3, 3),
    shapes=_MATRIX_SHAPES,
    weight="stress_weight",
    ase_property=True,
)
VIRIALS = Label(
    name="virials",
    meaning="virials, -dE/d(strain)",
    unit="eV",
    key="REF_virials",
    flag="--virials_key",
    shape=(1, 3, 3),
    shapes=_MATRIX_SHAPES,
    weight="virials_weight",
)
DIPOLE = Label(
    name="dipole",
    meaning="dipole moment",
    unit="Debye",
    key="REF_dipole",
    flag="--dipole_key",
    shape=(1, 3),
    shapes=((3,),),
)
CHARGES = Label(
    name="charges",
    meaning="fixed atomic charges",
    unit="e",
    key="REF_charges",
    flag="--charges_key",
    per_atom=True,
)
ELECTRON = Label(
    name="electron",
    meaning="number of electrons, or net charge: an input of constant-potential models",
    unit="e",
    key="electron",
    flag="--electron_key",
    weight="electron_weight",
)
POTENTIAL = Label(
    name="potential",
    meaning="Fermi level, dE/d(number of electrons)",
    unit="V",
    key="potential",
    flag="--potential_key",
    weight="potential_weight",
)

LABELS = (ENERGY, FORCES, STRESS, VIRIALS, DIPOLE, CHARGES, ELECTRON, POTENTIAL)
LABELS_BY_NAME = {label.name: label for label in LABELS}
DEFAULT_KEYS = {label.name: label.key for label in LABELS}

SENTINEL_TOLERANCE = 1e-6  # relative: float32 files and printed digits round the sentinel


def is_sentinel(value: float, empty_potential_value: float | None) -> bool:
    """Whether a potential is the number that stands for none; without such a number (None) it never is."""
    if empty_potential_value is None:
        return False
    return bool(np.isclose(value, empty_potential_value, rtol=SENTINEL_TOLERANCE, atol=SENTINEL_TOLERANCE))
