"""Elements, E0s, neighbours, scale and means, against plain loops over what the files say."""

import logging

import ase.io
import numpy as np
import pytest

from mace.exceptions import InputError
from mace.tools.datasets import load_heads
from mace.tools.distributed import Ranks
from mace.tools.graphs import build_graphs
from mace.tools.statistics import measure
from tests.tiny_run import FERMI, edit, make_plan, write_frames
from tests.tolerances import relative

E0 = {"H": -1.0, "O": -2.0}


@pytest.fixture
def folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 12)
    write_frames(tmp_path / "valid.xyz", 4, seed=2)
    return tmp_path


def close(expected):
    return pytest.approx(expected, rel=relative("statistics"))


def statistics(plan):
    ranks = Ranks.single()
    heads = load_heads(plan, ranks)
    return measure(heads, build_graphs(heads, plan, ranks), plan, ranks)


def frames(path, labelled=lambda atoms: True):
    return [atoms for atoms in ase.io.read(path, ":") if labelled(atoms)]


def per_atom(atoms, energies=E0):
    return (atoms.info["REF_energy"] - sum(energies[s] for s in atoms.symbols)) / len(atoms)


def test_elements_energies_and_means(folder, caplog):
    caplog.set_level(logging.INFO)
    measured = statistics(make_plan(folder, **FERMI))
    train = frames(folder / "train.xyz")
    assert measured.z_table.zs == [1, 8] and measured.heads == ("default",)
    assert measured.atomic_energies.tolist() == [[-1.0, -2.0]]
    assert measured.mean == close(np.mean([per_atom(atoms) for atoms in train]))
    squares = np.concatenate([atoms.arrays["REF_forces"].ravel() ** 2 for atoms in train])
    assert measured.std == close(np.sqrt(squares.mean()))
    assert measured.mean_electron == close(np.mean([atoms.info["electron"] for atoms in train]))
    assert measured.mean_potential == close(np.mean([atoms.info["potential"] for atoms in train]))
    for line in (
        "Atomic Numbers used: [1, 8]",
        "Isolated Atomic Energies (E0s) not in training file, using command line argument",
        "Atomic Energies used (z: eV) for head default: {1: -1.0, 8: -2.0}",
        "Computing average number of neighbors",
        f"Average number of neighbors: {measured.avg_num_neighbors}",
    ):
        assert line in caplog.messages


def test_a_model_without_electrons_has_no_means_of_them(folder):
    measured = statistics(make_plan(folder))
    assert measured.mean_electron is None and measured.mean_potential is None


def test_d20_atoms_without_neighbours_count(folder):
    r_max = 1.3
    train = frames(folder / "train.xyz")
    distances = [atoms.get_all_distances(mic=True) for atoms in train]
    edges = sum(int(((d < r_max) & ~np.eye(len(d), dtype=bool)).sum()) for d in distances)
    lonely = sum(int((((d < r_max).sum(axis=1)) == 1).sum()) for d in distances)
    assert lonely > 0
    measured = statistics(make_plan(folder, r_max=r_max))
    assert measured.avg_num_neighbors == edges / sum(len(atoms) for atoms in train)


def test_d11_the_whole_training_set_enters_whatever_the_batch_size(folder):
    small, large = (statistics(make_plan(folder, batch_size=size)) for size in (5, 12))
    assert small.avg_num_neighbors == large.avg_num_neighbors
    assert (small.mean, small.std) == (large.mean, large.std)


def test_an_unusual_number_of_neighbours_is_a_warning(folder, caplog):
    statistics(make_plan(folder, r_max=1.3))
    assert any(line.startswith("Unusual average number of neighbors: ") for line in caplog.messages)


def test_a_given_number_of_neighbours_is_taken(folder):
    flags = {"compute_avg_num_neighbors": "False", "avg_num_neighbors": 6}
    assert statistics(make_plan(folder, **flags)).avg_num_neighbors == 6.0


