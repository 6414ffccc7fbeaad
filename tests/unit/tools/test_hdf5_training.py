"""A run from HDF5 data: configurations, checks, statistics and batches as from the file they hold."""

import gc
import pickle
import weakref

import h5py
import pytest
import torch

from mace.data import save_configurations_as_HDF5
from mace.data.readers import read_configurations
from mace.data.stored import StoredConfigurations
from mace.exceptions import InputError
from mace.tools import graphs as graphs_module
from mace.tools.datasets import load_heads
from mace.tools.distributed import Ranks
from mace.tools.graphs import build_graphs
from mace.tools.loaders import build_loaders
from mace.tools.statistics import measure
from tests.tiny_run import FERMI, edit, make_plan, write_frames

ENERGIES = "{1: -1.0, 8: -2.0}"


@pytest.fixture
def folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 13, potential_every=2)
    write_frames(tmp_path / "valid.xyz", 5, seed=2)
    write_frames(tmp_path / "test.xyz", 3, seed=3)
    edit(tmp_path / "test.xyz", ("electron=", "config_type=slab electron="), line=1)
    for name, parts in (("train", 3), ("valid", 1), ("test", 2)):
        configurations = read_configurations(tmp_path / f"{name}.xyz", {}).configurations
        shards = tmp_path / "h5" / name
        shards.mkdir(parents=True)
        for part in range(parts):
            size = -(-len(configurations) // parts)
            with h5py.File(shards / f"{name}_{part}.h5", "w") as file:
                save_configurations_as_HDF5(configurations[part * size : (part + 1) * size], None, file)
    return tmp_path


def prepared(folder, *names):
    return {f"{name}_file": folder / "h5" / name for name in names}


def loaded(plan):
    ranks = Ranks.single()
    heads = load_heads(plan, ranks)
    graphs = build_graphs(heads, plan, ranks)
    return heads[0], measure(heads, graphs, plan, ranks), build_loaders(graphs, plan, ranks)


def everything(loader):
    return [{key: value for key, value in batch.to_dict().items()} for batch in loader]


def same(first, second):
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            equal = torch.equal(value, other[key]) if isinstance(value, torch.Tensor) else value == other[key]
            assert equal, key


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("E0s", [ENERGIES, "average"])
def test_batches_and_statistics_are_those_of_the_source(folder, workers, E0s):
    flags = {"E0s": E0s, "test_file": folder / "test.xyz", **FERMI}
    head, statistics, loaders = loaded(make_plan(folder, **flags))
    flags |= {"num_workers": workers, **prepared(folder, "train", "valid", "test")}
    stored, found, from_file = loaded(make_plan(folder, **flags))
    assert isinstance(stored.train, StoredConfigurations) and stored.elements == head.elements
    for name in ("avg_num_neighbors", "mean_electron", "mean_potential"):
        assert getattr(found, name) == getattr(statistics, name)
    for name in ("atomic_energies", "mean", "std"):
        assert getattr(found, name).tolist() == getattr(statistics, name).tolist()
    for epoch in range(2):
        loaders.train_sampler.set_epoch(epoch)
        from_file.train_sampler.set_epoch(epoch)
        same(everything(from_file.train), everything(loaders.train))
    same(everything(from_file.valid["default"]), everything(loaders.valid["default"]))
    assert list(from_file.tests) == list(loaders.tests) == ["slab_default", "Default_default"]
    for name, tests in loaders.tests.items():
        same(everything(from_file.tests[name]), everything(tests))


def test_a_split_of_a_file_is_that_of_its_source(folder):
    flags = {"valid_file": None, "valid_fraction": 0.4}
    (head,) = load_heads(make_plan(folder, **flags), Ranks.single())
    (stored,) = load_heads(make_plan(folder, **flags, **prepared(folder, "train")), Ranks.single())
    assert list(stored.held_back) == list(head.held_back)
    assert [c.energy for c in stored.train] == [c.energy for c in head.train]
    assert [c.energy for c in stored.valid] == [c.energy for c in head.valid]
    assert isinstance(stored.valid, StoredConfigurations)


def test_graphs_of_a_file_are_not_kept_and_not_built_before_they_are_needed(folder, monkeypatch):
    given = {"std": 1.0, "compute_avg_num_neighbors": "False", "avg_num_neighbors": 5}
    plan = make_plan(folder, **FERMI, **given, **prepared(folder, "train", "valid"))
    built = []
    build = graphs_module.GraphSet._build
    monkeypatch.setattr(
        graphs_module.GraphSet, "_build", lambda self, c: built.append(c.frame) or build(self, c)
    )
    ranks = Ranks.single()
    heads = load_heads(plan, ranks)
    graphs = build_graphs(heads, plan, ranks)
    measure(heads, graphs, plan, ranks)
    assert not built
    train = graphs.train["default"]
    assert train[2] is not train[2] and len(built) == 2
    assert torch.equal(pickle.loads(pickle.dumps(train))[12].positions, train[12].positions)
    seen = []
    for graph in train:
        assert graph.energy.dtype == torch.float64
        seen.append(weakref.ref(graph))
    del graph
    gc.collect()
    assert [reference() for reference in seen] == [None] * 13


def test_d22_test_folder(folder):
    tests = folder / "sets"
    tests.mkdir()
    for name in ("test_0", "test_1"):
        (folder / "h5" / "test" / f"{name}.h5").rename(tests / f"slab_Default{name.removeprefix('test')}.h5")
    (folder / "h5" / "valid" / "valid_0.h5").rename(tests / "water_test.h5")
    (head,) = load_heads(make_plan(folder, test_dir=tests), Ranks.single())
    assert {name: len(test) for name, test in head.tests.items()} == {
        "slab_default": 3,
        "water_test_default": 5,
    }
    assert {c.head for test in head.tests.values() for c in test} == {"default"}


def test_d22_a_folder_a_set(folder):
    flags = {"test_dir": folder / "h5", "multi_processed_test": "True"}
    (head,) = load_heads(make_plan(folder, **flags), Ranks.single())
    found = {name: len(test) for name, test in head.tests.items()}
    assert found == {"test_default": 3, "train_default": 13, "valid_default": 5}


def refused(plan):
    with pytest.raises(InputError) as error:
        load_heads(plan, Ranks.single())
    assert "\n" not in str(error.value)
    return str(error.value)


def test_bad_input_is_named_as_with_other_files(folder):
    (folder / "empty").mkdir()
    h5 = folder / "h5"
    cases = [
        ({"train_file": folder / "no.h5"}, "no.h5' does not exist"),
        ({"train_file": folder / "empty"}, f"Got directory {folder / 'empty'} with no .h5/.hdf5 files"),
        ({"test_dir": folder / "no"}, "is no folder: give one of HDF5 files"),
        ({"test_dir": h5 / "test", "multi_processed_test": "True"}, "holds no folder, and --multi_processed"),
        ({"train_file": h5 / "train", "loss": "stress"}, "looked for 'stress' in the HDF5 data"),
        ({"train_file": h5 / "train", "atomic_numbers": "[1]"}, "holds O (8), which --atomic_numbers=[1]"),
    ]
    for flags, expected in cases:
        assert expected in refused(make_plan(folder, **flags))
    with h5py.File(h5 / "train" / "train_1.h5", "r+") as file:
        del file["config_batch_0/config_2/electron"]
    message = refused(make_plan(folder, **FERMI, **prepared(folder, "train")))
    named = (
        f"frame 2 of '{h5 / 'train' / 'train_1.h5'}' has no electron number (key 'electron' in the HDF5 data"
    )
    assert message.startswith(named) and "--electron_key of mace_prepare_data" in message
    with h5py.File(h5 / "train" / "train_2.h5", "r+") as file:
        del file["config_batch_0/config_0/electron"]
    message = refused(make_plan(folder, **FERMI, **prepared(folder, "train")))
    assert message.startswith(f"2 frames of '{h5 / 'train'}' (frame 2 of '{h5 / 'train' / 'train_1.h5'}', ")


def test_a_test_set_that_is_given_twice(folder):
    sets = folder / "sets"
    sets.mkdir()
    (folder / "h5" / "test" / "test_0.h5").rename(sets / "slab_0.h5")
    message = refused(make_plan(folder, test_file=folder / "test.xyz", test_dir=sets))
    assert "test set 'slab_default' is in" in message
