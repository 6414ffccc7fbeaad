"""Statistics over a data loader against numpy on the whole data, some of it unlabelled."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mace.modules.utils import (
    compute_avg_num_neighbors,
    compute_mean_rms_energy_forces,
    compute_mean_std_atomic_inter_energy,
    compute_rms_dipoles,
    compute_statistics,
)
from tests.tolerances import relative

E0 = np.array([[-1.0, -2.0], [-3.0, -4.0]])
SIZES = [2, 3, 1, 4, 2]
HEADS = [0, 1, 1, 0, 0]
ENERGIES = [-4.0, -9.5, 0.0, -8.2, -3.3]
LABELLED = [1.0, 2.0, 0.0, 1.0, 0.5]  # weights: the third graph has no labels
RNG = np.random.default_rng(4)
ELEMENTS = [RNG.integers(0, 2, size) for size in SIZES]
FORCES = [RNG.normal(size=(size, 3)) * (weight > 0) for size, weight in zip(SIZES, LABELLED, strict=True)]


def loader(cuts: list[int], **changes) -> list[SimpleNamespace]:
    """Batches of graphs [0, cut), [cut, next cut) ... with the attributes of a graph batch."""
    batches = []
    for start, stop in zip([0, *cuts], [*cuts, len(SIZES)], strict=True):
        sizes = torch.tensor(SIZES[start:stop])
        values = {
            "num_graphs": stop - start,
            "batch": torch.repeat_interleave(sizes),
            "ptr": torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)]),
            "node_attrs": torch.eye(2)[np.concatenate(ELEMENTS[start:stop])],
            "edge_index": torch.zeros(
                2, 3 * (stop - start), dtype=torch.long
            ),  # 3 edges a graph, at one atom
            "head": torch.tensor(HEADS[start:stop]),
            "energy": torch.tensor(ENERGIES[start:stop]),
            "forces": torch.tensor(np.concatenate(FORCES[start:stop])),
            "energy_weight": torch.tensor(LABELLED[start:stop]),
            "forces_weight": torch.tensor(LABELLED[start:stop]),
            "dipole": torch.tensor(ENERGIES[start:stop]).unsqueeze(1).expand(-1, 3),
        }
        batches.append(SimpleNamespace(**{**values, **changes}))
    return batches


def per_atom(head: int) -> np.ndarray:
    return np.array(
        [
            (energy - E0[head][elements].sum()) / len(elements)
            for energy, elements, of, weight in zip(ENERGIES, ELEMENTS, HEADS, LABELLED, strict=True)
            if of == head and weight > 0
        ]
    )


def rms(head: int) -> float:
    own = [
        forces
        for forces, of, weight in zip(FORCES, HEADS, LABELLED, strict=True)
        if of == head and weight > 0
    ]
    return float(np.sqrt(np.mean(np.concatenate(own) ** 2)))


def same(ours: np.ndarray, expected: list[float]) -> bool:
    return np.allclose(ours, expected, rtol=relative("statistics", torch.float32), atol=0.0)


@pytest.mark.parametrize("cuts", [[], [2], [1, 2, 3, 4]])
def test_d14_d20_every_labelled_structure_counts_once(cuts: list[int]) -> None:
    mean, std = compute_mean_std_atomic_inter_energy(loader(cuts), E0)
    assert same(mean, [per_atom(head).mean() for head in (0, 1)])
    assert same(std[:1], [np.sqrt(per_atom(0).var() * 3 / (2 + 1e-6))]) and std[1] == 0.0
    neighbours, mean_again, forces = compute_statistics(loader(cuts), E0)
    assert neighbours == compute_avg_num_neighbors(loader(cuts)) == pytest.approx(15 / 12)
    assert same(mean_again, list(mean)) and same(forces, [rms(0), rms(1)])
    pair = compute_mean_rms_energy_forces(loader(cuts), E0)
    assert same(pair[0], list(mean)) and same(pair[1], list(forces))


def test_one_head_needs_no_head_index() -> None:
    mean, _ = compute_mean_std_atomic_inter_energy(loader([], head=None, energy_weight=None), E0[0])
    assert mean.shape == (1,)


def test_no_labels_give_zero() -> None:
    weights = torch.zeros(len(SIZES))
    _, mean, forces = compute_statistics(loader([], energy_weight=weights, forces_weight=weights), E0)
    assert mean.tolist() == [0.0, 0.0] and forces.tolist() == [0.0, 0.0]


def test_rms_of_dipoles() -> None:
    assert compute_rms_dipoles(loader([2])) == pytest.approx(float(np.sqrt(np.mean(np.square(ENERGIES)))))
