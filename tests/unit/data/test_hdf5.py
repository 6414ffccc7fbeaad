"""HDF5 files of configurations: what is written comes back, and so do the files of upstream."""

import multiprocessing
import pickle
import tracemalloc
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch

from mace.data import (
    AtomicData,
    Configuration,
    HDF5Dataset,
    dataset_from_sharded_hdf5,
    save_AtomicData_to_HDF5,
    save_configurations_as_HDF5,
    save_dataset_as_HDF5,
)
from mace.data.hdf5_dataset import unpack_value, write_value
from mace.data.hdf5_files import HDF5File, files_of
from mace.data.labels import ELECTRON, LABELS
from mace.data.readers import read_prepared
from mace.data.stored import StoredConfigurations, outlines, select
from mace.exceptions import InputError
from mace.tools.torch_geometric import DataLoader
from mace.tools.utils import AtomicNumberTable

TABLE = AtomicNumberTable([1, 8])
RNG = np.random.default_rng(5)


def configuration(number=0, **fields):
    """Three or four atoms with every label, unless ``fields`` takes some away."""
    n_atoms = 3 + number % 2
    given = dict(
        atomic_numbers=RNG.choice([1, 8], n_atoms),
        positions=RNG.normal(size=(n_atoms, 3)),
        energy=float(number),
        potential=-3.0 + number,
        electron=0.25 * number,
        forces=RNG.normal(size=(n_atoms, 3)),
        stress=RNG.normal(size=(3, 3)),
        virials=RNG.normal(size=6),
        dipole=RNG.normal(size=3),
        charges=RNG.normal(size=n_atoms),
        cell=8.0 * np.eye(3),
        pbc=(True, False, True),
        weight=0.5,
        energy_weight=2.0,
        potential_weight=3.0,
        electron_weight=4.0,
        stress_weight=0.0,
        config_type="slab",
        head="b",
    )
    return Configuration(**{**given, **fields})


def unlabelled(number=0):
    names = [label.name for label in LABELS] + [label.weight for label in LABELS if label.weight]
    return configuration(number, **{n: 0.0 if n.endswith("_weight") else None for n in names})


def save(path, configurations):
    with h5py.File(path, "w") as file:
        save_configurations_as_HDF5(configurations, None, file)
    return path


def assert_equal(found, expected, but=("file", "frame")):
    for name, value in vars(expected).items():
        if name not in but:
            other = getattr(found, name)
            assert (other is None) == (value is None), name
            assert np.array_equal(other, value) and np.shape(other) == np.shape(value), name
            assert np.asarray(other).dtype.kind == np.asarray(value).dtype.kind, name


@pytest.mark.parametrize("shape", [(6,), (9,), (3, 3)])
def test_every_field_comes_back(tmp_path, shape):
    stress = RNG.normal(size=shape)
    written = [
        configuration(0, stress=stress, virials=stress),
        unlabelled(1),
        configuration(2, energy=0.0, forces=np.zeros((3, 3)), energy_weight=0.0, forces_weight=0.0),
        configuration(3, potential=None, potential_weight=0.0, cell=None, pbc=None),
    ]
    file = HDF5File(save(tmp_path / "a.h5", written))
    assert len(file) == 4
    for index, expected in enumerate(written):
        found = file[index]
        assert_equal(found, expected)
        assert found.origin == f"frame {index} of '{tmp_path / 'a.h5'}'"


def test_outlines_are_the_configurations_without_arrays(tmp_path):
    written = [configuration(0), unlabelled(1), configuration(2, forces=None, forces_weight=0.0)]
    stored = StoredConfigurations.open([save(tmp_path / "a.h5", written)])
    assert outlines(written) is written and len(outlines(stored)) == 3
    arrays = ("positions", "forces", "stress", "virials", "dipole", "charges", "cell", "pbc")
    for outline, whole in zip(outlines(stored), stored, strict=True):
        assert_equal(outline, whole, but=arrays)
        for label in LABELS:
            assert outline.has(label) == whole.has(label)
        assert outline.positions.shape == whole.positions.shape
        if whole.forces is not None:
            assert outline.forces.shape == whole.forces.shape and np.isnan(outline.forces).all()


