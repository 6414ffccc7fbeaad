import pickle
import random

import numpy as np
import pytest
import torch

from mace.tools.torch_geometric import Batch, Data, DataLoader, Dataset, seed_everything
from mace.tools.torch_geometric.batch import Batch as DeepBatch
from mace.tools.torch_geometric.dataloader import DataLoader as DeepLoader


class Special(Data):
    """A graph class of its own, with a constructor of its own."""

    def __init__(self, size):
        super().__init__(num_nodes=size, positions=torch.arange(3.0 * size).reshape(size, 3))


def graph(n_nodes=2, value=1.0, **more):
    edge_index = torch.tensor([[0, 1], [1, 0]])
    positions = torch.full((n_nodes, 3), float(value))
    return Data(
        num_nodes=n_nodes,
        edge_index=edge_index,
        positions=positions,
        energy=torch.tensor(float(value)),
        stress=torch.full((1, 3, 3), float(value)),
        number=n_nodes,
        ratio=value / 2,
        name=f"graph{value}",
        nothing=None,
        **more,
    )


def test_attributes_are_items():
    data = graph()
    assert data["energy"] is data.energy
    assert data["absent"] is None
    assert data["nothing"] is None
    with pytest.raises(AttributeError):
        _ = data.absent
    data["extra"] = torch.zeros(1)
    assert data.extra.shape == (1,)
    assert "extra" in data
    assert "nothing" not in data
    assert sorted(data.keys) == sorted([*graph().keys, "extra"])
    assert dict(iter(data)) == data.to_dict()
    assert "positions=[2, 3]" in repr(data)


def test_numbers_of_nodes_and_edges():
    assert (graph().num_nodes, graph().num_edges) == (2, 2)
    assert Data(positions=torch.zeros(4, 3)).num_nodes == 4
    assert Data().num_nodes is None
    assert Data().num_edges is None


def test_to_works_in_place_and_clone_does_not():
    data = graph()
    copy = data.clone()
    assert data.to(torch.float64, "positions") is data
    assert data.positions.dtype == torch.float64
    assert data.energy.dtype == torch.float32
    assert copy.positions.dtype == torch.float32
    copy.energy += 1
    assert data.energy == 1.0
    data.positions = torch.zeros(3, 2).T
    assert data.contiguous().positions.is_contiguous()
    assert data.cpu() is data
    assert data.apply(lambda tensor: tensor * 0, "energy").energy == 0


def test_graphs_from_dictionaries():
    assert Data.from_dict({"x": torch.zeros(2, 1)}).num_nodes == 2
    assert isinstance(Special.from_dict({"x": torch.zeros(2, 1)}), Special)


def test_batches_join_along_the_right_dimension():
    batch = Batch.from_data_list([graph(2, 1.0), graph(3, 2.0), graph(2, 4.0)])
    assert batch.edge_index.tolist() == [[0, 1, 2, 3, 5, 6], [1, 0, 3, 2, 6, 5]]
    assert batch.positions.shape == (7, 3)
    assert batch.energy.tolist() == [1.0, 2.0, 4.0]
    assert batch.stress.shape == (3, 3, 3)
    assert batch.number.tolist() == [2, 3, 2]
    assert batch.ratio.tolist() == [0.5, 1.0, 2.0]
    assert batch.name == ["graph1.0", "graph2.0", "graph4.0"]
    assert batch.batch.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert batch.ptr.tolist() == [0, 2, 5, 7]
    assert batch.batch.dtype == batch.ptr.dtype == torch.int64
    assert (batch.num_graphs, batch.num_nodes, batch.num_edges) == (3, 7, 6)
    assert "nothing" not in batch.to_dict()


def test_batching_leaves_the_graphs_alone():
    graphs = [graph(), graph()]
    batch = Batch.from_data_list(graphs)
    batch.edge_index += 5
    batch.positions += 5
    assert graphs[1].edge_index.tolist() == [[0, 1], [1, 0]]
    assert graphs[1].positions.eq(1).all()
    single = Batch.from_data_list(graphs[:1])
    single.positions += 5
    assert graphs[0].positions.eq(1).all()


