"""How a configuration lies in an HDF5 file: one group, one dataset a field.

Written is upstream's layout and the fields it lacks: electron number, Fermi level and their weights. Read
are also upstream's own files, in which a missing label is zeros of weight 0, and those of mace-torch 0.3.16,
which keep labels and their weights in the groups ``properties`` and ``property_weights``.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from mace.exceptions import InputError

from .configuration import DEFAULT_CONFIG_TYPE, DEFAULT_HEAD, Configuration, describe_origin
from .labels import LABELS, Label

MISSING = "None"
LAST_ELEMENT = 118
TERM_WEIGHTS = tuple(label.weight for label in LABELS if label.weight is not None)
SCALARS = tuple(label for label in LABELS if label.shape == () and not label.per_atom)
ARRAYS = tuple(label for label in LABELS if label not in SCALARS)

_FIELDS = (
    "atomic_numbers",
    "positions",
    "cell",
    "pbc",
    *(label.name for label in LABELS),
    "weight",
    *TERM_WEIGHTS,
    "config_type",
    "head",
)


def write_value(value: Any) -> Any:
    """What stands in a file for a value: the text "None" for None."""
    return MISSING if value is None else value


def unpack_value(value: Any) -> Any:
    """A value of a file as it was: text for bytes, None for the text "None"."""
    text = value.decode("utf-8") if isinstance(value, bytes) else value
    return None if isinstance(text, str) and text == MISSING else text


def write_configuration(group: h5py.Group, configuration: Configuration) -> None:
    """Write every field but the origin."""
    for field in _FIELDS:
        group[field] = write_value(getattr(configuration, field))


class StoredFrame:
    """One group of a file, read field by field.

    Args:
        group: it holds one configuration.
        own: whether a label of zeros and weight 0 is what it says; in upstream's files it is a missing one.
        file: for messages.
        frame: for messages, too.
    """

    def __init__(self, group: h5py.Group, *, own: bool, file: str, frame: int) -> None:
        self._group, self._own, self._file, self._frame = group.id, own, file, frame
        self._labels = _inner(self._group, b"properties")
        self._weights = _inner(self._group, b"property_weights")
        self._origin = describe_origin(file, frame)

    def configuration(self) -> Configuration:
        """All of it. Raises InputError for what is not there, not finite or of the wrong shape."""
        numbers = self.atomic_numbers()
        labels = {label: self._parsed(label, len(numbers)) for label in LABELS}
        return self._made(numbers, labels, **self._geometry(len(numbers)))

    def outline(self) -> Configuration:
        """Without arrays: positions and labels that are no single number are NaN, in views without memory.

        Raises InputError as :meth:`configuration` does, for what it reads.
        """
        numbers = self.atomic_numbers()
        labels: dict[Label, Any] = {label: self._parsed(label, len(numbers)) for label in SCALARS}
        for label in ARRAYS:
            labels[label] = hollow(label, len(numbers)) if self._has(label) else None
        return self._made(numbers, labels, positions=hollow_positions(len(numbers)))

    def atomic_numbers(self) -> np.ndarray:
        """(n,) int64."""
        numbers = np.asarray(self._required("atomic_numbers"))
        known = (numbers > 0) & (numbers <= LAST_ELEMENT)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not known.all():
            raise InputError(
                f"atomic_numbers of {self._origin} are no list of atomic numbers: prepare it again"
            )
        return numbers.astype(np.int64)

    def _made(self, numbers: np.ndarray, labels: dict[Label, Any], **geometry: Any) -> Configuration:
        weights: dict[str, Any] = {
            label.weight: 0.0 if value is None else self._weight(label)
            for label, value in labels.items()
            if label.weight is not None
        }
        weight = self._value(self._group, "weight")
        config_type = self._value(self._group, "config_type")
        # mace-torch 0.3.16 keeps the head among the labels.
        head = self._value(self._group, "head") or self._value(self._labels, "head")
        return Configuration(
            atomic_numbers=numbers,
            weight=1.0 if weight is None else float(weight),
            config_type=config_type or DEFAULT_CONFIG_TYPE,
            head=head or DEFAULT_HEAD,
            file=self._file,
            frame=self._frame,
            **geometry,
            **{label.name: value for label, value in labels.items()},
            **weights,
        )

    def _geometry(self, n_atoms: int) -> dict[str, Any]:
        cell, pbc = self._value(self._group, "cell"), self._value(self._group, "pbc")
        geometry = {"positions": np.asarray(self._required("positions"), dtype=np.float64)}
        if cell is not None:
            geometry["cell"] = np.asarray(cell, dtype=np.float64)
        for name, shape in (("positions", (n_atoms, 3)), ("cell", (3, 3))):
            value = geometry.get(name)
            if value is not None and (value.shape != shape or not np.isfinite(value).all()):
                raise InputError(f"the {name} of {self._origin} are not finite or not of shape {shape}")
        return {**geometry, "pbc": None if pbc is None else tuple(bool(periodic) for periodic in pbc)}

    def _required(self, name: str) -> Any:
        value = self._value(self._group, name)
        if value is None:
            raise InputError(
                f"{self._origin} has no {name}: this is no file of mace_prepare_data, or it is damaged"
            )
        return value

    @staticmethod
    def _value(group: h5py.h5g.GroupID, name: str) -> Any:
        return _read(_open(group, name))

    def _has(self, label: Label) -> bool:
        """Whether there is a label; reads it only where its numbers have to tell."""
        dataset = _open(self._labels, label.name)
        if dataset is None or dataset.dtype.kind not in "fiu":  # texts are None
            return False
        return self._own or not self._stands_for_nothing(label, _read(dataset))

    def _parsed(self, label: Label, n_atoms: int) -> float | np.ndarray | None:
        value = self._value(self._labels, label.name)
        if value is None or (not self._own and self._stands_for_nothing(label, value)):
            return None
        try:
            numbers = label.parse(value, n_atoms)
        except ValueError as error:
            raise InputError(f"{label.name} of {self._origin} {error}") from None
        return numbers.item() if numbers.ndim == 0 else numbers

    def _stands_for_nothing(self, label: Label, value: Any) -> bool:
        """Zeros of weight 0. Dipoles and charges may have no weight: zeros are what upstream fills in."""
        return not np.any(value) and self._weight(label, without=0.0) == 0.0

    def _weight(self, label: Label, without: float = 1.0) -> float:
        """The term weight of a label that is there."""
        separate = self._weights is not self._group
        name = label.name if separate else label.weight
        value = None if name is None else self._value(self._weights, name)
        return without if value is None else float(value)


# h5py's low-level calls: for the twenty small datasets of a configuration its objects cost twice as much.


def _inner(group: h5py.h5g.GroupID, name: bytes) -> h5py.h5g.GroupID:
    """The group of that name in a group, the group itself if there is none."""
    return h5py.h5g.open(group, name) if name in group else group


def _open(group: h5py.h5g.GroupID, name: str) -> h5py.h5d.DatasetID | None:
    encoded = name.encode()
    return h5py.h5d.open(group, encoded) if encoded in group else None


def _read(dataset: h5py.h5d.DatasetID | None) -> Any:
    """The value of a dataset; None if there is none, or where it says so."""
    if dataset is None:
        return None
    values = np.empty(dataset.shape, dtype=dataset.dtype)
    dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
    return unpack_value(values[()])


def hollow_positions(n_atoms: int) -> np.ndarray:
    """(n_atoms, 3) of NaN, read-only, one number in memory."""
    return np.broadcast_to(np.nan, (n_atoms, 3))


def hollow(label: Label, n_atoms: int) -> np.ndarray:
    """NaN in the shape of a label, read-only, one number in memory."""
    return np.broadcast_to(np.nan, (n_atoms, *label.shape) if label.per_atom else label.shape)
