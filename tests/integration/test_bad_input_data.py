"""Data that cannot be used: one InputError each, with the file, the frame, the key and what to do."""

import re

import pytest

from mace.exceptions import InputError
from mace.tools.datasets import load_heads
from mace.tools.distributed import Ranks
from mace.tools.graphs import build_graphs
from mace.tools.statistics import measure
from tests.tiny_run import FERMI, edit, make_plan, write_frames


@pytest.fixture
def folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 8)
    write_frames(tmp_path / "valid.xyz", 4, seed=2)
    return tmp_path


def drop(path, key, *, frames=None):
    """Take ``key=value`` out of all comment lines, or of those of some frames."""
    count = -1
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines):
        count += "Properties=" in line
        if "Properties=" in line and (frames is None or count in frames):
            lines[number] = " ".join(word for word in line.split(" ") if not word.startswith(f"{key}="))
    path.write_text("\n".join(lines))


def refused(plan, ranks=None):
    """The message of the InputError that the data of a plan cause."""
    ranks = ranks or Ranks.single()
    with pytest.raises(InputError) as caught:
        heads = load_heads(plan, ranks)
        measure(heads, build_graphs(heads, plan, ranks), plan, ranks)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_missing_file(folder):
    assert "nowhere.xyz' does not exist" in refused(make_plan(folder, train_file=folder / "nowhere.xyz"))


@pytest.mark.parametrize("kind", ["train", "valid", "test"])
def test_an_empty_file(folder, kind):
    empty = folder / "empty.xyz"
    empty.touch()
    message = refused(make_plan(folder, **{f"{kind}_file": empty}))
    assert "empty.xyz' is empty" in message


def test_a_file_of_isolated_atoms_only(folder):
    write_frames(folder / "train.xyz", 0, isolated=1)
    assert "nothing to train on" in refused(make_plan(folder))


@pytest.mark.parametrize("kind", ["train", "valid"])
@pytest.mark.parametrize("name", ["energy", "forces"])
def test_no_label_at_all_of_a_quantity_in_the_loss(folder, kind, name):
    path = folder / f"{kind}.xyz"
    path.write_text(path.read_text().replace(f"REF_{name}", f"ref_{name}"))
    message = refused(make_plan(folder))
    for part in (str(path), name, f"'REF_{name}'", f"--{name}_key", f"ref_{name}"):
        assert part in message


def test_no_energy_is_fine_for_a_loss_without_energy(folder):
    for kind in ("train", "valid"):
        drop(folder / f"{kind}.xyz", "REF_energy")
    (head,) = load_heads(make_plan(folder, loss="forces_only"), Ranks.single())
    assert all(configuration.energy is None for configuration in head.train)


def test_a_label_that_only_stage_two_compares_is_needed_too(folder):
    drop(folder / "train.xyz", "REF_energy")
    load_heads(make_plan(folder, energy_weight=0.0), Ranks.single())
    message = refused(make_plan(folder, energy_weight=0.0, swa=True, start_swa=2))
    assert "'REF_energy'" in message


def test_no_fermi_level_to_train_on(folder):
    drop(folder / "train.xyz", "potential")
    message = refused(make_plan(folder, **FERMI))
    assert "'potential'" in message and "--potential_key" in message


def test_a10_a_fermi_model_needs_a_fermi_level_whatever_its_weight(folder):
    drop(folder / "train.xyz", "potential")
    message = refused(make_plan(folder, **FERMI, potential_weight=0.0))
    assert "FermiMACE" in message and "key potential" in message


def test_fermi_levels_that_are_all_placeholders_are_none(folder):
    path = folder / "train.xyz"
    path.write_text(re.sub(r"potential=\S+", "potential=-10000", path.read_text()))
    assert "'potential'" in refused(make_plan(folder, **FERMI))


def test_labels_of_weight_zero_are_none(folder):
    path = folder / "train.xyz"
    path.write_text(path.read_text().replace("REF_energy", "config_forces_weight=0.0 REF_energy"))
    message = refused(make_plan(folder))
    assert "forces" in message and "weight zero" in message


def test_a8_frames_without_electron_number_are_named(folder):
    drop(folder / "train.xyz", "electron", frames=[0, 3])
    message = refused(make_plan(folder, **FERMI))
    assert f"frames 0, 3 (the first is 0) of '{folder / 'train.xyz'}' have no electron number" in message
    assert "(key 'electron' in info, --electron_key)" in message
    assert load_heads(make_plan(folder), Ranks.single())


@pytest.mark.parametrize("kind", ["valid", "test"])
def test_a8_frames_to_evaluate_need_an_electron_number_too(folder, kind):
    path = write_frames(folder / "other.xyz", 8, seed=3)
    drop(path, "electron", frames=range(1, 8))
    message = refused(make_plan(folder, **FERMI, **{f"{kind}_file": path}))
    assert "7 frames (1, 2, 3, 4, 5, ...; the first is 0)" in message


