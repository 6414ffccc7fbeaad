"""mace_prepare_data: shards and statistics, the same for every number of processes, whole or not at all."""

import ast
import json

import ase.io
import h5py
import numpy as np
import pytest

from mace.arguments.parsers import build_preprocess_arg_parser
from mace.cli.preprocess_data import run
from mace.data.hdf5_files import files_of
from mace.data.readers import read_configurations
from mace.data.stored import StoredConfigurations
from mace.exceptions import InputError
from mace.tools import files
from mace.tools.datasets import load_heads
from mace.tools.distributed import Ranks
from mace.tools.graphs import build_graphs
from mace.tools.statistics import measure
from tests.tiny_run import edit, make_plan, write_frames


@pytest.fixture
def folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 13, stress=1, potential_every=2, isolated=1)
    write_frames(tmp_path / "valid.xyz", 5, seed=2)
    write_frames(tmp_path / "test.xyz", 3, seed=3)
    return tmp_path


def prepare(folder, **flags):
    """The folder that mace_prepare_data has written; a flag of value None is left out."""
    given = {f"{kind}_file": folder / f"{kind}.xyz" for kind in ("train", "valid", "test")}
    given |= {
        "r_max": 4.0,
        "num_process": 1,
        "seed": 1,
        "h5_prefix": folder / "h5",
        "work_dir": folder,
        **flags,
    }
    words = [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in given.items()
        if value is not None
    ]
    run(build_preprocess_arg_parser().parse_args(words))
    return folder / "h5"


def stored(folder):
    return list(StoredConfigurations.open(files_of(folder)))


def content(configuration):
    """Everything but where it was read."""
    fields = {name: value for name, value in vars(configuration).items() if name not in ("file", "frame")}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields.items()
    }


def contents(configurations):
    return [content(configuration) for configuration in configurations]


@pytest.mark.slow
def test_order_and_numbers_do_not_depend_on_the_number_of_processes(folder):
    written = {}
    for count in (1, 2, 3):
        h5 = prepare(folder, num_process=count, compute_statistics=True, h5_prefix=f"{folder}/{count}/h5/")
        h5 = folder / f"{count}" / "h5"
        names = {path.relative_to(h5).as_posix() for path in h5.rglob("*") if path.is_file()}
        shards = [f"{stem}_{i}.h5" for i in range(count) for stem in ("train/train", "val/val")]
        tests = [f"test/Default_Default_{i}.h5" for i in range(count)]
        assert names == {*shards, *tests, "statistics.json"}
        sets = {name: contents(stored(h5 / name)) for name in ("train", "val", "test")}
        written[count] = (sets, (h5 / "statistics.json").read_bytes())
    assert written[1] == written[2] == written[3]
    sets, _ = written[1]
    source = {
        name: read_configurations(folder / f"{name}.xyz", {}).configurations for name in ("valid", "test")
    }
    assert sets["test"] == contents(source["test"])
    assert sets["val"] != contents(source["valid"])  # shuffled
    assert sorted(map(str, sets["val"])) == sorted(map(str, contents(source["valid"])))


def test_every_label_of_the_source_is_there_and_no_other(folder):
    h5 = prepare(folder, shuffle=False, num_process=1)
    source = read_configurations(folder / "train.xyz", {}, extract_atomic_energies=True).configurations
    assert contents(stored(h5 / "train")) == contents(source)
    levels = [c.potential for c in stored(h5 / "train")]
    assert None in levels and any(levels)


@pytest.mark.parametrize("scaling", ["rms_forces_scaling", "std_scaling", "no_scaling"])
def test_f4_statistics_are_those_that_a_run_measures(folder, scaling):
    h5 = prepare(folder, compute_statistics=True, scaling=scaling, num_process=1, E0s="average")
    found = json.loads((h5 / "statistics.json").read_text())
    plan = make_plan(folder, scaling=scaling, E0s="average", model="ScaleShiftMACE")
    heads = load_heads(plan, Ranks.single())
    measured = measure(heads, build_graphs(heads, plan, Ranks.single()), plan, Ranks.single())
    energies = ast.literal_eval(found["atomic_energies"])
    assert (
        energies == dict(zip([1, 8], measured.atomic_energies[0].tolist(), strict=True)) == {1: -1.0, 8: -2.0}
    )
    assert all(type(z) is int for z in energies)
    assert ast.literal_eval(found["atomic_numbers"]) == [1, 8] and found["r_max"] == 4.0
    assert found["avg_num_neighbors"] == measured.avg_num_neighbors
    assert found["mean"] == pytest.approx(measured.mean[0], rel=1e-13)  # the order of summation differs
    assert found["std"] == pytest.approx(measured.std[0], rel=1e-13)
    assert found["scaling"] == scaling


