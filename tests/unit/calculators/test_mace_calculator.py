"""The calculator gives what the models give, in ASE's units and shapes, and notices every change."""

import logging
import os
import threading

import ase
import ase.io
import numpy as np
import pytest
import torch
from ase.calculators.calculator import PropertyNotImplementedError
from ase.stress import full_3x3_to_voigt_6_stress

from mace.calculators import MACECalculator
from mace.calculators.mace import get_model_dtype
from mace.exceptions import InputError
from mace.tools.rebuild import rebuild
from mace.tools.same import differences
from mace.tools.saving import save_compiled, save_model
from tests import small_models


@pytest.fixture(scope="module")
def fermi():
    return small_models.fermi()


@pytest.fixture(scope="module")
def plain():
    return small_models.scale_shift()


@pytest.fixture(scope="module")
def committee(fermi):
    """Two models of one architecture and other weights."""
    other = rebuild(fermi)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    return [fermi, other]


@pytest.fixture(scope="module")
def files(tmp_path_factory, fermi):
    folder = tmp_path_factory.mktemp("models")
    for name in ("a_0", "a_1"):
        save_model(rebuild(fermi), folder / f"{name}.model")
    assert save_compiled(rebuild(fermi), folder / "c_compiled.model")
    return folder


def structure(electron=0.4):
    """The periodic structure of the small models' batch."""
    atoms, info = small_models.structures()[1], {} if electron is None else {"electron": electron}
    return ase.Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc, info=info)


def molecule():
    atoms = small_models.structures()[0]
    return ase.Atoms(atoms.numbers, atoms.positions, info={"electron": 0.4})


def expected(model, graph=1, **options):
    """The model's outputs for one structure of the batch built without the package's own neighbour list."""
    structures = [small_models.structures()[graph]]
    batch = small_models.batch_of(structures, small_models.ELEMENTS, small_models.R_MAX)
    return {
        key: value.detach().numpy() for key, value in model(batch, **options).items() if value is not None
    }


# ---- results


@pytest.mark.parametrize("source", ["models", "a_0.model", "c_compiled.model"])
def test_results_are_those_of_the_model(source, fermi, files):
    calc = MACECalculator(models=fermi) if source == "models" else MACECalculator(files / source)
    calc.calculate(structure())
    reference, results = expected(fermi, compute_stress=True), calc.results
    assert results["energy"] == results["free_energy"] == pytest.approx(reference["energy"][0], abs=1e-10)
    assert np.allclose(results["forces"], reference["forces"], rtol=0, atol=1e-10)
    assert np.allclose(
        results["stress"], full_3x3_to_voigt_6_stress(reference["stress"][0]), rtol=0, atol=1e-10
    )
    assert results["potential"] == pytest.approx(reference["potential"][0], abs=1e-10)
    e0 = np.where(structure().numbers == 1, -1.0, -2.0)
    assert np.allclose(results["node_energy"], reference["node_energy"] - e0, rtol=0, atol=1e-10)
    assert set(calc.implemented_properties) == set(results)


def test_ase_methods(fermi):
    atoms = structure()
    atoms.calc = MACECalculator(models=fermi)
    reference = expected(fermi, compute_stress=True)
    assert atoms.get_potential_energy() == pytest.approx(reference["energy"][0], abs=1e-10)
    assert np.allclose(atoms.get_forces(), reference["forces"], atol=1e-10)
    assert np.allclose(atoms.get_stress(voigt=False), reference["stress"][0], atol=1e-10)
    assert (
        atoms.calc.get_mu() == atoms.calc.get_mu(atoms) == pytest.approx(reference["potential"][0], abs=1e-10)
    )


def test_units_are_factors(fermi):
    ours, scaled = (
        MACECalculator(models=fermi),
        MACECalculator(models=fermi, energy_units_to_eV=3.0, length_units_to_A=2.0),
    )
    for calc in (ours, scaled):
        calc.calculate(structure())
    assert scaled.results["energy"] == pytest.approx(3 * ours.results["energy"])
    assert np.allclose(scaled.results["forces"], 1.5 * ours.results["forces"])
    assert np.allclose(scaled.results["stress"], 3 / 8 * ours.results["stress"])
    assert scaled.results["potential"] == pytest.approx(ours.results["potential"])


