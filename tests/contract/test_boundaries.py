"""From atoms to energies, neighbour list included: what bulk, slabs, molecules and small cells promise."""

from __future__ import annotations

from collections.abc import Callable

import ase
import numpy as np
import pytest
import torch

from mace.calculators import MACECalculator
from tests import small_models
from tests.small_models import R_MAX
from tests.tolerances import relative

VARIANTS: dict[str, Callable[[], torch.nn.Module]] = {
    "MACE": small_models.mace,
    "ScaleShiftMACE": small_models.scale_shift,
    "FermiMACE": small_models.fermi,
    "global state": lambda: small_models.fermi(electron_input=False, use_global_state=True),
    "repulsion": lambda: small_models.mace(pair_repulsion=True, distance_transform="Agnesi"),
}
# Every vector is shorter than the cutoff, so that atoms see several images of each other and of themselves.
TRICLINIC = np.array([[2.9, 0.0, 0.0], [1.1, 2.7, 0.0], [-0.8, 0.9, 3.1]])
assert np.linalg.norm(TRICLINIC, axis=1).max() < R_MAX


@pytest.fixture(params=VARIANTS)
def calculator(request: pytest.FixtureRequest) -> MACECalculator:
    return MACECalculator(models=VARIANTS[request.param]())


def bulk(pbc: tuple[bool, bool, bool] = (True, True, True)) -> ase.Atoms:
    fractions = [[0.05, 0.1, 0.0], [0.6, 0.45, 0.5]]
    return ase.Atoms("OH", cell=TRICLINIC, scaled_positions=fractions, pbc=pbc, info={"electron": 0.4})


def computed(calculator: MACECalculator, atoms: ase.Atoms) -> tuple[float, np.ndarray]:
    """Energy and forces."""
    atoms.calc = calculator
    return atoms.get_potential_energy(), atoms.get_forces()


def close(ours: np.ndarray | float, expected: np.ndarray | float) -> bool:
    size = max(np.abs(expected).max(), 1.0)
    return bool(np.abs(np.asarray(ours) - expected).max() <= relative("symmetry") * size)


@pytest.mark.parametrize("repeat", [(2, 1, 1), (2, 3, 2)])
@pytest.mark.parametrize("pbc", [(True, True, True), (True, True, False), (True, False, False)])
def test_a_cell_smaller_than_the_cutoff_is_its_supercell(
    calculator: MACECalculator, repeat: tuple[int, int, int], pbc: tuple[bool, bool, bool]
) -> None:
    """Repeated along the periodic directions only."""
    repeat = tuple(n if periodic else 1 for n, periodic in zip(repeat, pbc, strict=True))
    cells = int(np.prod(repeat))
    energy, forces = computed(calculator, bulk(pbc))
    energy_repeated, forces_repeated = computed(calculator, bulk(pbc).repeat(repeat))
    assert close(energy_repeated, cells * energy)
    assert close(forces_repeated, np.tile(forces, (cells, 1)))


def test_stress_of_a_small_cell_is_that_of_its_supercell(calculator: MACECalculator) -> None:
    small, large = bulk(), bulk().repeat((2, 2, 1))
    small.calc = calculator
    stress = small.get_stress()
    large.calc = calculator
    assert np.abs(stress).max() > 1e-4
    assert close(large.get_stress(), stress)


def test_it_does_not_matter_in_which_image_an_atom_is_given(calculator: MACECalculator) -> None:
    atoms = bulk()
    energy, forces = computed(calculator, atoms)
    atoms.positions[1] += np.array([2, -3, 1]) @ TRICLINIC
    energy_moved, forces_moved = computed(calculator, atoms)
    assert close(energy_moved, energy) and close(forces_moved, forces)


def test_a_slab_is_the_bulk_with_enough_vacuum(calculator: MACECalculator) -> None:
    open_slab, padded = bulk((True, True, False)), bulk()
    cell = TRICLINIC.copy()
    cell[2] = [0.0, 0.0, 40.0]
    padded.set_cell(cell)  # positions stay
    assert all(
        close(a, b)
        for a, b in zip(computed(calculator, open_slab), computed(calculator, padded), strict=True)
    )


@pytest.mark.parametrize("cell", [None, 30.0 * np.eye(3), TRICLINIC])
def test_a_molecule_does_not_see_its_cell(calculator: MACECalculator, cell: np.ndarray | None) -> None:
    molecule = ase.Atoms("OH", [[0, 0, 0], [0.5, 0.7, 0.3]], info={"electron": 0.4})
    alone = computed(calculator, molecule)
    molecule.set_cell(cell)
    assert all(close(a, b) for a, b in zip(computed(calculator, molecule), alone, strict=True))
    padded = ase.Atoms("OH", molecule.positions, cell=30.0 * np.eye(3), pbc=True, info={"electron": 0.4})
    assert all(close(a, b) for a, b in zip(computed(calculator, padded), alone, strict=True))
