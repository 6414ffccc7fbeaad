"""What a model takes, and graphs of ASE structures that have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ase
import numpy as np
import torch

from mace.data import AtomicData, Configuration
from mace.data.configuration import DEFAULT_HEAD, describe_origin
from mace.data.labels import CHARGES, ELECTRON, Label
from mace.exceptions import InputError
from mace.tools import AtomicNumberTable


@dataclass(frozen=True, kw_only=True)
class ModelInputs:
    """The facts about a model that decide what it must be given; the same for an eager and a TorchScript one.

    Attributes:
        r_max: cutoff, Angstrom.
        z_table: the elements it knows.
        heads: their names.
        dtype: of its parameters and its inputs.
        takes_electrons: it needs the number of electrons.
        takes_charges: it needs atomic charges.
        has_energy: it gives energies, and forces.
    """

    r_max: float
    z_table: AtomicNumberTable
    heads: tuple[str, ...]
    dtype: torch.dtype
    takes_electrons: bool
    takes_charges: bool
    has_energy: bool

    @classmethod
    def of(cls, model: torch.nn.Module) -> ModelInputs:
        """The facts about ``model``. Raises InputError if it is no model of atoms."""
        if not hasattr(model, "atomic_numbers") or not hasattr(model, "r_max"):
            raise InputError(f"a {type(model).__name__} is not a MACE model: it has no elements or no cutoff")
        return cls(
            r_max=float(model.r_max),
            z_table=AtomicNumberTable([int(z) for z in model.atomic_numbers]),
            heads=tuple(str(head) for head in getattr(model, "heads", None) or (DEFAULT_HEAD,)),
            dtype=next(t.dtype for t in model.parameters() if t.is_floating_point()),
            takes_electrons=any(
                getattr(model, name, False) for name in ("electron_input", "use_global_state")
            ),
            takes_charges="Dipole" in getattr(model, "original_name", type(model).__name__),
            has_energy=hasattr(model, "atomic_energies_fn"),
        )

    def graph(
        self,
        atoms: ase.Atoms,
        *,
        electron_key: str = ELECTRON.key,
        charges_key: str = CHARGES.key,
        head: str | None = None,
        file: str | None = None,
        frame: int | None = None,
    ) -> AtomicData:
        """The graph of a structure, with everything the model takes and no labels.

        Args:
            atoms: the structure.
            electron_key: where ``atoms.info`` has the number of electrons.
            charges_key: where ``atoms.arrays`` has the charges, e.
            head: used where ``atoms.info["head"]`` names none.
            file: where the structure is from, for messages.
            frame: its place in that file.

        Raises:
            InputError: an element or a head that the model does not know, or an input that is missing or no
                finite number.
        """
        origin = describe_origin(file, frame)
        if not np.isfinite(atoms.positions).all() or not np.isfinite(atoms.cell.array).all():
            raise InputError(f"positions or cell of {origin} are not finite")
        electron = _value(atoms, ELECTRON, electron_key, origin) if self.takes_electrons else None
        charges = _value(atoms, CHARGES, charges_key, origin) if self.takes_charges else None
        config = Configuration(
            atomic_numbers=atoms.numbers.copy(),
            positions=atoms.positions.copy(),
            cell=atoms.cell.array.copy(),
            pbc=(bool(atoms.pbc[0]), bool(atoms.pbc[1]), bool(atoms.pbc[2])),
            electron=None if electron is None else float(electron),
            charges=charges,
            head=choose_head(self.heads, atoms.info.get("head", head), origin),
            file=file,
            frame=frame,
        )
        return AtomicData.from_config(
            config, z_table=self.z_table, cutoff=self.r_max, heads=self.heads, dtype=self.dtype
        )


def choose_head(heads: Sequence[str], wanted: str | None, origin: str) -> str:
    """The head that ``wanted`` names; without a name the only one, or the one called default.

    A model with one head uses it for every structure, whatever head its data were labelled for. Raises
    InputError for an unknown name, and for none where there is a choice.
    """
    if len(heads) == 1:
        return heads[0]
    if wanted is None:
        defaults = [head for head in heads if head.lower() == DEFAULT_HEAD.lower()]
        if len(defaults) == 1:
            return defaults[0]
        raise InputError(
            f"{origin} names no head and the model has {list(heads)}: set info['head'], head= or --head"
        )
    require_head(heads, wanted, origin)
    return wanted


def require_head(heads: Sequence[str], wanted: str, origin: str) -> None:
    """Raise InputError unless ``wanted`` is one of the heads."""
    if wanted not in heads:
        raise InputError(f"head {wanted!r} of {origin} is not in this model, which has {list(heads)}")


def _value(atoms: ase.Atoms, label: Label, key: str, origin: str) -> np.ndarray:
    place = atoms.arrays if label.per_atom else atoms.info
    if place.get(key) is None:
        raise InputError(
            f"the model needs the {label.name} value of {origin}, which has no {label.place}[{key!r}] "
            f"({label.meaning}, {label.unit})"
        )
    try:
        return label.parse(place[key], len(atoms))
    except ValueError as error:
        raise InputError(f"{label.name} of {origin} (key {key!r}) {error}") from None
