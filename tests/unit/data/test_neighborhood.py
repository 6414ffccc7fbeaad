import itertools
import time
import tracemalloc

import numpy as np
import pytest
from data.reference.load import neighbours

from mace.data import get_neighborhood
from mace.exceptions import InputError

MOLECULE = np.array([[0.0, 0.0, 0.0], [0.96, 0.0, 0.0], [-0.24, 0.93, 0.0], [2.1, 1.7, -0.8]])


def edges(edge_index, unit_shifts):
    """The edges as a sorted list of (sender, receiver, S1, S2, S3)."""
    return sorted(zip(*edge_index.tolist(), *unit_shifts.T.tolist(), strict=True))


def brute_force(positions, cutoff, pbc, cell, reach=4):
    """All edges by trying every pair and every image."""
    found = []
    for shift in itertools.product(*[range(-reach, reach + 1) if periodic else [0] for periodic in pbc]):
        vectors = positions[None, :] - positions[:, None] + np.array(shift) @ cell
        near = np.linalg.norm(vectors, axis=-1) < cutoff
        if not any(shift):
            np.fill_diagonal(near, False)
        found += [(i, j, *shift) for i, j in np.argwhere(near).tolist()]
    return sorted(found)


@pytest.mark.parametrize("case", neighbours(), ids=lambda case: case["label"])
def test_reference_lists(case):
    pbc = tuple(bool(periodic) for periodic in case["pbc"])
    edge_index, shifts, unit_shifts, _ = get_neighborhood(
        case["positions"], float(case["cutoff"]), pbc, case["cell"]
    )
    assert edges(edge_index, unit_shifts) == edges(case["edge_index"], case["unit_shifts"])
    np.testing.assert_array_equal(shifts, unit_shifts @ case["cell"])
    assert (np.diff(edge_index[0]) >= 0).all()


@pytest.mark.parametrize("pbc", list(itertools.product([True, False], repeat=3)))
def test_skewed_left_handed_and_small_cells_with_atoms_outside(pbc):
    random = np.random.default_rng(sum(2**k for k in range(3) if pbc[k]))
    for cell in (
        np.array([[3.0, 0.1, 0.0], [1.4, 3.2, 0.3], [-0.5, 0.9, 2.9]]),
        np.array([[3.0, 0.1, 0.0], [0.2, 0.0, 3.2], [0.0, 2.9, 0.4]]),
    ):
        positions = random.uniform(-9, 9, (6, 3))
        edge_index, shifts, unit_shifts, returned = get_neighborhood(positions, 4.0, pbc, cell)
        assert edges(edge_index, unit_shifts) == brute_force(positions, 4.0, pbc, cell, reach=8)
        vectors = positions[edge_index[1]] - positions[edge_index[0]] + shifts
        assert (np.linalg.norm(vectors, axis=1) < 4.0).all()
        np.testing.assert_array_equal(returned, cell)


def test_f7_arguments_are_left_alone_and_a_slab_keeps_its_cell():
    positions, cell = MOLECULE.copy(), np.diag([8.0, 8.0, 20.0])
    cell[2, 0] = 1.0  # tilted
    before = cell.copy()
    *_, returned = get_neighborhood(positions, 4.0, (True, True, False), cell)
    np.testing.assert_array_equal(cell, before)
    np.testing.assert_array_equal(returned, before)
    assert returned is not cell
    np.testing.assert_array_equal(positions, MOLECULE)


@pytest.mark.parametrize("place", [0.0, 1000.0, 5000.0, 1e6])
def test_f7_neither_neighbours_nor_cost_depend_on_the_place(place):
    tracemalloc.start()
    began = time.perf_counter()
    edge_index, _, _, cell = get_neighborhood(MOLECULE + place, 4.0, (False,) * 3, np.zeros((3, 3)))
    seconds = time.perf_counter() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert edge_index.tolist() == get_neighborhood(MOLECULE, 4.0)[0].tolist()
    np.testing.assert_array_equal(cell, np.eye(3))
    assert seconds < 1.0
    assert peak < 2**20