def test_g1_a_model_without_fermi_level_works(plain):
    atoms = structure(electron=None)
    atoms.calc = MACECalculator(models=plain)
    assert np.isfinite(atoms.get_potential_energy()) and "potential" not in atoms.calc.results
    with pytest.raises(PropertyNotImplementedError, match="this model has no Fermi level"):
        atoms.calc.get_mu(atoms)


def test_the_class_mace_works():
    atoms = structure()
    atoms.calc = MACECalculator(models=small_models.mace())
    assert atoms.get_forces().shape == (4, 3)


def test_a_molecule_has_no_stress(fermi):
    atoms = molecule()
    atoms.calc = MACECalculator(models=fermi)
    atoms.calc.calculate(atoms)
    assert "stress" not in atoms.calc.results and "forces" in atoms.calc.results
    with pytest.raises(PropertyNotImplementedError):
        atoms.get_stress()


def test_g12_only_what_is_asked_for_is_computed(fermi):
    atoms = structure()
    atoms.calc = MACECalculator(models=fermi)
    atoms.get_potential_energy()
    assert not {"forces", "stress"} & atoms.calc.results.keys()
    atoms.get_forces()
    assert "forces" in atoms.calc.results and "stress" not in atoms.calc.results
    atoms.get_stress()
    atoms.rattle(0.01)
    atoms.get_potential_energy()
    assert {"forces", "stress"} <= atoms.calc.results.keys()  # asked for before: one evaluation a step


def test_several_structures_do_not_mix(fermi):
    calc = MACECalculator(models=fermi)
    first, second = structure(), molecule()
    first.calc = second.calc = calc
    assert len(first.get_forces()) == 4 and len(second.get_forces()) == 3
    assert first.get_potential_energy() == pytest.approx(expected(fermi)["energy"][0], abs=1e-10)


# ---- change detection


def test_g2_a_change_of_the_electron_number_alone_is_a_new_calculation(fermi):
    atoms = structure(-0.5)
    atoms.calc = MACECalculator(models=fermi)
    before = atoms.get_potential_energy(), atoms.calc.get_mu(atoms)
    atoms.info["electron"] = 0.5
    after = atoms.get_potential_energy(), atoms.calc.get_mu(atoms)
    assert before[0] != after[0] and before[1] != after[1]
    atoms.info["electron"] = -0.5
    assert (atoms.get_potential_energy(), atoms.calc.get_mu(atoms)) == before


def test_g2_a_change_in_place_is_noticed(fermi):
    atoms = structure()
    atoms.info["electron"] = np.array(0.1)
    atoms.calc = MACECalculator(models=fermi)
    before = atoms.get_potential_energy()
    atoms.info["electron"] += 0.3
    assert atoms.get_potential_energy() != before


def test_nothing_is_computed_again_without_a_change(fermi, monkeypatch):
    atoms = structure()
    atoms.calc = MACECalculator(models=fermi)
    atoms.get_forces()
    monkeypatch.setattr(MACECalculator, "calculate", lambda *_: pytest.fail("computed again"))
    atoms.get_potential_energy(), atoms.get_forces()
    atoms.info["comment"] = "not an input"
    atoms.get_potential_energy()


def test_an_electron_number_in_the_data_is_no_matter_to_a_plain_model(plain):
    atoms = structure(electron=0.1)
    atoms.calc = MACECalculator(models=plain)
    first = atoms.get_potential_energy()
    atoms.info["electron"] = float("nan")
    assert atoms.calc.check_state(atoms) == [] and atoms.get_potential_energy() == first


# ---- inputs


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "many", [1.0, 2.0]])
def test_a8_a_model_that_needs_the_electron_number_does_not_guess_it(fermi, value):
    atoms = structure(electron=value)
    atoms.calc = MACECalculator(models=fermi)
    with pytest.raises(InputError, match="electron"):
        atoms.get_potential_energy()


def test_the_number_gone_is_a_change_and_an_error(fermi):
    atoms = structure()
    atoms.calc = MACECalculator(models=fermi)
    atoms.get_potential_energy()
    del atoms.info["electron"]
    with pytest.raises(InputError, match=r"info\['electron'\]"):
        atoms.get_potential_energy()


