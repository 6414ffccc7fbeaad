"""One look at every frame: is it there twice, are atoms on top of each other, are forces exactly zero."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mace.data import Configuration
from mace.data.neighborhood import get_neighborhood
from mace.exceptions import InputError

TOO_CLOSE = 0.3  # Angstrom; the shortest bond there is has 0.74
_DIGITS = 6  # of Angstrom and of electrons, by which frames are told apart


@dataclass(frozen=True, kw_only=True)
class FrameFacts:
    """What is known about one frame."""

    origin: str
    file: str | None
    frame: int | None
    digest: bytes  # of elements, positions, cell, periodicity, number of electrons
    close_pairs: int
    atoms_without_force: tuple[int, ...]  # with forces of exactly zero, where others have some
    refusal: str | None  # why no neighbour list can be made


def facts_of(configurations: Iterable[Configuration]) -> list[FrameFacts]:
    """Read every configuration once."""
    return [_facts(configuration) for configuration in configurations]


def _facts(configuration: Configuration) -> FrameFacts:
    pairs, refusal = 0, None
    try:
        edges, *_ = get_neighborhood(
            configuration.positions, TOO_CLOSE, pbc=configuration.pbc, cell=configuration.cell
        )
        pairs = edges.shape[1] // 2
    except InputError as problem:
        refusal = str(problem)
    return FrameFacts(
        origin=configuration.origin,
        file=configuration.file,
        frame=configuration.frame,
        digest=_digest(configuration),
        close_pairs=pairs,
        atoms_without_force=_without_force(configuration),
        refusal=refusal,
    )


def _digest(configuration: Configuration) -> bytes:
    numbers = [configuration.positions, configuration.cell, configuration.electron]
    digest = hashlib.blake2b(configuration.atomic_numbers.astype(np.int64).tobytes())
    digest.update(repr(configuration.pbc).encode())
    for value in numbers:
        if value is not None:
            digest.update((np.round(np.asarray(value, dtype=np.float64), _DIGITS) + 0.0).tobytes())  # no -0.0
    return digest.digest()


def _without_force(configuration: Configuration) -> tuple[int, ...]:
    """Atoms whose forces are zero to the bit, unless all of the frame's are (or it has none)."""
    if configuration.forces is None:
        return ()
    zero = (configuration.forces == 0.0).all(axis=1)
    return () if zero.all() else tuple(np.flatnonzero(zero).tolist())
