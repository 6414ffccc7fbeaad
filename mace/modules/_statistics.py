"""Statistics of the labelled structures that a model is built from: neighbours, energies, forces.

Every function makes one whole pass over a data loader and sums in float64. Labels of weight zero are
missing ones (they are stored as zeros) and do not count. Where a head has no label at all the result is
0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mace.tools.scatter import scatter_sum

Loader = Iterable[
    Any
]  # of batches with the attributes of a graph batch (edge_index, batch, node_attrs, energy ...)


def _has_label(batch: Any, weight_name: str) -> Tensor:
    """[n_graphs] bool: the weight of the label is not zero (all True where batches carry no such weight)."""
    weight = getattr(batch, weight_name, None)
    if weight is None:
        return torch.ones(batch.num_graphs, dtype=torch.bool, device=batch.batch.device)
    return weight.view(-1) != 0.0


def _heads(batch: Any) -> Tensor:
    """[n_graphs] int64: index of each graph's head, 0 where batches carry none."""
    head = getattr(batch, "head", None)
    if head is None:
        return torch.zeros(batch.num_graphs, dtype=torch.long, device=batch.batch.device)
    return head.view(-1)


def _per_atom_interaction_energies(batch: Any, atomic_energies: Tensor) -> Tensor:
    """(E - sum of E0) / n_atoms, [n_graphs], float64, eV."""
    node_heads = _heads(batch)[batch.batch]
    node_e0 = (batch.node_attrs.double() @ atomic_energies.T).gather(1, node_heads.unsqueeze(-1)).squeeze(-1)
    graph_e0 = scatter_sum(node_e0, batch.batch, 0, None, batch.num_graphs)
    return (batch.energy.double() - graph_e0) / (batch.ptr[1:] - batch.ptr[:-1])


@dataclass
class _Collected:
    """What one pass over the data yields."""

    num_atoms: int = 0
    num_edges: int = 0
    heads: list[np.ndarray] = field(default_factory=list)  # of the graphs with an energy
    energies: list[np.ndarray] = field(default_factory=list)  # per atom, of the same graphs
    force_squares: np.ndarray = field(default_factory=lambda: np.zeros(0))  # sums by head
    force_counts: np.ndarray = field(default_factory=lambda: np.zeros(0))
    num_heads: int = 1

    def add_neighbors(self, batch: Any) -> None:
        self.num_atoms += batch.node_attrs.shape[0]
        self.num_edges += batch.edge_index.shape[1]

    def add_energies(self, batch: Any, atomic_energies: Tensor) -> None:
        heads = _heads(batch)
        self.num_heads = max(self.num_heads, int(heads.max()) + 1)
        labelled = _has_label(batch, "energy_weight")
        per_atom = _per_atom_interaction_energies(batch, atomic_energies.to(batch.node_attrs.device))
        self.heads.append(heads[labelled].cpu().numpy())
        self.energies.append(per_atom[labelled].cpu().numpy())

    def add_forces(self, batch: Any) -> None:
        labelled = _has_label(batch, "forces_weight")[batch.batch]
        heads = _heads(batch)[batch.batch][labelled].cpu().numpy()
        squares = batch.forces[labelled].double().square().sum(dim=-1).cpu().numpy()
        size = max(self.num_heads, len(self.force_squares))
        self.force_squares = np.pad(self.force_squares, (0, size - len(self.force_squares)))
        self.force_counts = np.pad(self.force_counts, (0, size - len(self.force_counts)))
        self.force_squares += np.bincount(heads, weights=squares, minlength=size)
        self.force_counts += 3 * np.bincount(heads, minlength=size)

    def avg_num_neighbors(self) -> float:
        return self.num_edges / max(self.num_atoms, 1)

    def mean_and_std(self) -> tuple[np.ndarray, np.ndarray]:
        heads, energies = np.concatenate(self.heads), np.concatenate(self.energies)
        mean, std = np.zeros(self.num_heads), np.zeros(self.num_heads)
        for head in range(self.num_heads):
            own = energies[heads == head]
            if own.size:
                mean[head] = own.mean()
                std[head] = np.sqrt(np.square(own - mean[head]).sum() / (max(own.size - 1, 1) + 1e-6))
        return mean, std

    def rms_forces(self) -> np.ndarray:
        return np.sqrt(self.force_squares / np.maximum(self.force_counts, 1))


def _energies_by_head(atomic_energies: np.ndarray | Tensor) -> Tensor:
    return torch.atleast_2d(torch.as_tensor(np.asarray(atomic_energies), dtype=torch.float64))


def compute_avg_num_neighbors(data_loader: Loader) -> float:
    """Number of edges per atom; atoms without neighbours count."""
    collected = _Collected()
    for batch in data_loader:
        collected.add_neighbors(batch)
    return collected.avg_num_neighbors()


def compute_mean_std_atomic_inter_energy(
    data_loader: Loader, atomic_energies: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over structures of (E - sum of E0)/n_atoms, eV, both [n_heads].

    Args:
        data_loader: batches with energies.
        atomic_energies: E0, [n_elements] or [n_heads, n_elements], eV.
    """
    collected = _Collected()
    for batch in data_loader:
        collected.add_energies(batch, _energies_by_head(atomic_energies))
    return collected.mean_and_std()


def compute_mean_rms_energy_forces(
    data_loader: Loader, atomic_energies: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean energy and size of the forces, both [n_heads].

    The mean over structures of (E - sum of E0)/n_atoms, eV, and the root mean square over the components
    of the forces, eV/A. Arguments as `compute_mean_std_atomic_inter_energy`.
    """
    _, mean, rms = compute_statistics(data_loader, atomic_energies)
    return mean, rms


def compute_statistics(
    data_loader: Loader, atomic_energies: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """(average number of neighbours, mean energy, rms of the forces) in one pass; see the functions above."""
    collected = _Collected()
    for batch in data_loader:
        collected.add_neighbors(batch)
        collected.add_energies(batch, _energies_by_head(atomic_energies))
        collected.add_forces(batch)
    return collected.avg_num_neighbors(), collected.mean_and_std()[0], collected.rms_forces()


def compute_rms_dipoles(data_loader: Loader) -> float:
    """Root mean square over structures and components of the dipole moment, Debye."""
    squares, count = 0.0, 0
    for batch in data_loader:
        squares += float(batch.dipole.double().square().sum())
        count += batch.dipole.numel()
    return float(np.sqrt(squares / max(count, 1)))