@pytest.mark.parametrize("scaling", ["rms_forces_scaling", "std_scaling"])
def test_d14_labels_that_are_missing_or_of_weight_zero_do_not_enter(folder, scaling):
    path = folder / "train.xyz"
    edit(path, ("REF_energy", "other"), line=1)
    second = 3 + int(path.read_text().split("\n")[0]) + 0
    edit(path, ("REF_energy", "config_energy_weight=0.0 config_forces_weight=0.0 REF_energy"), line=second)
    measured = statistics(make_plan(folder, scaling=scaling))
    train = frames(path)
    assert "REF_energy" not in train[0].info and train[1].info["config_energy_weight"] == 0.0
    values = np.array([per_atom(atoms) for atoms in train[2:]])
    assert measured.mean == close(values.mean())
    if scaling == "std_scaling":
        expected = np.sqrt(np.square(values - values.mean()).sum() / (len(values) - 1 + 1e-6))
    else:
        forces = [atoms.arrays["REF_forces"].ravel() for atoms in [train[0], *train[2:]]]
        expected = np.sqrt(np.square(np.concatenate(forces)).mean())
    assert measured.std == close(expected)


def test_b18_no_scaling_is_scale_one_and_shift_zero(folder):
    measured = statistics(make_plan(folder, model="ScaleShiftMACE", scaling="no_scaling"))
    assert measured.mean.tolist() == [0.0] and measured.std.tolist() == [1.0]


@pytest.mark.parametrize(
    ("scaling", "given"),
    [
        ("rms_forces_scaling", {"mean": -0.25}),
        ("rms_forces_scaling", {"std": 0.75}),
        ("rms_forces_scaling", {"mean": -0.25, "std": 0.75}),
        ("no_scaling", {"mean": -0.25}),
    ],
)
def test_d17_a_given_mean_or_std_is_respected_alone(folder, given, scaling):
    measured = statistics(make_plan(folder, scaling=scaling, **given))
    free = statistics(make_plan(folder, scaling=scaling))
    assert measured.mean.tolist() == [given.get("mean", free.mean[0])]
    assert measured.std.tolist() == [given.get("std", free.std[0])]


def test_a_scale_of_zero_becomes_one(folder, caplog):
    write_frames(folder / "train.xyz", 1, nmin=3)
    measured = statistics(make_plan(folder, scaling="std_scaling", batch_size=1, r_max=5.0))
    assert measured.std.tolist() == [1.0]
    assert "Standard deviation of the scaling is zero, Changing to no scaling" in caplog.messages


def test_a_mean_that_cannot_be_measured_is_zero_and_said(folder, caplog):
    for kind in ("train", "valid"):
        edit(folder / f"{kind}.xyz", ("REF_energy", "other"))
    assert statistics(make_plan(folder, loss="forces_only")).mean.tolist() == [0.0]
    assert any("mean energy per atom of head default: it is set to 0" in line for line in caplog.messages)


def test_a10_the_means_are_those_of_all_heads_and_of_labels_only(folder):
    more = write_frames(folder / "more.xyz", 7, seed=3, potential_every=2)
    placeholder = edit(folder / "train.xyz", ("potential=", "potential=-10000 was="), line=1)
    common = {"valid_file": str(folder / "valid.xyz"), "E0s": "{1: -1.0, 8: -2.0}"}
    heads = {"a": {"train_file": str(placeholder), **common}, "b": {"train_file": str(more), **common}}
    measured = statistics(make_plan(folder, heads=heads, **FERMI))
    every = frames(placeholder) + frames(more)
    levels = [atoms.info["potential"] for atoms in every if "potential" in atoms.info]
    levels = [level for level in levels if level != -10000]
    assert len(levels) == 11 + 4
    assert measured.mean_potential == close(np.mean(levels))
    assert measured.mean_electron == close(np.mean([atoms.info["electron"] for atoms in every]))


