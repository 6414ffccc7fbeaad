import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms

from mace.data import Configuration, config_from_atoms, config_from_atoms_list
from mace.exceptions import InputError

FORCES = np.arange(6.0).reshape(2, 3)


def dimer(**info):
    atoms = Atoms("HO", [[0, 0, 0], [1.0, 0, 0]], cell=[5, 6, 7], pbc=[True, False, True])
    atoms.info.update(info)
    return atoms


def test_fields_keep_their_positional_order():
    config = Configuration(np.array([1]), np.zeros((1, 3)), *range(3, 22))
    names = (
        "energy potential electron forces stress virials dipole charges cell pbc weight energy_weight"
        " forces_weight stress_weight virials_weight potential_weight electron_weight config_type head"
    )
    assert [getattr(config, name) for name in names.split()] == list(range(3, 22))


def test_all_labels_and_weights_are_read():
    atoms = dimer(
        REF_energy=-1.5,
        REF_stress=np.arange(6.0),
        REF_virials=np.eye(3),
        REF_dipole=[1.0, 2.0, 3.0],
        electron=8.25,
        potential=-4.5,
        config_type="slab",
        config_weight=2.0,
        config_energy_weight=3.0,
        config_potential_weight=0.25,
        head="mine",
    )
    atoms.arrays["REF_forces"] = FORCES
    atoms.arrays["REF_charges"] = np.array([0.5, -0.5])
    config = config_from_atoms(atoms, config_type_weights={"slab": 10.0})
    assert (config.energy, config.electron, config.potential) == (-1.5, 8.25, -4.5)
    np.testing.assert_array_equal(config.forces, FORCES)
    np.testing.assert_array_equal(config.stress, np.arange(6.0))
    np.testing.assert_array_equal(config.virials, np.eye(3))
    np.testing.assert_array_equal(config.dipole, [1, 2, 3])
    np.testing.assert_array_equal(config.charges, [0.5, -0.5])
    np.testing.assert_array_equal(config.cell, np.diag([5, 6, 7]))
    assert config.pbc == (True, False, True)
    assert (config.config_type, config.head, config.weight) == ("slab", "mine", 20.0)
    assert (config.energy_weight, config.forces_weight, config.stress_weight) == (3.0, 1.0, 1.0)
    assert config.potential_weight == 0.25  # A9: the file's own weight of the potential


def test_missing_labels_are_none_with_weight_zero_whatever_the_file_says():
    config = config_from_atoms(dimer(config_energy_weight=5.0, config_potential_weight=5.0))
    assert config.energy is config.forces is config.potential is config.electron is config.dipole is None
    assert (config.energy_weight, config.potential_weight, config.electron_weight) == (0.0, 0.0, 0.0)
    assert config.weight == 1.0


def test_f11_an_energy_of_exactly_zero_is_a_label():
    config = config_from_atoms(dimer(REF_energy=0.0))
    assert config.energy == 0.0
    assert config.energy_weight == 1.0


def test_a20_electron_and_potential_have_keys():
    atoms = dimer(nelect=1.0, fermi=-2.0, electron=5.0, potential=6.0)
    config = config_from_atoms(atoms, electron_key="nelect", potential_key="fermi")
    assert (config.electron, config.potential) == (1.0, -2.0)


def test_standard_names_are_read_raw_from_stored_results():
    """ASE's get_forces() would put zeros on fixed atoms."""
    atoms = dimer()
    atoms.calc = SinglePointCalculator(atoms, energy=-3.0, forces=FORCES, stress=np.arange(6.0))
    atoms.set_constraint(FixAtoms([0, 1]))
    config = config_from_atoms(atoms, energy_key="energy", forces_key="forces", stress_key="stress")
    assert config.energy == -3.0
    np.testing.assert_array_equal(config.forces, FORCES)
    np.testing.assert_array_equal(config.stress, np.arange(6.0))


def test_labels_never_come_from_a_live_calculator():
    atoms = Atoms("Cu2", [[0, 0, 0], [2.5, 0, 0]], calculator=EMT())
    atoms.get_forces()
    config = config_from_atoms(atoms, energy_key="energy", forces_key="forces")
    assert config.energy is None
    assert config.forces is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("REF_energy", float("nan"), "energy of a structure .key 'REF_energy'. is nan"),
        ("potential", float("inf"), "potential of a structure .key 'potential'. is inf"),
        ("electron", "many", "electron of a structure .key 'electron'. is 'many', which is no number"),
        ("REF_stress", np.zeros(4), "stress of a structure .key 'REF_stress'. is of shape"),
        ("config_weight", float("nan"), "config_weight of a structure is nan"),
        ("config_forces_weight", "heavy", "config_forces_weight of a structure is 'heavy'"),
    ],
)
def test_unusable_values_name_the_key(key, value, message):
    with pytest.raises(InputError, match=message):
        config_from_atoms(dimer(**{key: value}))


@pytest.mark.parametrize("what", ["positions", "cell"])
def test_positions_and_cell_must_be_finite(what):
    atoms = dimer()
    getattr(atoms, what)[0, 0] = np.nan
    with pytest.raises(InputError, match=f"the {what} of a structure are not finite"):
        config_from_atoms(atoms)


def test_configurations_do_not_share_memory_with_the_structure():
    atoms = dimer()
    config = config_from_atoms(atoms)
    atoms.positions += 1
    atoms.cell *= 2
    np.testing.assert_array_equal(config.positions, [[0, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(config.cell, np.diag([5, 6, 7]))


def test_lists_use_the_same_keys():
    atoms = [dimer(E=1.0, N=2.0), dimer(E=3.0)]
    configs = config_from_atoms_list(
        atoms, energy_key="E", electron_key="N", config_type_weights={"Default": 2.0}
    )
    assert [config.energy for config in configs] == [1.0, 3.0]
    assert [config.electron for config in configs] == [2.0, None]
    assert [config.weight for config in configs] == [2.0, 2.0]
