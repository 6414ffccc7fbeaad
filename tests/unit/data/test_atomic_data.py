import numpy as np
import pytest
import torch

from mace.data import AtomicData, Configuration
from mace.data.atomic_data import get_data_loader
from mace.data.labels import LABELS
from mace.exceptions import InputError
from mace.tools import AtomicNumberTable, default_dtype

TABLE = AtomicNumberTable([1, 8])
POSITIONS = np.array([[0.0, 0.0, 0.0], [0.96, 0.0, 0.0], [-0.24, 0.93, 0.0]])


def water(**fields):
    return Configuration(np.array([8, 1, 1]), POSITIONS.copy(), **fields)


def graph(config=None, **arguments):
    return AtomicData.from_config(config or water(), TABLE, cutoff=3.0, **arguments)


def test_shapes_and_types_of_a_fully_labelled_graph():
    config = water(
        energy=-3.0,
        potential=-4.0,
        electron=8.5,
        forces=np.ones((3, 3)),
        stress=np.arange(6.0),
        virials=np.arange(9.0),
        dipole=np.arange(3.0),
        charges=np.arange(3.0),
        weight=2.0,
        potential_weight=0.5,
    )
    data = graph(config, dtype=torch.float64)
    weights = {label.weight for label in LABELS if label.weight}
    scalars = {"energy", "potential", "potential_flag", "electron", "weight", "head", *weights}
    shapes = {
        **dict.fromkeys(scalars, ()),
        "edge_index": (2, 6),
        "node_attrs": (3, 2),
        "positions": (3, 3),
        "shifts": (6, 3),
        "unit_shifts": (6, 3),
        "cell": (3, 3),
        "forces": (3, 3),
        "stress": (1, 3, 3),
        "virials": (1, 3, 3),
        "dipole": (1, 3),
        "charges": (3,),
    }
    assert {key: tuple(value.shape) for key, value in data.to_dict().items()} == shapes
    integers = {"edge_index", "head"}
    for key, value in data.to_dict().items():
        assert value.dtype == (torch.int64 if key in integers else torch.float64), key
    assert data.num_nodes == 3
    assert data.node_attrs.tolist() == [[0, 1], [1, 0], [1, 0]]
    assert data.stress.tolist() == [[[0, 5, 4], [5, 1, 3], [4, 3, 2]]]
    assert data.virials.flatten().tolist() == list(range(9))
    assert (data.energy, data.potential, data.electron) == (-3.0, -4.0, 8.5)
    assert (data.weight, data.potential_weight, data.potential_flag) == (2.0, 0.5, 1.0)


def test_the_dtype_is_torchs_default_at_the_time_of_the_call_or_the_one_asked_for():
    for name, dtype in (("float32", torch.float32), ("float64", torch.float64)):
        with default_dtype(name):
            data = graph(water(energy=1.0))
        floating = {value.dtype for value in data.to_dict().values() if value.is_floating_point()}
        assert floating == {dtype}
    assert graph(dtype=torch.float64).positions.dtype == torch.float64


def test_missing_labels_are_zero_with_weight_zero():
    data = graph(water())
    for key in ("energy", "forces", "stress", "virials", "potential", "electron"):
        assert not data[key].any()
        assert data[f"{key}_weight"] == 0.0, key
    assert data.potential_flag == 0.0


def test_a7_a_missing_potential_is_masked_with_and_without_a_sentinel():
    for sentinel in (None, -10000.0):
        masked = graph(water(), empty_potential_value=sentinel)
        assert (masked.potential, masked.potential_flag, masked.potential_weight) == (0.0, 0.0, 0.0)
        labelled = graph(water(potential=0.0), empty_potential_value=sentinel)
        assert (labelled.potential_flag, labelled.potential_weight) == (1.0, 1.0)


def test_a19_the_sentinel_is_masked_in_spite_of_rounding():
    config = water(potential=float(np.float32(-9999.9)))
    masked = graph(config, empty_potential_value=-9999.9)
    assert (masked.potential, masked.potential_flag, masked.potential_weight) == (0.0, 0.0, 0.0)
    assert graph(config).potential_flag == 1.0


def test_f2_an_unknown_head_is_refused_and_a_single_one_serves_all():
    assert graph(water(head="b"), heads=["a", "b"]).head == 1
    assert graph(water(head="other"), heads=["a"]).head == 0
    assert graph(water()).head == 0
    with pytest.raises(InputError, match=r"head 'c' of frame 4 of 'x.xyz' .* it has \['a', 'b'\]"):
        graph(water(head="c", file="x.xyz", frame=4), heads=["a", "b"])


def test_a_structure_that_cannot_become_a_graph_is_named():
    nickel = Configuration(np.array([28]), np.zeros((1, 3)), file="x.xyz", frame=7)
    with pytest.raises(InputError, match=r"frame 7 of 'x.xyz': atomic number 28 is not among .*\[1, 8\]"):
        graph(nickel)
    flat = water(pbc=(True, True, True), cell=np.zeros((3, 3)), file="x.xyz", frame=2)
    with pytest.raises(InputError, match="frame 2 of 'x.xyz': pbc .* span no cell"):
        graph(flat)


def test_graphs_do_not_share_memory_with_the_configuration():
    config = water(forces=np.ones((3, 3)), cell=np.eye(3) * 9)
    data = graph(config, dtype=torch.float64)
    for key in ("positions", "forces", "cell"):
        data[key].add_(1.0)
    np.testing.assert_array_equal(config.positions, POSITIONS)
    np.testing.assert_array_equal(config.forces, 1.0)
    np.testing.assert_array_equal(config.cell, np.eye(3) * 9)


def test_wrong_shapes_are_our_mistake():
    tensors = graph().to_dict()
    with pytest.raises(AssertionError, match="forces"):
        AtomicData(**{**tensors, "forces": torch.zeros(2, 3)})
    assert AtomicData(**{**tensors, "electron": None})["electron"] is None


def test_batches_of_graphs():
    graphs = [graph(water(energy=1.0, electron=2.0)), graph(water(energy=3.0))]
    batch = next(iter(get_data_loader(graphs, batch_size=2, shuffle=False)))
    assert batch.cell.shape == (6, 3)
    assert batch.stress.shape == (2, 3, 3)
    assert batch.positions.shape == (6, 3)
    assert batch.energy.tolist() == [1.0, 3.0]
    assert batch.electron_weight.tolist() == [1.0, 0.0]
    assert batch.edge_index.max() == 5
    assert batch.ptr.tolist() == [0, 3, 6]
    assert isinstance(batch.get_example(1), AtomicData)
