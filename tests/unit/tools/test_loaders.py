"""Which rank meets which configuration, and in which order."""

import logging
import pickle

import pytest
import torch

from mace.tools.datasets import load_heads
from mace.tools.distributed import Ranks
from mace.tools.graphs import build_graphs, share
from mace.tools.loaders import build_loaders
from tests.tiny_run import FERMI, make_plan, write_frames


@pytest.fixture
def folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 13)
    write_frames(tmp_path / "valid.xyz", 5, seed=2)
    write_frames(tmp_path / "test.xyz", 3, seed=3)
    return tmp_path


class OneOf(Ranks):
    """One rank of several that need nothing of each other: they have all the data."""

    def gather(self, value):
        return [value] * self.world_size

    def broadcast(self, value, source=0):
        return value


def rank(number, world_size):
    return OneOf(rank=number, world_size=world_size, device=torch.device("cpu"))


def loaders_of(plan, ranks=None):
    ranks = ranks or Ranks.single()
    heads = load_heads(plan, ranks)
    return build_loaders(build_graphs(heads, plan, ranks), plan, ranks)


def batches(loader):
    """The energies of every batch: they tell the configurations apart."""
    return [batch.energy.tolist() for batch in loader]


def flat(nested):
    return [value for values in nested for value in values]


@pytest.mark.parametrize("epoch", [0, 3])
def test_two_ranks_take_the_global_batches_of_one(folder, epoch):
    alone = loaders_of(make_plan(folder, batch_size=4))
    alone.train_sampler.set_epoch(epoch)
    together = [loaders_of(make_plan(folder, batch_size=2), rank(number, 2)) for number in range(2)]
    for loaders in together:
        loaders.train_sampler.set_epoch(epoch)
    first, second = (batches(loaders.train) for loaders in together)
    joined = [sorted(a + b) for a, b in zip(first, second, strict=True)]
    assert joined == [sorted(batch) for batch in batches(alone.train)]
    assert len(joined) == 3


def test_the_order_depends_on_seed_and_epoch_alone(folder):
    def order(seed, epoch):
        loaders = loaders_of(make_plan(folder, seed=seed))
        loaders.train_sampler.set_epoch(epoch)
        torch.manual_seed(epoch)  # the global generator plays no part
        return batches(loaders.train)

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_loading_leaves_the_global_generator_alone(folder):
    loaders = loaders_of(make_plan(folder))
    before = torch.get_rng_state()
    batches(loaders.train)
    batches(loaders.valid["default"])
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
def test_e4_evaluation_meets_every_configuration_exactly_once(folder, world_size):
    plan = make_plan(folder, test_file=folder / "test.xyz")
    every = [loaders_of(plan, rank(number, world_size)) for number in range(world_size)]
    sizes = {"train_evaluation": 13, "valid": 5, "tests": 3}
    names = {"train_evaluation": "train_default", "valid": "default", "tests": "Default_default"}
    alone = loaders_of(plan)
    for kind, size in sizes.items():
        seen = [flat(batches(getattr(loaders, kind)[names[kind]])) for loaders in every]
        expected = flat(batches(getattr(alone, kind)[names[kind]]))
        assert len(expected) == size
        assert sorted(flat(seen)) == sorted(expected)
        assert max(map(len, seen)) - min(map(len, seen)) <= 1


def test_evaluation_keeps_the_order_of_the_file(folder):
    plan = make_plan(folder)
    (head,) = load_heads(plan, Ranks.single())
    assert flat(batches(loaders_of(plan).valid["default"])) == [c.energy for c in head.valid]


@pytest.mark.parametrize(("world_size", "expected"), [(1, 13), (2, 6)])
def test_d10_a_batch_larger_than_the_data_is_reduced_with_a_warning(folder, caplog, world_size, expected):
    loaders = loaders_of(make_plan(folder, batch_size=20), rank(0, world_size))
    assert loaders.batch_size == expected and len(loaders.train) == 1
    (warning,) = [line for line in caplog.messages if line.startswith("Batch size")]
    for number in ("(20)", "(13)", f"({world_size} process", f"using batch size {expected}"):
        assert number in warning


def test_the_log_says_how_many_configurations_an_epoch_leaves_out(folder, caplog):
    caplog.set_level(logging.INFO)
    loaders_of(make_plan(folder, batch_size=2), rank(1, 2))
    steps = "Training steps per epoch: 3 of 4 configurations; each epoch leaves out 1 of 13 configurations"
    assert f"{steps}, other ones every time" in caplog.messages
    loaders_of(make_plan(folder, batch_size=13))
    assert "Training steps per epoch: 1 of 13 configurations; none is left out" in caplog.messages


def test_a_large_validation_batch_is_a_warning(folder, caplog):
    loaders_of(make_plan(folder, valid_batch_size=10))
    expected = "Validation batch size (10) is larger than the number of validation data (5)"
    assert expected in caplog.messages


def test_heads_are_joined_in_order_for_training(folder):
    write_frames(folder / "other.xyz", 6, seed=4)
    common = {"valid_file": str(folder / "valid.xyz"), "E0s": "{1: -1.0, 8: -2.0}"}
    heads = {
        name: {"train_file": str(folder / f"{file}.xyz"), **common}
        for name, file in (("a", "train"), ("b", "other"))
    }
    loaders = loaders_of(make_plan(folder, heads=heads, batch_size=19))
    (batch,) = list(loaders.train)
    assert torch.bincount(batch.head).tolist() == [13, 6]
    assert list(loaders.valid) == ["a", "b"]
    assert list(loaders.train_evaluation) == ["train_a", "train_b"]


def test_memory_is_pinned_for_a_gpu_only(folder):
    assert not loaders_of(make_plan(folder, pin_memory="True")).train.pin_memory


def test_worker_processes_load_the_same_batches(folder):
    alone = loaders_of(make_plan(folder))
    helped = loaders_of(make_plan(folder, num_workers=1))
    for epoch in range(2):
        alone.train_sampler.set_epoch(epoch)
        helped.train_sampler.set_epoch(epoch)
        assert batches(helped.train) == batches(alone.train)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_graphs_are_built_once_in_the_dtype_of_the_run(folder, dtype):
    plan = make_plan(folder, default_dtype=dtype, **FERMI)
    ranks = Ranks.single()
    heads = load_heads(plan, ranks)
    graphs = build_graphs(heads, plan, ranks)
    train = graphs.train["default"]
    assert train[2] is train[2]
    assert train[2].positions.dtype == getattr(torch, dtype) == train[2].electron.dtype
    loaders = build_loaders(graphs, plan, ranks)
    assert loaders.train.dataset[2] is train[2]
    assert loaders.train_evaluation["train_default"].dataset[2] is train[2]
    assert len(pickle.loads(pickle.dumps(train))) == 13


def test_e5_a_rank_builds_its_share_at_first(folder):
    plan, ranks = make_plan(folder), rank(1, 3)
    graphs = build_graphs(load_heads(plan, ranks), plan, ranks)
    valid = graphs.valid["default"]
    built = [index for index, graph in enumerate(valid._graphs) if graph is not None]
    assert built == list(share(5, ranks)) == [1, 4]
