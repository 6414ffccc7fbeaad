"""Which atoms see each other: the directed edges of a structure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matscipy.neighbours import neighbour_list

from mace.exceptions import InputError

MIN_BINS = 100_000  # a search with fewer bins takes no time worth saving
BINS_PER_ATOM = 8
SMALLEST_ANGLE = 1e-6  # radian, between a cell vector and the others


def get_neighborhood(
    positions: np.ndarray,
    cutoff: float,
    pbc: Sequence[bool] | None = None,
    cell: np.ndarray | None = None,
    true_self_interaction: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All pairs of atoms, periodic images included, that are closer than the cutoff.

    The vector of edge e is ``positions[receiver] - positions[sender] + shifts[e]``, its length is smaller
    than the cutoff. Positions are not wrapped and may lie outside the cell. The search itself uses a box
    around the atoms along axes without periodicity, so neither its result nor its cost depends on where the
    atoms are or on what stands in these rows of the cell. No argument is changed.

    Args:
        positions: (n_atoms, 3), Angstrom.
        cutoff: Angstrom.
        pbc: which axes are periodic; none without it.
        cell: (3, 3), Angstrom, one vector a row.
        true_self_interaction: give every atom an edge to itself, not only to its images.

    Returns:
        ``edge_index`` int64 (2, n_edges), senders and receivers, sorted by sender, both directions of every
        pair; ``shifts`` (n_edges, 3), Angstrom, ``unit_shifts @ cell``; ``unit_shifts`` int64 (n_edges, 3),
        numbers of cell vectors; ``cell`` (3, 3), Angstrom: the one given, in which rows of zeros are replaced
        by unit vectors along axes without periodicity, orthogonal to the other rows (the unit matrix if there
        are only such rows). Its determinant is then the volume, and per Angstrom the area of a slab or the
        length of a wire.

    Raises:
        InputError: cutoff <= 0, positions or cell not finite, or periodic along a vector of zero length or in
            a plane.
    """
    positions, periodic = np.asarray(positions, dtype=np.float64), _checked_pbc(pbc)
    cell = np.zeros((3, 3)) if cell is None else np.array(cell, dtype=np.float64).reshape(3, 3)
    if not cutoff > 0:
        raise InputError(f"cutoff {cutoff}: must be larger than 0 Angstrom")
    if not (np.isfinite(positions).all() and np.isfinite(cell).all()):
        raise InputError("positions or cell of a structure are not finite")
    if not _independent(cell[periodic]):
        raise InputError(
            f"pbc {periodic.tolist()}: the cell vectors of these axes span no cell, got {cell.tolist()}"
        )
    senders, receivers, unit_shifts = _search(positions, cutoff, periodic, cell)
    if true_self_interaction:
        senders, receivers, unit_shifts = _with_self_edges(senders, receivers, unit_shifts, len(positions))
    edge_index = np.stack((senders, receivers)).astype(np.int64)
    return edge_index, unit_shifts @ cell, unit_shifts, _completed(cell)


def _checked_pbc(pbc: Sequence[bool] | None) -> np.ndarray:
    """Three booleans."""
    flags = (False, False, False) if pbc is None else tuple(pbc)
    if len(flags) != 3 or not all(isinstance(flag, (bool, np.bool_)) for flag in flags):
        raise InputError(f"pbc must be three booleans, got {pbc!r}")
    return np.array(flags)


def _search(
    positions: np.ndarray, cutoff: float, periodic: np.ndarray, cell: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Senders, receivers and unit shifts; along open axes in a box round the atoms."""
    if len(positions) == 0:
        return np.empty(0, int), np.empty(0, int), np.empty((0, 3), int)
    axes = np.zeros((3, 3))
    axes[~periodic] = _orthogonal_complement(cell[periodic])
    along = positions @ axes.T
    low, high = along.min(axis=0) - cutoff, along.max(axis=0) + cutoff
    box = np.where(periodic[:, None], cell, (high - low)[:, None] * axes)
    radius = _search_radius(abs(np.linalg.det(box)), cutoff, len(positions))
    senders, receivers, unit_shifts = neighbour_list(
        "ijS",
        cutoff=radius,
        positions=positions,
        cell=box,
        pbc=periodic,
        cell_origin=low @ axes,
    )
    if radius > cutoff:
        vectors = positions[receivers] - positions[senders] + unit_shifts @ cell
        near = np.linalg.norm(vectors, axis=1) < cutoff
        senders, receivers, unit_shifts = senders[near], receivers[near], unit_shifts[near]
    return senders, receivers, unit_shifts.astype(np.int64)


def _search_radius(volume: float, cutoff: float, n_atoms: int) -> float:
    """The cutoff, or more where a box is so empty that bins of the cutoff's size would fill the memory."""
    most = max(MIN_BINS, BINS_PER_ATOM * n_atoms)
    return max(cutoff, (volume / most) ** (1 / 3))


def _independent(rows: np.ndarray) -> bool:
    """Whether vectors, one a row, span as many dimensions as there are vectors."""
    gram = rows @ rows.T
    return bool(np.linalg.det(gram) > SMALLEST_ANGLE**2 * np.prod(np.diagonal(gram)))


def _orthogonal_complement(rows: np.ndarray) -> np.ndarray:
    """Orthonormal vectors, one a row, orthogonal to independent ``rows`` (n, 3): (3 - n, 3)."""
    return np.eye(3) if len(rows) == 0 else np.linalg.svd(rows)[2][len(rows) :]


def _completed(cell: np.ndarray) -> np.ndarray:
    """The cell with unit vectors orthogonal to the other rows in place of rows of zeros."""
    missing = ~cell.any(axis=1)
    completed = cell.copy()
    if missing.any() and _independent(cell[~missing]):
        completed[missing] = _orthogonal_complement(cell[~missing])
    return completed


def _with_self_edges(
    senders: np.ndarray, receivers: np.ndarray, unit_shifts: np.ndarray, n_atoms: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The edges and one without a shift from every atom to itself, sorted by sender again."""
    atoms = np.arange(n_atoms)
    senders = np.concatenate((senders, atoms))
    order = np.argsort(senders, kind="stable")
    unit_shifts = np.concatenate((unit_shifts, np.zeros((n_atoms, 3), unit_shifts.dtype)))
    return senders[order], np.concatenate((receivers, atoms))[order], unit_shifts[order]
