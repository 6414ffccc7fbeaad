"""From configurations to graphs: each graph is built once and shared by the statistics and every loader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from mace.arguments.plans import TrainPlan
from mace.data import AtomicData, Configuration
from mace.data.stored import StoredConfigurations
from mace.tools.datasets import HeadData
from mace.tools.distributed import Ranks
from mace.tools.torch_geometric import Batch
from mace.tools.torch_tools import dtype_dict
from mace.tools.utils import AtomicNumberTable, get_atomic_number_table_from_zs

_CHUNK = 64  # graphs that are joined in the memory of a host


@dataclass(frozen=True, kw_only=True)
class GraphRecipe:
    """What a graph depends on beside its configuration."""

    z_table: AtomicNumberTable
    r_max: float  # Angstrom
    heads: tuple[str, ...]
    empty_potential_value: float  # V; a Fermi level of this value means: no label
    dtype: str  # "float32" or "float64"


class GraphSet(torch.utils.data.Dataset[AtomicData]):
    """The graphs of some configurations, each built at its first use and kept.

    A rank therefore holds the graphs it has met, not those of the others. Of configurations that stay in
    their files no graph is kept: memory does not grow with them.

    A training set, of which every rank meets every graph in time, is held once a host: :meth:`hold_on_host`.
    """

    def __init__(self, configurations: Sequence[Configuration], recipe: GraphRecipe) -> None:
        self.kept = not isinstance(configurations, StoredConfigurations)
        self._configurations = tuple(configurations) if self.kept else configurations
        self._recipe = recipe
        self._graphs: list[AtomicData | None] = [None] * len(self._configurations) if self.kept else []
        self._parts: list[list[Batch]] = []  # of the ranks of this host, which have the graphs in turn

    def __len__(self) -> int:
        return len(self._configurations)

    def hold_on_host(self, ranks: Ranks) -> bool:
        """Build all graphs, a part on each rank of a host, in memory that its ranks share, if they can.

        Raises:
            InputError: on every rank, if any rank cannot build a graph.
        """
        mates = ranks.host_mates
        parts = ranks.shared_on_host(
            lambda: self._joined(range(mates.index(ranks.rank), len(self), len(mates)))
        )
        if parts is None:
            return False
        self._parts, self._graphs = parts, []
        return True

    def _joined(self, indices: range) -> list[Batch]:
        """Those graphs, a chunk a batch, so that few of them are there as graphs at one time."""
        chunks = [indices[start : start + _CHUNK] for start in range(0, len(indices), _CHUNK)]
        return [
            Batch.from_data_list([self._build(self._configurations[index]) for index in chunk])
            for chunk in chunks
        ]

    def __getitem__(self, index: int) -> AtomicData:
        if self._parts:
            if not 0 <= index < len(self):
                raise IndexError(f"graph {index} of {len(self)}")
            place, part = divmod(index, len(self._parts))
            return self._parts[part][place // _CHUNK].get_example(place % _CHUNK)  # type: ignore[return-value]
        if not self.kept:
            return self._build(self._configurations[index])
        graph = self._graphs[index]
        if graph is None:
            graph = self._graphs[index] = self._build(self._configurations[index])
        return graph

    def _build(self, configuration: Configuration) -> AtomicData:
        recipe = self._recipe
        return AtomicData.from_config(
            configuration,
            z_table=recipe.z_table,
            cutoff=recipe.r_max,
            heads=recipe.heads,
            empty_potential_value=recipe.empty_potential_value,
            dtype=dtype_dict[recipe.dtype],
        )


@dataclass(frozen=True, kw_only=True)
class RunGraphs:
    """All graphs of a run.

    ``train`` and ``valid`` are in the order of the heads; ``tests`` has one set per group
    ``<config_type>_<head>``.
    """

    z_table: AtomicNumberTable
    heads: tuple[str, ...]
    train: dict[str, GraphSet]
    valid: dict[str, GraphSet]
    tests: dict[str, GraphSet]


def element_table(heads: Sequence[HeadData]) -> AtomicNumberTable:
    """The elements of the model: those of the training sets, and those that ``--atomic_numbers`` adds."""
    elements: set[int] = set()
    for head in heads:
        elements.update(head.elements, head.plan.atomic_numbers or ())
    return get_atomic_number_table_from_zs(elements)


def share(count: int, ranks: Ranks) -> range:
    """The indices below ``count`` that belong to this rank: every index to exactly one rank."""
    return range(ranks.rank, count, ranks.world_size)


def build_graphs(heads: Sequence[HeadData], plan: TrainPlan, ranks: Ranks) -> RunGraphs:
    """Make the graph sets of all heads, and build what is kept: for training once a host, else in shares.

    Raises:
        InputError: on every rank, if any rank cannot build a graph (a periodic cell without volume, for
        example).
    """
    recipe = GraphRecipe(
        z_table=element_table(heads),
        r_max=plan.data.r_max,
        heads=plan.data.head_names,
        empty_potential_value=plan.data.empty_potential_value,
        dtype=plan.default_dtype,
    )
    graphs = RunGraphs(
        z_table=recipe.z_table,
        heads=recipe.heads,
        train={head.name: GraphSet(head.train, recipe) for head in heads},
        valid={head.name: GraphSet(head.valid, recipe) for head in heads},
        tests={name: GraphSet(test, recipe) for head in heads for name, test in head.tests.items()},
    )
    kept = [graph_set for graph_set in graphs.train.values() if graph_set.kept]
    lone = [graph_set for graph_set in kept if not graph_set.hold_on_host(ranks)]
    lone += [
        graph_set for sets in (graphs.valid, graphs.tests) for graph_set in sets.values() if graph_set.kept
    ]
    ranks.everywhere(lambda: _build_shares(lone, ranks))
    return graphs


def _build_shares(graph_sets: Iterable[GraphSet], ranks: Ranks) -> None:
    for graph_set in graph_sets:
        for index in share(len(graph_set), ranks):
            graph_set[index]