def test_a20_the_key_of_the_electron_number_can_be_chosen(fermi, plain):
    atoms = structure()
    atoms.info["n_e"] = atoms.info.pop("electron")
    atoms.calc = MACECalculator(models=fermi, electron_key="n_e")
    assert atoms.get_potential_energy() == pytest.approx(expected(fermi)["energy"][0], abs=1e-10)
    with pytest.raises(InputError, match="takes no number of electrons"):
        MACECalculator(models=plain, electron_key="n_e")
    with pytest.raises(InputError, match="takes no charges"):
        MACECalculator(models=plain, charges_key="charges")


def test_unknown_elements_are_named(fermi):
    atoms = ase.Atoms("CO", [[0, 0, 0], [0, 0, 1.1]], info={"electron": 0.0})
    atoms.calc = MACECalculator(models=fermi)
    with pytest.raises(InputError, match="6"):
        atoms.get_potential_energy()


def test_heads_are_chosen_by_name():
    energies = np.array([[-1.0, -2.0], [-1.5, -2.5]])
    model = small_models.scale_shift(
        heads=["dft", "cc"],
        atomic_energies=energies,
        atomic_inter_scale=[1.0, 2.0],
        atomic_inter_shift=[0.0, 0.1],
    )
    atoms = structure()
    found = {}
    for head in ("dft", "cc"):
        atoms.calc = MACECalculator(models=model, head=head)
        found[head] = atoms.get_potential_energy()
    assert found["dft"] != found["cc"]
    atoms.calc = MACECalculator(models=model)
    with pytest.raises(InputError, match="names no head"):
        atoms.get_potential_energy()
    for head in ("cc", "dft"):
        atoms.info["head"] = head
        assert atoms.get_potential_energy() == found[head]
    atoms.info["head"] = "unknown"  # f2: never silently another one
    with pytest.raises(InputError, match="'unknown'.*'dft', 'cc'"):
        atoms.get_potential_energy()
    with pytest.raises(InputError, match=r"'unknown' .* has \['dft', 'cc'\]$"):
        MACECalculator(models=model, head="unknown")
    with pytest.raises(InputError, match=r"'unknown' .* has \['default'\]$"):
        MACECalculator(models=small_models.scale_shift(), head="unknown")


# ---- committees


def test_a_committee_gives_means_and_spread(committee):
    calc = MACECalculator(models=committee, energy_units_to_eV=2.0)
    calc.calculate(structure())
    references = [expected(model, compute_stress=True) for model in committee]
    energies = 2 * np.array([r["energy"][0] for r in references])
    potentials = np.array([r["potential"][0] for r in references])
    stresses = 2 * np.array([full_3x3_to_voigt_6_stress(r["stress"][0]) for r in references])
    results = calc.results
    assert np.allclose(results["energies"], energies, atol=1e-10)
    assert results["energy"] == pytest.approx(energies.mean(), abs=1e-10)
    assert results["energy_var"] == pytest.approx(energies.var(), rel=1e-9)  # g3: the square of the unit
    assert results["potential"] == pytest.approx(potentials.mean(), abs=1e-10)
    assert results["potential_var"] == pytest.approx(
        potentials.var(), rel=1e-9
    )  # g3: spread of the potential
    assert np.allclose(results["stress_var"], stresses.var(axis=0), atol=1e-10)
    assert results["forces_comm"].shape == (2, 4, 3)
    assert np.allclose(results["forces_comm"].mean(axis=0), results["forces"], atol=1e-12)


def test_g9_committees_that_do_not_fit_are_named(fermi):
    with pytest.raises(InputError, match=r"r_max.*4.0, 3.0"):
        MACECalculator(models=[fermi, small_models.fermi(r_max=3.0)])
    with pytest.raises(InputError, match="electron input"):
        MACECalculator(models=[fermi, small_models.scale_shift()])


# ---- construction