def test_a_split_is_that_of_a_training_run(folder):
    h5 = prepare(folder, valid_file=None, test_file=None, valid_fraction=0.3, shuffle=False)
    (head,) = load_heads(make_plan(folder, valid_file=None, valid_fraction=0.3), Ranks.single())
    assert [c.energy for c in stored(h5 / "train")] == [c.energy for c in head.train]
    assert [c.energy for c in stored(h5 / "val")] == [c.energy for c in head.valid]
    assert not (h5 / "test").exists()


def test_heads_and_config_types_name_the_test_sets(folder):
    edit(folder / "test.xyz", ("electron=", "level=dft config_type=slab electron="), line=1)
    h5 = prepare(folder, head_key="level", config_type_weights="{'slab': 3.0}")
    assert [path.name for path in files_of(h5 / "test")] == ["Default_Default_0.h5", "slab_dft_0.h5"]
    (slab,) = stored(h5 / "test" / "slab_dft_0.h5")
    assert (slab.head, slab.config_type, slab.weight) == ("dft", "slab", 3.0)


def test_drop_last_is_what_upstreams_loaders_ask_for(folder):
    h5 = prepare(folder, num_process=2)
    for name, odd in (("train/train_1", True), ("val/val_0", True), ("test/Default_Default_0", True)):
        with h5py.File(h5 / f"{name}.h5") as file:
            assert bool(file.attrs["drop_last"]) is odd


def test_f5_the_prefix_is_a_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    prepare(folder, h5_prefix="", test_file=None, valid_file=None)
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["train", "val"]
    prepare(folder, h5_prefix="data", test_file=None)
    assert (folder / "data" / "train" / "train_0.h5").exists()


def refused(folder, **flags):
    with pytest.raises(InputError) as error:
        prepare(folder, **flags)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_bad_input_is_one_line_and_leaves_nothing(folder):
    other = write_frames(folder / "other.xyz", 3, seed=4)
    edit(other, ("O ", "Cu"))
    cases = [
        (refused(folder, train_file=folder / "no.xyz"), "does not exist"),
        (refused(folder, train_file=folder), "give the file to make HDF5 data of"),
        (refused(folder, valid_file=other), "Cu (29), which no training configuration of head Default does"),
        (refused(folder, atomic_numbers="[1]"), "O (8), which --atomic_numbers=[1]"),
        (refused(folder, E0s="{1: 2.0", compute_statistics=True), "--E0s is"),
        (refused(folder, heads="{'a': {}}"), "--heads={'a': {}} is not built yet"),
        (refused(folder, num_process=0), "--num_process is 0: it must be"),
    ]
    for message, expected in cases:
        assert expected in message
    nothing = {f"{name}_key": "nothing" for name in ("energy", "forces", "electron", "potential")}
    message = refused(folder, **nothing, stress_key="nothing", virials_key="nothing")
    assert "has a label: looked for nothing nothing" in message and "REF_energy" in message
    assert not (folder / "h5").exists()


def test_statistics_without_e0s_or_neighbours_are_refused(folder):
    source = write_frames(folder / "plain.xyz", 6)
    assert "E0s not found" in refused(folder, train_file=source, compute_statistics=True)
    assert not (folder / "h5").exists()
    message = refused(folder, r_max=0.5, compute_statistics=True)
    assert "average number of neighbors is 0" in message
    assert not (folder / "h5" / "statistics.json").exists()


def test_the_indices_of_a_split_are_written_when_nothing_can_be_refused_any_more(folder):
    source = write_frames(folder / "many.xyz", 40)
    split = {"train_file": source, "valid_file": None, "test_file": None, "valid_fraction": 0.3}
    indices = folder / "valid_indices_1.txt"
    indices.write_text("of an earlier run\n")
    refused(folder, **split, atomic_numbers="[1]")
    assert indices.read_text() == "of an earlier run\n"
    h5 = prepare(folder, **split, shuffle=False)
    energies = [frame.info["REF_energy"] for frame in ase.io.read(source, ":")]
    listed = [energies[int(line)] for line in indices.read_text().split()]
    assert listed == [c.energy for c in stored(h5 / "val")] and len(listed) == 12


@pytest.mark.slow
def test_shards_of_other_data_are_not_mixed_in(folder):
    h5 = prepare(folder, num_process=2)
    message = refused(folder, num_process=1)
    assert f"'{h5 / 'test'}' holds Default_Default_1.h5 of other data" in message
    prepare(folder, num_process=2)  # the same names: they are replaced


def test_a_file_appears_whole_or_not_at_all(folder, monkeypatch):
    h5 = prepare(folder)
    before = (h5 / "train" / "train_0.h5").read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    assert "train_0.h5' cannot be written: No space left on device" in refused(folder)
    assert (h5 / "train" / "train_0.h5").read_bytes() == before
    assert [path.name for path in (h5 / "train").iterdir()] == ["train_0.h5"]


@pytest.mark.slow
def test_fewer_frames_than_processes(folder):
    single = write_frames(folder / "single.xyz", 2)
    h5 = prepare(folder, train_file=single, num_process=4)
    assert len(files_of(h5 / "train")) == 2 and len(stored(h5 / "train")) == 2