def test_a_selection_keeps_order_and_stays_in_the_files(tmp_path):
    for number in range(11):  # shard 10 comes after shard 2
        save(tmp_path / f"train_{number}.h5", [configuration(2 * number), configuration(2 * number + 1)])
    stored = StoredConfigurations.open(files_of(tmp_path), head="mine")
    assert [c.energy for c in stored] == list(range(22))
    assert [c.energy for c in stored[3:6]] == [3, 4, 5] and stored[-1].energy == 21
    picked = select(select(stored, [20, 3, 7]), [2, 0])
    assert isinstance(picked, StoredConfigurations)
    assert [c.energy for c in picked] == [7, 20] == [c.energy for c in picked.outlines]
    assert {c.head for c in picked} == {"mine"} == {c.head for c in picked.outlines}
    assert (picked[0].frame, picked[0].file) == (1, str(tmp_path / "train_3.h5"))
    assert stored.digest() == StoredConfigurations.open(files_of(tmp_path)).digest()
    other = save(tmp_path / "other", [configuration(8), configuration(9, energy=9.5)])
    other.replace(tmp_path / "train_4.h5")  # the old one is still open
    assert stored.digest() != StoredConfigurations.open(files_of(tmp_path)).digest()


def test_memory_is_a_few_hundred_bytes_a_frame(tmp_path):
    def footprint(count):
        atoms = dict(atomic_numbers=np.ones(60, int), positions=np.ones((60, 3)), forces=np.ones((60, 3)))
        path = save(tmp_path / f"{count}.h5", [Configuration(energy=1.0, **atoms) for _ in range(count)])
        tracemalloc.start()
        try:
            stored = StoredConfigurations.open([path])
            assert sum(c.energy for c in stored) == count  # read and dropped
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    footprint(10)  # whatever is allocated once
    assert (footprint(300) - footprint(100)) / 200 < 400  # bytes; one such frame in memory has 3400


def flat_upstream(group, config):
    """A configuration as CP-MACE writes it: zeros of weight 0 for what is missing, no electron, no level."""
    zeros = {"energy": 0.0, "forces": np.zeros_like(config.positions), "virials": np.zeros((3, 3))}
    zeros |= {"stress": np.zeros(6), "dipole": np.zeros(3), "charges": np.zeros(len(config.positions))}
    for name in ("atomic_numbers", "positions", "cell", "pbc", "weight", "config_type"):
        group[name] = write_value(getattr(config, name))
    group["head"] = "Default"
    for name, zero in zeros.items():
        value = getattr(config, name)
        group[name] = zero if value is None else value
        if name not in ("dipole", "charges"):
            group[f"{name}_weight"] = getattr(config, f"{name}_weight")


def grouped_upstream(group, config):
    """A configuration as mace-torch 0.3.16 writes it."""
    for name in ("atomic_numbers", "positions", "cell", "pbc", "weight", "config_type"):
        group[name] = write_value(getattr(config, name))
    for label in LABELS:
        if label.name not in ("electron", "potential"):
            value = getattr(config, label.name)
            group[f"properties/{label.name}"] = write_value(value)
            weight = getattr(config, label.weight) if label.weight else 1.0
            group[f"property_weights/{label.name}"] = 0.0 if value is None else weight
    group["properties/polarizability"] = "None"
    group["properties/head"] = config.head
    group["property_weights/head"] = 1.0