def test_files_patterns_and_lists(files, caplog):
    with caplog.at_level(logging.INFO):
        assert MACECalculator(f"{files}/a_*.model").num_models == 2
    assert "Running committee mace with 2 models" in caplog.text
    assert MACECalculator([files / "a_0.model", str(files / "a_1.model")]).num_models == 2
    with pytest.warns(DeprecationWarning, match="model_paths"):
        assert MACECalculator(model_path=files / "a_0.model").num_models == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Exactly one of"),
        ({"model_paths": []}, "No mace file names supplied"),
        ({"models": []}, "No models supplied"),
        ({"model_paths": "no_such_*.model"}, "Couldn't find MACE model files: no_such"),
        ({"model_paths": "no_such.model"}, "Couldn't find MACE model files: no_such"),
        ({"models": "fermi", "model_type": "Other"}, "Give a valid model_type.*Other not supported"),
        ({"models": "fermi", "model_paths": "a"}, "Exactly one of"),
        ({"models": "fermi", "compile_mode": "default"}, "not built yet"),
        ({"models": "fermi", "info_keys": {}}, "info_keys"),
        ({"models": "fermi", "default_dtype": "float16"}, "float16"),
        ({"models": "fermi", "device": "tpu"}, "tpu"),
        ({"models": "linear"}, "not a MACE model"),
    ],
)
def test_arguments_that_cannot_be_used(arguments, message, fermi):
    models = {"fermi": fermi, "linear": torch.nn.Linear(1, 1)}
    if isinstance(arguments.get("models"), str):
        arguments = {**arguments, "models": models[arguments["models"]]}
    with pytest.raises(ValueError, match=message):
        MACECalculator(**arguments)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("build", "model_type", "message"),
    [
        (
            small_models.atomic_dipoles,
            "MACE",
            "'MACE': this model gives no energy; use model_type='DipoleMACE'",
        ),
        (small_models.atomic_dipoles, "EnergyDipoleMACE", "gives no energy; use model_type='DipoleMACE'"),
        (small_models.fermi, "DipoleMACE", "'DipoleMACE': this model gives no dipole; use model_type='MACE'"),
        (small_models.fermi, "EnergyDipoleMACE", "gives no dipole; use model_type='MACE'"),
    ],
)
def test_a_model_type_that_does_not_fit(build, model_type, message, compiled, tmp_path):
    path = tmp_path / "m.model"
    save_compiled(build(), path) if compiled else save_model(build(), path)
    with pytest.raises(InputError, match=message):
        MACECalculator(path, model_type=model_type)


@pytest.mark.parametrize("model_type", ["MACE", "DipoleMACE", "EnergyDipoleMACE"])
def test_model_types_of_a_model_that_gives_both(model_type):
    calculator = MACECalculator(models=small_models.energy_dipoles(), model_type=model_type)
    assert calculator.model_type == model_type


def test_a_committee_gives_the_same(plain):
    with pytest.raises(InputError, match="must have the same charge input"):
        MACECalculator(models=[plain, small_models.energy_dipoles()])


def test_models_that_are_given_are_left_alone(fermi):
    before = rebuild(fermi)
    MACECalculator(models=fermi, default_dtype="float32")
    assert not differences(before, fermi) and all(p.requires_grad for p in fermi.parameters())


def test_g4_the_default_dtype_is_left_alone_whatever_the_precision(files):
    calculators = {
        dtype: MACECalculator(files / "a_0.model", default_dtype=dtype) for dtype in ("float64", "float32")
    }
    assert {dtype: get_model_dtype(calc.models[0]) for dtype, calc in calculators.items()} == {
        "float64": "float64",
        "float32": "float32",
    }
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.is_set():
            seen.add(torch.get_default_dtype())

    watcher = threading.Thread(target=watch)
    watcher.start()
    atoms, energies = structure(), []
    for dtype in ("float32", "float64", "float32"):
        atoms.calc = calculators[dtype]
        energies.append(atoms.get_potential_energy())
    stop.set()
    watcher.join()
    assert seen == {torch.get_default_dtype()}
    assert energies[0] == energies[2] != energies[1] and abs(energies[0] - energies[1]) < 1e-3


def test_a_malicious_file_is_refused_and_does_nothing(tmp_path):
    class CreatesAFile:
        def __reduce__(self):
            return open, (str(tmp_path / "created"), "w")

    torch.save(CreatesAFile(), tmp_path / "evil.model")
    with pytest.raises(InputError, match=r"evil.model"):
        MACECalculator(tmp_path / "evil.model")
    assert os.listdir(tmp_path) == ["evil.model"]


