import logging
import time

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from ase.io import read, write
from data.make_tiny import main as make_tiny

from mace.data import load_from_xyz
from mace.data.readers import (
    count_force_components,
    count_labels,
    describe_labels,
    read_configurations,
    read_frames,
)
from mace.exceptions import InputError


def tiny(folder, n=4, **options):
    path = folder / "tiny.xyz"
    make_tiny(path, n, 1, **options)
    return path


def rewritten(path, change):
    """The file after ``change`` of each of its frames."""
    frames = read(path, ":")
    for index, atoms in enumerate(frames):
        change(index, atoms)
    write(path, frames)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("", "is empty"),
        ("\n\n", "can't be read|holds no structure"),
        ("3\ncut off\nH 0 0 0\n", "can't be read"),
        ("no structure at all\n", "can't be read"),
    ],
)
def test_unusable_files_are_named(tmp_path, content, message):
    path = tmp_path / "broken.xyz"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=rf"data file '\S*broken.xyz' ({message})") as caught:
        read_frames(path)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_data_file(tmp_path):
    with pytest.raises(InputError, match="can't be read"):
        read_frames(tmp_path)


def test_a_path_with_an_at_sign_is_a_path(tmp_path):
    path = tmp_path / "a@1.xyz"
    make_tiny(path, 2, 1)
    assert len(read_frames(path)) == 2


def test_reading_takes_time_in_proportion_to_the_size(tmp_path):
    def seconds(copies):
        path = tmp_path / f"{copies}.xyz"
        path.write_text(tiny(tmp_path, 25).read_text() * copies)
        began = time.process_time()
        assert len(read_configurations(path, {}).configurations) == 25 * copies
        return time.process_time() - began

    seconds(1)
    assert seconds(40) < 3 * 8 * seconds(5)  # a quadratic reader takes 64 times as long


def test_configurations_know_their_frame(tmp_path):
    path = tiny(tmp_path, isolated=1)
    loaded = read_configurations(path, {}, extract_atomic_energies=True)
    assert [config.frame for config in loaded.configurations] == [2, 3, 4, 5]
    assert loaded.configurations[0].origin == f"frame 2 of {str(path)!r}"


@pytest.mark.parametrize(
    ("key", "value"),
    [("REF_energy", np.nan), ("potential", np.inf), ("electron", -np.inf), ("REF_energy", "unknown")],
)
def test_unusable_labels_name_file_frame_and_key(tmp_path, key, value):
    path = rewritten(tiny(tmp_path), lambda i, atoms: atoms.info.update({key: value} if i == 2 else {}))
    with pytest.raises(InputError, match=rf"frame 2 of '\S*tiny.xyz' \(key '{key}'\)"):
        load_from_xyz(path, None)


def test_unusable_forces_name_file_frame_and_key(tmp_path):
    def spoil(index, atoms):
        if index == 1:
            atoms.arrays["REF_forces"][0, 0] = np.nan

    path = rewritten(tiny(tmp_path), spoil)
    with pytest.raises(
        InputError, match=r"forces of frame 1 of '\S*tiny.xyz' \(key 'REF_forces'\) is not finite"
    ):
        load_from_xyz(path, None)


def test_isolated_atoms_give_atomic_energies(tmp_path):
    path = tiny(tmp_path, isolated=1)
    energies, configs = load_from_xyz(path, None, extract_atomic_energies=True)
    assert energies == {1: -1.0, 8: -2.0}
    assert len(configs) == 4
    energies, configs = load_from_xyz(path, None, extract_atomic_energies=True, keep_isolated_atoms=True)
    assert (energies, len(configs)) == ({1: -1.0, 8: -2.0}, 6)
    energies, configs = load_from_xyz(path, None)
    assert (energies, len(configs)) == ({}, 6)


def test_an_isolated_atom_without_energy_gives_zero_and_a_warning(tmp_path, caplog):
    path = rewritten(tiny(tmp_path, isolated=1), lambda i, a: a.info.pop("REF_energy") if i == 0 else None)
    energies, _ = load_from_xyz(path, None, extract_atomic_energies=True)
    assert energies == {1: 0.0, 8: -2.0}
    assert "isolated H atom, frame 0" in caplog.text


def test_the_head_is_the_one_that_is_read_for(tmp_path):
    path = tiny(tmp_path, head="other")
    _, configs = load_from_xyz(path, None, head_name="mine")
    assert {config.head for config in configs} == {"mine"}


def test_f10_frames_may_keep_their_own_head(tmp_path):
    path = rewritten(tiny(tmp_path), lambda i, atoms: atoms.info.update({"head": "other"} if i == 1 else {}))
    loaded = read_configurations(path, {}, head_name="mine", heads_from_file=True)
    assert [config.head for config in loaded.configurations] == ["mine", "other", "mine", "mine"]