@pytest.mark.parametrize(("write", "head"), [(flat_upstream, "Default"), (grouped_upstream, "b")])
def test_upstreams_files_are_read_and_fill_ins_are_missing(tmp_path, write, head):
    no_level = dict(electron=None, potential=None, electron_weight=0.0, potential_weight=0.0, head=head)
    written = [
        configuration(0, **no_level),
        replace(unlabelled(1), **no_level),
        configuration(2, energy=0.0, **no_level),  # a zero with weight is a label
    ]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["drop_last"] = True
        for number, config in enumerate(written):
            write(file.create_group(f"config_batch_0/config_{number}"), config)
    stored = HDF5File(tmp_path / "a.h5")
    assert stored.drop_last
    for index, expected in enumerate(written):
        assert_equal(stored[index], expected)
        assert [stored.outline(index).has(label) for label in LABELS] == [
            expected.has(label) for label in LABELS
        ]


def test_f6_groups_may_differ_in_size(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        number = 0
        for batch, size in enumerate([2, 3, 1]):
            for place in range(size):
                flat_upstream(
                    file.create_group(f"config_batch_{batch}/config_{place}"), configuration(number)
                )
                number += 1
    assert [c.energy for c in StoredConfigurations.open([tmp_path / "a.h5"])] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(IndexError):
        HDF5File(tmp_path / "a.h5")[6]


def test_f1_graphs_hold_electron_number_and_fermi_level(tmp_path):
    written = [configuration(0, head="a"), configuration(1, potential=-10000.0), unlabelled(2)]
    path = save(tmp_path / "a.h5", written)
    dataset = HDF5Dataset(path, r_max=4.0, z_table=TABLE, heads=["a", "b"], empty_potential_value=-10000.0)
    assert len(dataset) == 3
    for index, config in enumerate(written):
        expected = AtomicData.from_config(config, TABLE, 4.0, ["a", "b"], -10000.0, dtype=torch.float64)
        found = dataset[index]
        assert set(found.keys) == set(expected.keys)
        for key in expected.keys:
            same = (
                torch.equal(found[key], expected[key]) if key != "num_nodes" else found[key] == expected[key]
            )
            assert same, key
    assert dataset[0].electron_weight == 4.0 and dataset[-1].potential_flag == 0.0
    assert HDF5Dataset(path, 4.0, TABLE, dtype=torch.float32)[0].energy.dtype == torch.float32


def test_f2_an_unknown_head_is_refused(tmp_path):
    path = save(tmp_path / "a.h5", [configuration(0, head="c")])
    with pytest.raises(InputError, match="head 'c' of frame 0 of .* is not in this model"):
        HDF5Dataset(path, 4.0, TABLE, heads=["a", "b"])[0]
    assert HDF5Dataset(path, 4.0, TABLE, heads=["a", "b"], head="b")[0].head == 1


def energies_of(dataset):
    return [float(dataset[index].energy) for index in range(len(dataset))]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_file_is_opened_in_each_process_of_its_own(tmp_path, method):
    dataset = HDF5Dataset(save(tmp_path / "a.h5", [configuration(n) for n in range(4)]), 4.0, TABLE)
    assert energies_of(dataset) == [0, 1, 2, 3]  # open here
    handle = dataset._file._handle
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(energies_of, [dataset] * 4) == [[0, 1, 2, 3]] * 4
    assert dataset._file._handle is handle and handle.id.valid
    assert energies_of(pickle.loads(pickle.dumps(dataset))) == [0, 1, 2, 3]


def test_shards_of_a_folder_and_loader_workers(tmp_path):
    for number in range(3):
        save(tmp_path / f"train_{number}.h5", [configuration(2 * number), configuration(2 * number + 1)])
    dataset = dataset_from_sharded_hdf5(tmp_path, TABLE, 4.0, heads=["b"])
    loader = DataLoader(dataset, batch_size=4, num_workers=2)
    assert [batch.energy.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5]]


