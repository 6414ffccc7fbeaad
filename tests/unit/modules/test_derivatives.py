"""Geometry under strain, forces, stress and Hessians of energies that can be differentiated by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mace.modules.utils import (
    compute_fixed_charge_dipole,
    compute_forces,
    compute_forces_virials,
    compute_hessians_loop,
    compute_hessians_vmap,
    extract_invariant,
    get_edge_vectors_and_lengths,
    get_outputs,
    get_symmetric_displacement,
)

DOUBLE = torch.float64


def positions(requires_grad: bool = True) -> torch.Tensor:
    drawn = torch.randn(5, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    return drawn.requires_grad_(requires_grad)


def test_vectors_point_from_sender_to_the_image_of_the_receiver() -> None:
    given = torch.tensor([[0.0, 0, 0], [1.0, 2, 2]])
    edges, shifts = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0.0, 0, 0], [4.0, 0, 0]])
    vectors, lengths = get_edge_vectors_and_lengths(given, edges, shifts)
    assert vectors.tolist() == [[1, 2, 2], [3, -2, -2]] and lengths[0].tolist() == [3]
    units, _ = get_edge_vectors_and_lengths(given, edges, shifts, normalize=True)
    torch.testing.assert_close(torch.linalg.norm(units, dim=-1), torch.ones(2))


def test_strain_moves_positions_and_shifts_alike() -> None:
    cell = torch.eye(3, dtype=DOUBLE) * 4.0 + 0.3
    unit_shifts = torch.tensor([[1.0, 0, -1.0]], dtype=DOUBLE)
    edges, batch = torch.tensor([[0], [1]]), torch.zeros(5, dtype=torch.long)
    moved, shifts, strain = get_symmetric_displacement(positions(False), unit_shifts, cell, edges, 1, batch)
    assert torch.equal(moved, positions(False)) and torch.equal(shifts, unit_shifts @ cell)
    (by_strain,) = torch.autograd.grad(moved.sum() + shifts.sum(), strain)
    total = positions(False).sum(0) + (unit_shifts @ cell)[0]
    expected = 0.5 * (total[:, None] + total[None, :]).expand(3, 3)
    torch.testing.assert_close(by_strain[0], expected)


def test_strain_without_cell() -> None:
    edges, batch = torch.tensor([[0], [1]]), torch.zeros(5, dtype=torch.long)
    _, shifts, _ = get_symmetric_displacement(
        positions(False), torch.ones(1, 3, dtype=DOUBLE), None, edges, 1, batch
    )
    assert not shifts.any()


def test_forces_of_an_energy_without_positions_are_zero() -> None:
    x = positions()
    energy = torch.ones(1, dtype=DOUBLE, requires_grad=True) * 2.0
    assert compute_forces(energy, x).tolist() == [[0.0] * 3] * 5


def quadratic(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An energy x.A.x / 2 and its matrix of second derivatives."""
    factor = torch.randn(15, 15, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    matrix = factor @ factor.T
    return (0.5 * x.flatten() @ matrix @ x.flatten()).unsqueeze(0), matrix


@pytest.mark.parametrize("compute", [compute_hessians_loop, compute_hessians_vmap])
def test_hessian(compute) -> None:
    x = positions()
    energy, matrix = quadratic(x)
    hessian = compute(compute_forces(energy, x), x)
    torch.testing.assert_close(hessian, matrix.view(15, 5, 3))


@pytest.mark.parametrize("compute", [compute_hessians_loop, compute_hessians_vmap])
def test_hessian_of_a_linear_energy_is_zero(compute) -> None:
    x = positions()
    forces = compute_forces(x.sum().unsqueeze(0), x) + 0.0 * x.sum()
    assert not compute(forces, x).any()


def test_only_what_is_asked_for() -> None:
    x = positions()
    energy, _ = quadratic(x)
    cell = torch.eye(3, dtype=DOUBLE)
    flags = {"compute_virials": False, "compute_stress": False}
    assert get_outputs(energy, x, None, cell, compute_force=False, **flags) == (None, None, None, None)
    forces, *others = get_outputs(energy, x, None, cell, training=True, **flags)
    assert forces is not None and forces.requires_grad and others == [None] * 3


@pytest.mark.parametrize("volume", [8.0, 0.0, 1e-11])
def test_stress_of_a_cell_without_volume_is_zero_and_can_be_trained_on(volume: float) -> None:
    edges, batch = torch.tensor([[0], [1]]), torch.zeros(5, dtype=torch.long)
    cell = torch.diag(torch.tensor([2.0, -2.0, volume / 4.0], dtype=DOUBLE))
    x = positions()
    moved, _, strain = get_symmetric_displacement(x, torch.zeros(1, 3, dtype=DOUBLE), cell, edges, 1, batch)
    _, virials, stress = compute_forces_virials(quadratic(moved)[0], x, strain, cell, compute_stress=True)
    assert 1.0 < virials.abs().max() < 1e3  # by a volume of 1e-11 more than any crystal bears: no stress
    torch.testing.assert_close(stress, -virials / volume if volume == 8.0 else torch.zeros_like(stress))
    stress.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_dipole_of_point_charges() -> None:
    charges = torch.tensor([1.0, -1.0, 2.0], dtype=DOUBLE)
    places = torch.tensor([[1.0, 0, 0], [0.0, 0, 0], [0.0, 0, 1]], dtype=DOUBLE)
    dipole = compute_fixed_charge_dipole(charges, places, torch.tensor([0, 0, 1]), 2)
    np.testing.assert_allclose(dipole.numpy(), 4.80320467 * np.array([[1, 0, 0], [0, 0, 2]]), rtol=1e-8)


def test_scalars_of_every_layer() -> None:
    columns = torch.arange(2 * 8 + 2).unsqueeze(0)
    assert extract_invariant(columns, num_layers=3, num_features=2, l_max=1).tolist() == [
        [0, 1, 8, 9, 16, 17]
    ]