@pytest.mark.parametrize("pick", [lambda batch, i: batch.get_example(i), lambda batch, i: batch[i]])
def test_a_batch_gives_its_graphs_back(pick):
    graphs = [graph(2, 1.0), graph(3, 2.0), graph(2, 4.0)]
    batch = Batch.from_data_list(graphs)
    for index in (0, 1, 2, -1):
        example, original = pick(batch, index), graphs[index]
        assert example.num_nodes == original.num_nodes
        assert example.energy.shape == ()
        assert set(example.keys) == set(original.keys)
        for key, value in original.to_dict().items():
            assert torch.as_tensor(example[key] == value).all(), key
    with pytest.raises(IndexError, match="graph 3 of a batch of 3"):
        pick(batch, 3)


def test_a_batch_can_be_sliced_and_masked():
    batch = Batch.from_data_list([graph(2, float(value)) for value in range(4)])

    def values(part):
        return [data.energy.item() for data in part]

    assert values(batch.to_data_list()) == [0, 1, 2, 3]
    assert values(batch[1:3]) == [1, 2]
    assert values(batch[[3, 0]]) == [3, 0]
    assert values(batch[torch.tensor([True, False, False, True])]) == [0, 3]
    assert values(batch[np.array([1, 2])]) == [1, 2]
    assert batch["energy"].shape == (4,)


def test_graphs_keep_their_class():
    batch = Batch.from_data_list([Special(2), Special(1)])
    assert type(batch[1]) is Special
    assert batch[1].num_nodes == 1


def test_only_what_the_first_graph_has_is_joined_and_it_must_be_everywhere():
    first, second = graph(), graph(extra=torch.zeros(1))
    assert "extra" not in Batch.from_data_list([first, second])
    with pytest.raises(ValueError, match="don't agree in 'extra'"):
        Batch.from_data_list([second, first])
    with pytest.raises(ValueError, match="give it num_nodes"):
        Batch.from_data_list([Data(energy=torch.zeros(1))])
    with pytest.raises(ValueError, match="one graph at least"):
        Batch.from_data_list([])


def test_keys_can_be_excluded_and_followed():
    graphs = [graph(2), graph(3)]
    batch = Batch.from_data_list(graphs, follow_batch=["positions", None], exclude_keys=["stress", None])
    assert "stress" not in batch
    assert batch.positions_batch.tolist() == [0, 0, 1, 1, 1]
    assert "positions_batch" not in batch[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_joins_graphs_also_in_worker_processes(workers):
    graphs = [graph(2, float(value)) for value in range(5)]
    loader = DataLoader(graphs, batch_size=2, num_workers=workers)
    batches = list(loader)
    assert [batch.energy.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert batches[2].num_graphs == 1
    assert batches[1][1].positions.eq(3).all()


def test_loader_shuffles_with_its_generator_and_collates_other_samples():
    loader = DataLoader(range(6), batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(1))
    first = torch.cat(list(loader))
    assert sorted(first.tolist()) == list(range(6))
    assert first.tolist() != list(range(6))


def test_batches_survive_pickling():
    batch = pickle.loads(pickle.dumps(Batch.from_data_list([graph(2, 1.0), graph(3, 2.0)])))
    assert batch.num_graphs == 2
    assert batch[1].positions.eq(2).all()


def test_datasets_give_graphs_and_subsets():
    class Numbers(Dataset):
        def len(self):
            return 4

        def get(self, index):
            return graph(2, float(index))

    numbers = Numbers(transform=lambda data: data.to(torch.float64))
    assert len(numbers) == 4
    assert numbers[-1].energy == 3.0
    assert numbers[0].energy.dtype == torch.float64
    assert [data.energy.item() for data in numbers[1:3]] == [1, 2]
    assert [data.energy.item() for data in numbers[[True, False, False, True]]] == [0, 3]
    assert [batch.num_graphs for batch in DataLoader(numbers, batch_size=3)] == [3, 1]
    with pytest.raises(IndexError, match="graph 4 of a data set of 4"):
        numbers[4]


def test_one_seed_for_all_generators():
    def draw():
        seed_everything(3)
        return random.random(), np.random.rand(), torch.rand(1).item()

    state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    assert draw() == draw()
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])


def test_deep_paths_are_the_same_classes():
    assert DeepBatch is Batch
    assert DeepLoader is DataLoader
