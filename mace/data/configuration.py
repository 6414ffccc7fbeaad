"""Structures with their labels, in numpy: what comes out of data files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ase
import numpy as np
from ase.calculators.singlepoint import SinglePointCalculator

from mace.exceptions import InputError

from .labels import (
    CHARGES,
    DIPOLE,
    ELECTRON,
    ENERGY,
    FORCES,
    LABELS,
    POTENTIAL,
    STRESS,
    VIRIALS,
    Label,
    is_sentinel,
)

Vector = np.ndarray  # (3,)
Positions = np.ndarray  # (n_atoms, 3), Angstrom
Forces = np.ndarray  # (n_atoms, 3), eV/Angstrom
Stress = np.ndarray  # (6,), (9,) or (3, 3), eV/Angstrom^3
Virials = np.ndarray  # (6,), (9,) or (3, 3), eV
Charges = np.ndarray  # (n_atoms,), e
Cell = np.ndarray  # (3, 3), Angstrom, one vector a row
Pbc = tuple[bool, bool, bool]

DEFAULT_CONFIG_TYPE = "Default"
DEFAULT_CONFIG_TYPE_WEIGHTS = {DEFAULT_CONFIG_TYPE: 1.0}
DEFAULT_HEAD = "Default"


@dataclass
class Configuration:
    """A structure with its labels; a label that is missing is None and has weight 0. Units as in ``labels``.

    Attributes:
        atomic_numbers: (n_atoms,).
        positions: (n_atoms, 3), Angstrom, not wrapped.
        cell: (3, 3), Angstrom, one vector a row.
        pbc: which of the cell vectors are periodic.
        weight: of the structure in the loss; the ``..._weight`` of one term come on top of it.
        config_type: a name for structures of one kind.
        head: the head of the model that learns from it.
        file: where it was read from, None if from no file.
        frame: its place in that file, from 0.
    """

    atomic_numbers: np.ndarray
    positions: Positions
    energy: float | None = None
    potential: float | None = None
    electron: float | None = None
    forces: Forces | None = None
    stress: Stress | None = None
    virials: Virials | None = None
    dipole: Vector | None = None
    charges: Charges | None = None
    cell: Cell | None = None
    pbc: Pbc | None = None
    weight: float = 1.0
    energy_weight: float = 1.0
    forces_weight: float = 1.0
    stress_weight: float = 1.0
    virials_weight: float = 1.0
    potential_weight: float = 1.0
    electron_weight: float = 1.0
    config_type: str = DEFAULT_CONFIG_TYPE
    head: str = DEFAULT_HEAD
    file: str | None = None
    frame: int | None = None

    @property
    def origin(self) -> str:
        """Where it comes from, for messages: "frame 3 of 'train.xyz'"."""
        return describe_origin(self.file, self.frame)

    def has(self, label: Label, empty_potential_value: float | None = None) -> bool:
        """Whether it has that label. A potential that is the sentinel ``empty_potential_value`` is none."""
        value = getattr(self, label.name)
        return value is not None and not (label is POTENTIAL and is_sentinel(value, empty_potential_value))


Configurations = list[Configuration]


def describe_origin(file: str | None, frame: int | None) -> str:
    """Where a structure comes from, for messages."""
    return "a structure" if file is None else f"frame {frame} of {file!r}"


def config_from_atoms(
    atoms: ase.Atoms,
    energy_key: str = ENERGY.key,
    forces_key: str = FORCES.key,
    stress_key: str = STRESS.key,
    virials_key: str = VIRIALS.key,
    dipole_key: str = DIPOLE.key,
    charges_key: str = CHARGES.key,
    head_key: str = "head",
    config_type_weights: Mapping[str, float] | None = None,
    electron_key: str = ELECTRON.key,
    potential_key: str = POTENTIAL.key,
) -> Configuration:
    """A configuration from an ASE structure.

    A label is looked for under its key in ``atoms.info`` or ``atoms.arrays``, and before that in the results
    of a single-point calculator, where ASE's readers put what a file calls ``energy``, ``forces``, ``stress``
    ... Those are taken as they are: constraints of the structure don't touch them.

    Args:
        atoms: the structure.
        energy_key: where the total energy is, eV.
        forces_key: where the forces are, eV/Angstrom.
        stress_key: where the stress is, eV/Angstrom^3.
        virials_key: where the virials are, eV.
        dipole_key: where the dipole moment is, Debye.
        charges_key: where the atomic charges are, e.
        head_key: where ``atoms.info`` names the head.
        config_type_weights: factor on the weight by ``atoms.info["config_type"]``; 1 for types that it lacks.
        electron_key: where the number of electrons is, e.
        potential_key: where the Fermi level is, V.

    Raises:
        InputError: positions, cell, a label or a weight are no finite numbers or have the wrong shape.
    """
    keys = {
        "energy": energy_key,
        "forces": forces_key,
        "stress": stress_key,
        "virials": virials_key,
        "dipole": dipole_key,
        "charges": charges_key,
        "electron": electron_key,
        "potential": potential_key,
    }
    return configuration_from_atoms(atoms, keys, head_key, config_type_weights)


def config_from_atoms_list(
    atoms_list: Iterable[ase.Atoms],
    energy_key: str = ENERGY.key,
    forces_key: str = FORCES.key,
    stress_key: str = STRESS.key,
    virials_key: str = VIRIALS.key,
    dipole_key: str = DIPOLE.key,
    charges_key: str = CHARGES.key,
    head_key: str = "head",
    config_type_weights: Mapping[str, float] | None = None,
    electron_key: str = ELECTRON.key,
    potential_key: str = POTENTIAL.key,
) -> Configurations:
    """A configuration from every structure: see :func:`config_from_atoms`."""
    arguments = (energy_key, forces_key, stress_key, virials_key, dipole_key, charges_key, head_key)
    more = (config_type_weights, electron_key, potential_key)
    return [config_from_atoms(atoms, *arguments, *more) for atoms in atoms_list]


def configuration_from_atoms(
    atoms: ase.Atoms,
    keys: Mapping[str, str],
    head_key: str = "head",
    config_type_weights: Mapping[str, float] | None = None,
    file: str | None = None,
    frame: int | None = None,
) -> Configuration:
    """As :func:`config_from_atoms`, with the keys by label name and the place in a file for messages."""
    origin = describe_origin(file, frame)
    _require_finite(atoms.positions, "positions", origin)
    _require_finite(atoms.cell.array, "cell", origin)
    fields: dict[str, Any] = {}
    for label in LABELS:
        fields[label.name] = _label_value(atoms, label, keys[label.name], origin)
        if label.weight is not None:
            given = _weight(atoms.info, f"config_{label.weight}", origin)
            fields[label.weight] = 0.0 if fields[label.name] is None else given
    config_type = str(atoms.info.get("config_type", DEFAULT_CONFIG_TYPE))
    type_weight = (config_type_weights or DEFAULT_CONFIG_TYPE_WEIGHTS).get(config_type, 1.0)
    return Configuration(
        atomic_numbers=atoms.numbers.copy(),
        positions=atoms.positions.copy(),
        cell=atoms.cell.array.copy(),
        pbc=(bool(atoms.pbc[0]), bool(atoms.pbc[1]), bool(atoms.pbc[2])),
        weight=_weight(atoms.info, "config_weight", origin) * type_weight,
        config_type=config_type,
        head=str(atoms.info.get(head_key, DEFAULT_HEAD)),
        file=file,
        frame=frame,
        **fields,
    )


def stored_value(atoms: ase.Atoms, label: Label, key: str) -> Any:
    """What the structure holds for a label under ``key``, None if nothing."""
    if isinstance(atoms.calc, SinglePointCalculator) and key in atoms.calc.results:
        return atoms.calc.results[key]
    return getattr(atoms, label.place).get(key)


def _label_value(atoms: ase.Atoms, label: Label, key: str, origin: str) -> float | np.ndarray | None:
    value = stored_value(atoms, label, key)
    if value is None:
        return None
    try:
        numbers = label.parse(value, len(atoms))
    except ValueError as error:
        raise InputError(f"{label.name} of {origin} (key {key!r}) {error}") from None
    return numbers.item() if numbers.ndim == 0 else numbers


def _weight(info: Mapping[str, Any], key: str, origin: str) -> float:
    """The weight ``info[key]``, 1 if there is none."""
    try:
        value = float(info.get(key, 1.0))
    except (TypeError, ValueError):
        raise InputError(f"{key} of {origin} is {info[key]!r}, which is no number") from None
    if not np.isfinite(value):
        raise InputError(f"{key} of {origin} is {value}, which is not finite")
    if value < 0:
        raise InputError(
            f"{key} of {origin} is {value}: it must be 0 or greater; 0 leaves out what it weighs"
        )
    return value


def _require_finite(values: np.ndarray, name: str, origin: str) -> None:
    if not np.isfinite(values).all():
        raise InputError(f"the {name} of {origin} are not finite: remove the frame or repair it")