def test_torchscript_modules_can_be_given(files, fermi):
    scripted = torch.jit.load(files / "c_compiled.model")
    atoms = structure()
    atoms.calc = MACECalculator(models=[scripted, scripted])
    assert atoms.get_potential_energy() == pytest.approx(expected(fermi)["energy"][0], abs=1e-10)
    assert all(parameter.requires_grad for parameter in scripted.parameters())


def test_names_that_other_programs_use(files):
    calc = MACECalculator(files / "a_0.model")
    assert calc.r_max == 4.0 and list(calc.z_table.zs) == [1, 8] and calc.heads == ["default"]
    assert calc.device == torch.device("cpu") and calc.model_type == "MACE" and len(calc.models) == 1
    batch = calc._atoms_to_batch(structure())
    clone = calc._clone_batch(batch)
    clone.positions += 1
    assert not torch.equal(clone.positions, batch.positions)


# ---- other methods


def test_the_hessian_is_the_derivative_of_the_forces(fermi):
    atoms = molecule()
    calc = MACECalculator(models=fermi)
    hessian = calc.get_hessian(atoms)
    assert hessian.shape == (9, 3, 3)
    atoms.calc, step = calc, 1e-4
    moved = atoms.copy()
    moved.calc, forces = calc, []
    for sign in (1, -1):
        moved.positions = atoms.positions + sign * step * np.eye(9)[0].reshape(3, 3)
        forces.append(moved.get_forces())
    assert np.allclose(-(forces[0] - forces[1]) / (2 * step), hessian[0], atol=1e-6)


def test_descriptors_have_the_stated_shapes_and_the_invariants_are_invariant(fermi):
    atoms, channels = molecule(), 2
    calc = MACECalculator(models=fermi)
    full, invariant = calc.get_descriptors(atoms, invariants_only=False), calc.get_descriptors(atoms)
    assert full.shape == (3, 5 * channels) and invariant.shape == (3, 2 * channels)  # b15
    assert calc.get_descriptors(atoms, num_layers=1).shape == (3, channels)
    assert calc.get_descriptors(atoms, invariants_only=False, num_layers=1).shape == (3, 4 * channels)
    assert np.array_equal(invariant[:, :channels], full[:, :channels])
    atoms.rotate(40, (1, 2, 3))
    assert np.allclose(calc.get_descriptors(atoms), invariant, atol=1e-12)
    assert not np.allclose(calc.get_descriptors(atoms, invariants_only=False), full, atol=1e-6)
    with pytest.raises(InputError, match="num_layers"):
        calc.get_descriptors(atoms, num_layers=3)


def test_descriptors_of_features_without_vectors():
    model = small_models.mace(hidden_irreps="2x0e + 2x2e", max_ell=2)
    atoms, calc = molecule(), MACECalculator(models=model)
    full, invariant = calc.get_descriptors(atoms, invariants_only=False), calc.get_descriptors(atoms)
    assert np.array_equal(invariant, full[:, [0, 1, 12, 13]])  # 2 scalars and 2 x 5 others, 2 scalars


def test_without_a_structure_there_is_an_error(fermi):
    calc = MACECalculator(models=fermi)
    for method in (calc.get_hessian, calc.get_descriptors):
        with pytest.raises(ValueError, match="atoms not set"):
            method()


def test_b20_a_float32_model_gets_and_gives_float32(fermi):
    calc = MACECalculator(models=fermi, default_dtype="float32")
    batch = calc._atoms_to_batch(structure())
    assert {t.dtype for t in batch.to_dict().values() if t.is_floating_point()} == {torch.float32}
    calc.calculate(structure())
    assert calc.results["energy"] == pytest.approx(expected(fermi)["energy"][0], rel=1e-5)


def test_dynamics_run_and_are_written(fermi, tmp_path):
    from ase.md.verlet import VelocityVerlet

    atoms = molecule()
    atoms.calc = MACECalculator(models=fermi)
    VelocityVerlet(atoms, timestep=0.1).run(3)
    ase.io.write(tmp_path / "a.xyz", atoms)
    assert os.path.getsize(tmp_path / "a.xyz")