def test_no_electron_number_at_all(folder):
    drop(folder / "train.xyz", "electron")
    message = refused(make_plan(folder, **FERMI))
    assert "looked for 'electron'" in message and "REF_energy" in message


@pytest.mark.parametrize("key", ["REF_energy", "potential", "electron"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_labels_that_are_not_finite(folder, key, value):
    path = folder / "valid.xyz"
    lines = path.read_text().split("\n")
    lines[1] = re.sub(rf"{key}=\S+", f"{key}={value}", lines[1])
    path.write_text("\n".join(lines))
    message = refused(make_plan(folder, **FERMI))
    assert "frame 0" in message and str(path) in message and f"'{key}'" in message


def test_a_force_that_is_not_finite(folder):
    path = folder / "train.xyz"
    lines = path.read_text().split("\n")
    lines[2] = " ".join([*lines[2].split()[:-1], "nan"])
    path.write_text("\n".join(lines))
    assert "forces of frame 0" in refused(make_plan(folder))


@pytest.mark.parametrize("kind", ["valid", "test"])
def test_an_element_that_training_lacks(folder, kind):
    path = write_frames(folder / "other.xyz", 4, seed=3)
    lines = path.read_text().split("\n")
    lines[2] = "Cu" + lines[2][1:]
    path.write_text("\n".join(lines))
    message = refused(make_plan(folder, **{f"{kind}_file": path}))
    assert "frame 0" in message and str(path) in message and "Cu (29)" in message


@pytest.mark.parametrize("kind", ["train", "test"])
def test_an_element_that_the_given_list_lacks(folder, kind):
    if kind == "test":
        edit(folder / "train.xyz", ("O ", "H "))
        edit(folder / "valid.xyz", ("O ", "H "))
    test = write_frames(folder / "test.xyz", 4, seed=3)
    message = refused(make_plan(folder, atomic_numbers="[1]", test_file=test))
    assert message.startswith(f"frame 0 of '{folder / kind}.xyz' holds O (8), which --atomic_numbers=[1]")


@pytest.mark.parametrize("key", ["config_weight", "config_energy_weight"])
def test_a_negative_weight(folder, key):
    edit(folder / "train.xyz", ("REF_energy", f"{key}=-1 REF_energy"), line=1)
    message = refused(make_plan(folder))
    assert message.startswith(
        f"{key} of frame 0 of '{folder / 'train.xyz'}' is -1.0: it must be 0 or greater"
    )


def test_a_fraction_that_leaves_no_frame(folder):
    message = refused(make_plan(folder, valid_file=None, valid_fraction=0.05))
    assert "valid_fraction=0.05 of 8 structures leaves none" in message


def test_an_element_without_e0(folder):
    message = refused(make_plan(folder, E0s="{1: -1.0}"))
    assert message == (
        "Atomic number 8 not found in atomic_energies_dict for head default, add E0s for this atomic number"
    )


def test_no_e0s_at_all(folder):
    message = refused(make_plan(folder, E0s=None))
    assert "E0s not found in training file and not specified in command line" in message
    assert "[1, 8]" in message


@pytest.mark.parametrize("content", ["not json", "[1, 2]", '{"H": -1.0}', None])
def test_an_e0s_file_that_cannot_be_used(folder, content):
    path = folder / "e0s.json"
    if content is not None:
        path.write_text(content)
    assert f"E0s file '{path}'" in refused(make_plan(folder, E0s=path))


def test_average_e0s_without_energies(folder):
    for kind in ("train", "valid"):
        drop(folder / f"{kind}.xyz", "REF_energy")
    message = refused(make_plan(folder, loss="forces_only", E0s="average"))
    assert "--E0s=average needs energies" in message


@pytest.mark.parametrize(
    ("scaling", "key", "flags"),
    [
        ("rms_forces_scaling", "REF_forces", {"forces_weight": 0.0}),
        ("std_scaling", "REF_energy", {"loss": "forces_only"}),
    ],
)
def test_a_scaling_that_cannot_be_measured(folder, scaling, key, flags):
    for kind in ("train", "valid"):
        path = folder / f"{kind}.xyz"
        path.write_text(path.read_text().replace(key, f"other_{key}"))
    message = refused(make_plan(folder, scaling=scaling, **flags))
    assert f"--scaling={scaling} needs" in message


def test_a_cutoff_that_reaches_no_neighbour(folder):
    message = refused(make_plan(folder, r_max=0.5))
    assert "average number of neighbors is 0" in message and "--r_max=0.5" in message


def test_a_cell_that_cannot_be_used_names_its_frame(folder):
    path = folder / "valid.xyz"
    lines = path.read_text().split("\n")
    lines[1] = lines[1].replace("8.0 0 0 0 8.0 0 0 0 8.0", "8.0 0 0 8.0 0 0 0 0 8.0")
    path.write_text("\n".join(lines))
    message = refused(make_plan(folder))
    assert "frame 0" in message and str(path) in message