@pytest.mark.parametrize("pbc", [(False, False, False), (True, False, False)])
def test_f7_molecules_far_from_each_other_cost_nothing(pbc):
    """A grid of bins over this box would have 10^10 of them."""
    positions = np.concatenate(
        [MOLECULE, MOLECULE + [3.0, 9000.0, 7000.0], MOLECULE + [5.0, -8000.0, 2000.0]]
    )
    cell = np.diag([3000.0, 0.0, 0.0]) if pbc[0] else np.zeros((3, 3))
    began = time.perf_counter()
    edge_index, _, unit_shifts, _ = get_neighborhood(positions, 4.0, pbc, cell)
    assert time.perf_counter() - began < 1.0
    single = get_neighborhood(MOLECULE, 4.0)[0]
    expected = np.concatenate([single + len(MOLECULE) * k for k in range(3)], axis=1)
    assert edges(edge_index, unit_shifts) == edges(expected, np.zeros((expected.shape[1], 3), int))


def test_missing_cell_vectors_of_open_axes_become_unit_vectors():
    wire = np.zeros((3, 3))
    wire[1] = [0.0, 3.0, 4.0]
    *_, completed = get_neighborhood(MOLECULE, 4.0, (False, True, False), wire)
    np.testing.assert_array_equal(completed[1], wire[1])
    assert abs(np.linalg.det(completed)) == pytest.approx(5.0)
    *_, completed = get_neighborhood(MOLECULE, 4.0, (True, True, False), np.diag([8.0, 7.0, 0.0]))
    assert abs(np.linalg.det(completed)) == pytest.approx(56.0)


def test_distances_are_strictly_smaller_than_the_cutoff():
    positions = np.array([[0.0, 0.0, 0.0], [3.0, 4.0, 0.0]])
    assert get_neighborhood(positions, 5.0)[0].shape == (2, 0)
    assert get_neighborhood(positions, np.nextafter(5.0, 6.0))[0].shape == (2, 2)


def test_self_images_are_edges_and_self_edges_only_if_asked_for():
    positions, cell, pbc = np.zeros((1, 3)), np.eye(3) * 2.5, (True, True, True)
    edge_index, _, unit_shifts, _ = get_neighborhood(positions, 3.0, pbc, cell)
    assert edge_index.tolist() == [[0] * 6, [0] * 6]
    assert unit_shifts.any(axis=1).all()
    edge_index, shifts, unit_shifts, _ = get_neighborhood(MOLECULE, 1.0, true_self_interaction=True)
    assert (np.diff(edge_index[0]) >= 0).all()
    assert edges(edge_index, unit_shifts) == sorted(
        edges(*get_neighborhood(MOLECULE, 1.0)[::2]) + [(i, i, 0, 0, 0) for i in range(4)]
    )
    assert shifts.shape == unit_shifts.shape


def test_no_neighbours_and_no_atoms():
    for positions in (np.zeros((1, 3)), np.zeros((0, 3))):
        edge_index, shifts, unit_shifts, _ = get_neighborhood(positions, 3.0)
        assert edge_index.shape == (2, 0)
        assert shifts.shape == unit_shifts.shape == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cutoff": 0.0}, "cutoff 0.0: must be larger than 0"),
        ({"cutoff": float("nan")}, "cutoff nan"),
        ({"positions": np.full((2, 3), np.nan)}, "not finite"),
        ({"cell": np.full((3, 3), np.inf)}, "not finite"),
        ({"pbc": (True, True)}, "pbc must be three booleans"),
        ({"pbc": (1, 0, 0)}, "pbc must be three booleans"),
        ({"pbc": (True, False, False)}, "span no cell"),
        ({"pbc": (True, True, True), "cell": np.diag([1.0, 1.0, 0.0])}, "span no cell"),
    ],
)
def test_unusable_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        get_neighborhood(**{"positions": MOLECULE, "cutoff": 4.0, **arguments})
