"""Batches for tests, built by brute force and without the package's own neighbour list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch


@dataclass
class Structure:
    """Atoms in a box; ``cell`` rows are vectors, zeros for none."""

    numbers: np.ndarray
    positions: np.ndarray
    cell: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))
    pbc: tuple[bool, bool, bool] = (False, False, False)
    head: int = 0
    electron: float | None = None
    charges: np.ndarray | None = None
    volume_cell: np.ndarray | None = None  # the cell that the stress is divided by, if another one


def neighbours(structure: Structure, r_max: float) -> tuple[np.ndarray, np.ndarray]:
    """edge_index [2, n_edges] and unit shifts [n_edges, 3] of all pairs closer than ``r_max``."""
    positions, cell = np.asarray(structure.positions), np.asarray(structure.cell)
    reach = [0, 0, 0]
    if any(structure.pbc):
        full = np.array([cell[k] if structure.pbc[k] else np.eye(3)[k] * 1e3 for k in range(3)])
        heights = 1.0 / np.linalg.norm(np.linalg.inv(full), axis=0)
        spread = np.ptp(positions @ np.linalg.inv(full), axis=0)
        reach = [int(np.ceil(r_max / heights[k] + spread[k])) if structure.pbc[k] else 0 for k in range(3)]
    edges, shifts = [], []
    for shift in product(*(range(-n, n + 1) for n in reach)):
        vectors = positions[None, :, :] + np.array(shift) @ cell - positions[:, None, :]
        near = np.linalg.norm(vectors, axis=-1) < r_max
        if shift == (0, 0, 0):
            np.fill_diagonal(near, False)
        senders, receivers = np.nonzero(near)
        edges.append(np.stack([senders, receivers]))
        shifts.append(np.tile(shift, (len(senders), 1)))
    return np.concatenate(edges, axis=1), np.concatenate(shifts).astype(float)


def batch_of(
    structures: Sequence[Structure],
    atomic_numbers: Sequence[int],
    r_max: float,
    dtype: torch.dtype = torch.float64,
) -> dict[str, torch.Tensor]:
    """The dictionary that models take."""
    table = list(atomic_numbers)
    columns: dict[str, list[Any]] = {
        k: [] for k in ("positions", "node_attrs", "edge_index", "shifts", "unit_shifts", "cell", "batch")
    }
    ptr = [0]
    for index, structure in enumerate(structures):
        edge_index, unit_shifts = neighbours(structure, r_max)
        columns["positions"].append(np.asarray(structure.positions))
        columns["node_attrs"].append(np.eye(len(table))[[table.index(z) for z in structure.numbers]])
        columns["edge_index"].append(edge_index.T + ptr[-1])
        columns["unit_shifts"].append(unit_shifts)
        columns["shifts"].append(unit_shifts @ structure.cell)
        columns["cell"].append(structure.cell if structure.volume_cell is None else structure.volume_cell)
        columns["batch"].append(np.full(len(structure.numbers), index))
        ptr.append(ptr[-1] + len(structure.numbers))
    data = {name: torch.as_tensor(np.concatenate(parts)) for name, parts in columns.items()}
    data["edge_index"] = data["edge_index"].T.contiguous()
    data = {name: value.to(dtype) if value.is_floating_point() else value for name, value in data.items()}
    data["ptr"] = torch.tensor(ptr)
    data["head"] = torch.tensor([structure.head for structure in structures])
    if all(structure.electron is not None for structure in structures):
        data["electron"] = torch.tensor([structure.electron for structure in structures], dtype=dtype)
    if all(structure.charges is not None for structure in structures):
        charges = np.concatenate([structure.charges for structure in structures])
        data["charges"] = torch.as_tensor(charges, dtype=dtype)
    return data
