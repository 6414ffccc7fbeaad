"""Configurations that stay in their files: a sequence that reads one when it is asked for it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from .configuration import Configuration
from .hdf5_files import HDF5File, open_files, outlines_of
from .hdf5_layout import ARRAYS, SCALARS, TERM_WEIGHTS, hollow, hollow_positions

_NUMBERS = (*(label.name for label in SCALARS), "weight", *TERM_WEIGHTS)


@dataclass(frozen=True)
class _Columns:
    """What is known about every configuration without its arrays."""

    elements: list[np.ndarray]  # uint8 (n_atoms,)
    names: list[tuple[str, str, str]]  # config type, head, file
    frames: np.ndarray  # place in the file
    numbers: np.ndarray  # (n, len(_NUMBERS)), NaN for labels that are missing
    arrays: np.ndarray  # (n, len(ARRAYS)) bool: whether the label is there

    @classmethod
    def of(cls, configurations: Iterable[Configuration]) -> _Columns:
        elements: list[np.ndarray] = []
        names: list[tuple[str, str, str]] = []
        frames, numbers, arrays = [], [], []
        shared: dict[Any, Any] = {}  # compositions and names repeat: each is kept once
        for config in configurations:
            compact = config.atomic_numbers.astype(np.uint8)
            elements.append(shared.setdefault(compact.tobytes(), compact))
            described = (config.config_type, config.head, str(config.file))
            names.append(shared.setdefault(described, described))
            frames.append(config.frame)
            values = [getattr(config, name) for name in _NUMBERS]
            numbers.append(np.array([np.nan if value is None else value for value in values]))
            arrays.append(np.array([getattr(config, label.name) is not None for label in ARRAYS]))
        return cls(elements, names, np.array(frames), np.stack(numbers), np.stack(arrays))

    def outline(self, index: int) -> Configuration:
        elements = self.elements[index].astype(np.int64)
        config_type, head, file = self.names[index]
        fields: dict[str, Any] = dict(zip(_NUMBERS, self.numbers[index].tolist(), strict=True))
        for label in SCALARS:
            if math.isnan(fields[label.name]):
                fields[label.name] = None
        for label, is_there in zip(ARRAYS, self.arrays[index].tolist(), strict=True):
            fields[label.name] = hollow(label, len(elements)) if is_there else None
        return Configuration(
            atomic_numbers=elements,
            positions=hollow_positions(len(elements)),
            config_type=config_type,
            head=head,
            file=file,
            frame=int(self.frames[index]),
            **fields,
        )

    def digest(self) -> str:
        """Of everything in the columns but the names of the files."""
        digest = hashlib.blake2b(self.frames.tobytes() + self.numbers.tobytes() + self.arrays.tobytes())
        for elements, names in zip(self.elements, self.names, strict=True):
            digest.update(elements.tobytes() + repr(names[:2]).encode())
        return digest.hexdigest()


class _Selection(Sequence[Configuration]):
    """Configurations by their numbers in a larger set."""

    def __init__(self, indices: Sequence[int] | np.ndarray) -> None:
        self._indices = np.asarray(indices, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._indices)

    def _get(self, index: int) -> Configuration:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> Configuration: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Configuration]: ...
    def __getitem__(self, index: int | slice) -> Configuration | Sequence[Configuration]:
        if isinstance(index, slice):
            return [self._get(number) for number in self._indices[index].tolist()]
        return self._get(int(self._indices[index]))

    def __iter__(self) -> Iterator[Configuration]:
        return map(self._get, self._indices.tolist())


class Outlines(_Selection):
    """Configurations without their arrays, kept in columns of some hundred bytes each.

    Atomic numbers, single-number labels, weights, names and origin are the true ones. Positions, and array
    labels where there are any, are NaN of the right shape; cell and pbc are None. Whoever counts, groups or
    checks labels needs no more.
    """

    def __init__(self, columns: _Columns, head: str | None, indices: Sequence[int] | np.ndarray) -> None:
        super().__init__(indices)
        self._columns, self._head = columns, head

    def _get(self, index: int) -> Configuration:
        return _with_head(self._columns.outline(index), self._head)


class StoredConfigurations(_Selection):
    """The configurations of HDF5 files, each read when it is asked for, in any process.

    ``outlines`` holds what is known about all of them without reading again.
    """

    def __init__(
        self,
        files: Sequence[HDF5File],
        columns: _Columns,
        head: str | None,
        indices: Sequence[int] | np.ndarray,
    ) -> None:
        super().__init__(indices)
        self._files, self._columns, self._head = files, columns, head
        self._ends = np.cumsum([len(file) for file in files])

    @classmethod
    def open(cls, paths: Sequence[str | Path], head: str | None = None) -> StoredConfigurations:
        """All configurations of some files, in the order of the files, after one pass over their labels.

        Args:
            paths: HDF5 files.
            head: of every configuration; without it the one that is stored.

        Raises:
            InputError: a file, or one of the labels in it, cannot be used.
        """
        files = open_files(paths)
        return cls(files, _Columns.of(outlines_of(files)), head, range(sum(map(len, files))))

    @property
    def outlines(self) -> Outlines:
        """The same configurations without their arrays."""
        return Outlines(self._columns, self._head, self._indices)

    def take(self, indices: Sequence[int]) -> StoredConfigurations:
        """Some of them, by their places in this sequence."""
        return StoredConfigurations(self._files, self._columns, self._head, self._indices[list(indices)])

    def with_head(self, head: str) -> StoredConfigurations:
        """The same configurations, all of one head."""
        return StoredConfigurations(self._files, self._columns, head, self._indices)

    def digest(self) -> str:
        """Of labels, weights and elements: equal files have equal ones."""
        return self._columns.digest()

    def _get(self, index: int) -> Configuration:
        number = int(np.searchsorted(self._ends, index, side="right"))
        within = index - (int(self._ends[number - 1]) if number else 0)
        return _with_head(self._files[number][within], self._head)


def outlines(configurations: Sequence[Configuration]) -> Sequence[Configuration]:
    """Configurations to look at labels with: outlines of those in files, the others themselves."""
    return configurations.outlines if isinstance(configurations, StoredConfigurations) else configurations


def select(configurations: Sequence[Configuration], indices: Sequence[int]) -> Sequence[Configuration]:
    """Some of the configurations, by their places."""
    if isinstance(configurations, StoredConfigurations):
        return configurations.take(indices)
    return [configurations[index] for index in indices]


def _with_head(configuration: Configuration, head: str | None) -> Configuration:
    if head is not None:
        configuration.head = head
    return configuration