def test_graphs_are_saved_with_all_they_hold(tmp_path):
    graphs = [AtomicData.from_config(configuration(n), TABLE, 4.0) for n in range(2)]
    save_dataset_as_HDF5(graphs, tmp_path / "graphs.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["graphs.h5"]
    with h5py.File(tmp_path / "graphs.h5") as file:
        assert sorted(file) == ["config_0", "config_1"]
        for key in graphs[1].keys:
            value = graphs[1][key]
            expected = value.numpy() if isinstance(value, torch.Tensor) else value
            assert np.array_equal(file["config_1"][key][()], expected), key
    with h5py.File(tmp_path / "one.h5", "w") as file:
        save_AtomicData_to_HDF5(graphs[0], 7, file)
        assert list(file) == ["config_7"]


def test_none_is_a_text():
    assert write_value(None) == "None" and write_value(3.0) == 3.0
    assert unpack_value(b"None") is None and unpack_value("None") is None
    assert unpack_value(b"bulk") == "bulk" and unpack_value(2.0) == 2.0


def spoil(path, **datasets):
    """Replace datasets of the first frame; None removes one."""
    with h5py.File(path, "r+") as file:
        group = file["config_batch_0/config_0"]
        for name, value in datasets.items():
            del group[name]
            if value is not None:
                group[name] = value


@pytest.mark.parametrize(
    ("datasets", "complaint"),
    [
        ({"positions": None}, "has no positions"),
        ({"atomic_numbers": None}, "has no atomic_numbers"),
        ({"atomic_numbers": [1, 200, 8]}, "atomic_numbers of frame 0 of .* are no list of atomic numbers"),
        ({"positions": np.full((3, 3), np.nan)}, "the positions of frame 0 of .* are not finite"),
        ({"cell": np.eye(2)}, "the cell of frame 0 of .* are not finite or not of shape"),
        ({"forces": np.ones((2, 3))}, r"forces of frame 0 of .* is of shape \(2, 3\)"),
        ({"energy": np.inf}, "energy of frame 0 of .* is inf"),
    ],
)
def test_what_cannot_be_used_names_frame_and_file(tmp_path, datasets, complaint):
    path = save(tmp_path / "a.h5", [configuration(0)])
    spoil(path, **datasets)
    with pytest.raises(InputError, match=complaint) as error:
        HDF5File(path)[0]
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-2000])


def _scramble(path):
    content = bytearray(path.read_bytes())
    content[3000 : len(content) - 100] = bytes(len(content) - 3100)
    path.write_bytes(content)


def _newer(path):
    with h5py.File(path, "r+") as file:
        file.attrs["format_version"] = 99


def _other(path):
    with h5py.File(path, "w") as file:
        file["spectrum"] = [1.0]


def _none_inside(path):
    with h5py.File(path, "w") as file:
        file.create_group("config_batch_0")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_truncate, "truncated"),
        (_scramble, "damaged|truncated"),
        (_newer, "has version 99 of its format"),
        (_other, "without configurations of mace_prepare_data: it holds spectrum"),
        (_none_inside, "holds no structure"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_text("3\n\nH 0 0 0\n"), "is no HDF5 file"),
        (lambda path: path.unlink(), "does not exist"),
    ],
)
def test_a_file_that_is_not_one_is_refused_in_one_line(tmp_path, damage, complaint):
    path = save(tmp_path / "a.h5", [configuration(n) for n in range(8)])
    damage(path)
    with pytest.raises(InputError, match=complaint) as error:
        StoredConfigurations.open([path])
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_folder_without_files_is_refused(tmp_path):
    (tmp_path / ".train_0.h5.12-abcdefgh.tmp").touch()
    with pytest.raises(InputError, match=f"Got directory {tmp_path} with no .h5/.hdf5 files"):
        files_of(tmp_path)


def test_missing_labels_of_prepared_files_are_named(tmp_path):
    path = save(tmp_path / "a.h5", [configuration(0, electron=None), configuration(1, electron=None)])
    file = read_prepared([path], str(path), "mine")
    assert {c.head for c in file.configurations} == {"mine"}
    with pytest.raises(
        InputError, match="looked for 'electron' in the HDF5 data .--electron_key of mace_prep"
    ):
        file.require([ELECTRON.name])
    assert file.describe_found().startswith("labels: energy forces")