def test_a20_other_keys_for_electron_and_potential(tmp_path):
    path = tiny(tmp_path)
    path.write_text(path.read_text().replace("electron=", "nelect=").replace("potential=", "fermi="))
    _, configs = load_from_xyz(path, None, electron_key="nelect", potential_key="fermi")
    original = tiny(tmp_path)
    _, expected = load_from_xyz(original, None)
    assert [config.electron for config in configs] == [config.electron for config in expected]
    assert [config.potential for config in configs] == [config.potential for config in expected]


def with_standard_names(path, fixed=()):
    frames = read(path, ":")
    for atoms in frames:
        energy, forces = atoms.info.pop("REF_energy"), atoms.arrays.pop("REF_forces")
        atoms.set_constraint(FixAtoms(list(fixed)) if fixed else None)
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    write(path, frames)


@pytest.mark.parametrize("fixed", [(), (0, 1)])
def test_standard_names_give_the_labels_of_the_prefixed_ones(tmp_path, fixed, caplog):
    """ASE keeps them in its results, and writes constraints to the file; neither may change them."""
    path = tiny(tmp_path)
    _, expected = load_from_xyz(path, None)
    with_standard_names(path, fixed)
    with caplog.at_level(logging.WARNING):
        _, configs = load_from_xyz(path, None, energy_key="energy", forces_key="forces")
    for config, other in zip(configs, expected, strict=True):
        assert config.energy == pytest.approx(other.energy)
        np.testing.assert_allclose(config.forces, other.forces, atol=1e-8)  # ASE writes eight digits
    assert "'REF_energy' (--energy_key) is safer" in caplog.text


def test_f9_a_missing_standard_label_names_file_and_frame(tmp_path):
    path = tiny(tmp_path)
    with_standard_names(path)
    text = path.read_text().splitlines()
    text[1] = " ".join(word for word in text[1].split(" ") if not word.startswith("energy="))
    path.write_text("\n".join(text) + "\n")
    with pytest.raises(
        InputError, match=r"frame 0 of '\S*tiny.xyz' has no energy .*'energy' \(--energy_key\)"
    ):
        load_from_xyz(path, None, energy_key="energy", forces_key="forces")


def test_isolated_atoms_need_no_forces_under_the_standard_name(tmp_path):
    atoms = Atoms("H", info={"config_type": "IsolatedAtom"})
    atoms.calc = SinglePointCalculator(atoms, energy=-13.6)
    write(tmp_path / "h.xyz", atoms)
    keys = {"energy_key": "energy", "forces_key": "forces"}
    assert load_from_xyz(tmp_path / "h.xyz", None, extract_atomic_energies=True, **keys)[0] == {1: -13.6}


def test_labels_are_counted_by_kind(tmp_path):
    path = rewritten(tiny(tmp_path, potential_every=2), lambda i, a: a.info.update(REF_energy=0.0))
    _, configs = load_from_xyz(path, None)
    counts = count_labels(configs)
    assert counts["energy"] == 4  # F11: an energy of 0 is a label
    assert (counts["forces"], counts["electron"], counts["potential"], counts["stress"]) == (4, 4, 2, 0)
    assert describe_labels(configs) == "energy 4, forces 4, electron 4, potential 2 (2 masked)"
    assert describe_labels([]) == "none"
    assert count_force_components(configs) == 3 * sum(len(config.positions) for config in configs)


def test_the_sentinel_is_no_label(tmp_path):
    path = rewritten(tiny(tmp_path), lambda i, atoms: atoms.info.update(potential=-10000.0))
    loaded = read_configurations(path, {})
    assert count_labels(loaded.configurations)["potential"] == 4
    assert count_labels(loaded.configurations, empty_potential_value=-10000.0)["potential"] == 0
    loaded.require(["potential"])
    with pytest.raises(InputError, match="every value of 'potential' is -10000.0, which --empty_potential"):
        loaded.require(["potential"], empty_potential_value=-10000.0)


def test_a_file_without_a_label_says_what_was_looked_for_and_what_is_there(tmp_path):
    path = tiny(tmp_path)
    loaded = read_configurations(path, {"energy": "no_such"})
    loaded.require(["forces", "potential", "electron"])
    message = (
        rf"no structure of '{path}' has a label for energy: looked for 'no_such' in info \(--energy_key\),"
        " the file has info: REF_energy electron potential, arrays: REF_forces, results: nothing"
    )
    with pytest.raises(InputError, match=message):
        loaded.require(["energy", "forces"])


def test_a8_frames_without_an_electron_number_are_named(tmp_path):
    loaded = read_configurations(tiny(tmp_path, n=8, electron_missing=2), {})
    with pytest.raises(
        InputError, match=r"2 of 8 structures .* no electron .*'electron' in info.* frames 0, 1$"
    ):
        loaded.require_in_all("electron")
    many = read_configurations(tiny(tmp_path, n=12, electron_missing=11), {})
    with pytest.raises(InputError, match=r"frames 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.$"):
        many.require_in_all("electron")
    read_configurations(tiny(tmp_path), {}).require_in_all("electron")