def test_every_head_has_its_own_energies_and_scale(folder):
    write_frames(folder / "other.xyz", 5, seed=3)
    common = {"valid_file": str(folder / "valid.xyz")}
    heads = {
        "a": {"train_file": str(folder / "train.xyz"), "E0s": "{1: -1.0, 8: -2.0}", **common},
        "b": {"train_file": str(folder / "other.xyz"), "E0s": "{1: -1.5, 8: -2.5}", **common},
    }
    measured = statistics(make_plan(folder, heads=heads))
    assert measured.atomic_energies.tolist() == [[-1.0, -2.0], [-1.5, -2.5]]
    other = [per_atom(atoms, {"H": -1.5, "O": -2.5}) for atoms in frames(folder / "other.xyz")]
    assert measured.mean[1] == close(np.mean(other))
    assert measured.mean.shape == measured.std.shape == (2,)


def least_squares(train, energies=None):
    """E0s of H and O that fit the energies best, those in ``energies`` held."""
    energies = energies or {}
    free = [s for s in "HO" if s not in energies]
    counts = np.array([[atoms.symbols.formula.count().get(s, 0) for s in free] for atoms in train])
    rest = [atoms.info["REF_energy"] - sum(energies.get(s, 0.0) for s in atoms.symbols) for atoms in train]
    return dict(zip(free, np.linalg.lstsq(counts, np.array(rest), rcond=None)[0], strict=True))


def test_average_e0s_fit_the_labelled_energies(folder, caplog):
    caplog.set_level(logging.INFO)
    edit(folder / "train.xyz", ("REF_energy", "other"), line=1)
    measured = statistics(make_plan(folder, E0s="average"))
    fit = least_squares(frames(folder / "train.xyz")[1:])
    assert measured.atomic_energies[0] == close([fit["H"], fit["O"]])
    assert "Computing average Atomic Energies using least squares regression" in caplog.messages


def test_e0s_from_a_json_file(folder, caplog):
    caplog.set_level(logging.INFO)
    path = folder / "e0s.json"
    path.write_text('{"1": -1.25, "8": -2.25, "29": 5}')
    measured = statistics(make_plan(folder, E0s=path))
    assert measured.atomic_energies.tolist() == [[-1.25, -2.25]]
    assert f"Loading atomic energies from {path}" in caplog.messages


def isolated_hydrogen(folder):
    """Only hydrogen has an IsolatedAtom entry, of -1.5 eV."""
    lines = (folder / "train.xyz").read_text()
    entry = '1\nREF_energy=-1.5 config_type=IsolatedAtom pbc="F F F"\nH 0.0 0.0 0.0\n'
    entry = entry.replace("REF_energy", "Properties=species:S:1:pos:R:3 REF_energy")
    (folder / "train.xyz").write_text(entry + lines)


def test_d21_isolated_atoms_come_first_and_e0s_fill_in_the_rest(folder, caplog):
    caplog.set_level(logging.INFO)
    isolated_hydrogen(folder)
    measured = statistics(make_plan(folder, E0s="{1: -7.0, 8: -2.0}"))
    assert measured.atomic_energies.tolist() == [[-1.5, -2.0]]
    assert "Using isolated atom energies from training file" in caplog.messages


def test_d21_the_average_is_taken_after_the_isolated_atoms(folder):
    isolated_hydrogen(folder)
    measured = statistics(make_plan(folder, E0s="average"))
    train = frames(folder / "train.xyz", lambda atoms: len(atoms) > 1)
    assert measured.atomic_energies[0] == close([-1.5, least_squares(train, {"H": -1.5})["O"]])


def test_isolated_atoms_alone_are_enough(folder):
    write_frames(folder / "train.xyz", 6, isolated=1)
    assert statistics(make_plan(folder, E0s=None)).atomic_energies.tolist() == [[-1.0, -2.0]]


def test_an_element_that_isolated_atoms_lack_needs_e0s(folder):
    isolated_hydrogen(folder)
    with pytest.raises(InputError, match=r"E0s not found in training file .* atomic numbers \[8\]"):
        statistics(make_plan(folder, E0s=None))


def test_further_elements_of_the_model_have_energy_zero_unless_given(folder):
    measured = statistics(make_plan(folder, atomic_numbers="[1, 8, 29]"))
    assert measured.z_table.zs == [1, 8, 29]
    assert measured.atomic_energies.tolist() == [[-1.0, -2.0, 0.0]]
