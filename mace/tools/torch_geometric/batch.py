"""Several graphs as one disconnected graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .data import Data
from .utils import cat_dim, holds_node_indices


class Batch(Data):
    """Graphs joined along their nodes; made by :meth:`from_data_list`."""

    ptr: Tensor  # int64 (n_graphs + 1,), cumulative numbers of nodes
    batch: Tensor  # int64 (n_nodes,), the graph that a node belongs to
    _data_class: type[Data]  # of the graphs
    _ends: dict[str, Tensor]  # int64 (n_graphs + 1,), cumulative rows of the graphs in the joined tensors

    @classmethod
    def from_data_list(
        cls,
        data_list: Sequence[Data],
        follow_batch: Iterable[str | None] = (),
        exclude_keys: Iterable[str | None] = (),
    ) -> Batch:
        """Join graphs.

        Tensors whose name contains ``index`` or ``face`` are joined along their last dimension and moved by
        the number of nodes before them; other tensors along the first, which 0-dimensional ones gain. Numbers
        become a tensor, other values a list. Only what the first graph has is joined.

        Args:
            data_list: one graph or more.
            follow_batch: names of tensors for which ``<name>_batch``, the graph of every row, is added.
            exclude_keys: names that are left out.

        Raises:
            ValueError: a graph lacks its number of nodes or a tensor of the first one, or shapes differ.
        """
        if not data_list:
            raise ValueError("a batch needs one graph at least, got none")
        batch = cls()
        counts = [data.num_nodes for data in data_list if data.num_nodes is not None]
        if len(counts) < len(data_list):
            raise ValueError("a graph does not tell its number of nodes: give it num_nodes")
        batch._data_class = type(data_list[0])
        batch._ends = {}
        batch._num_nodes = sum(counts)
        batch.ptr = torch.tensor([0, *accumulate(counts)])
        excluded = set(exclude_keys)
        for key in data_list[0].keys:
            if key not in excluded:
                batch.__dict__[key] = batch._join(key, [data.__dict__.get(key) for data in data_list])
        graphs = torch.arange(len(counts))
        batch.batch = torch.repeat_interleave(graphs, torch.tensor(counts))
        for followed in filter(None, follow_batch):
            sizes = batch._ends[followed].diff()
            batch.__dict__[f"{followed}_batch"] = torch.repeat_interleave(graphs, sizes)
        return batch

    def _join(self, key: str, values: list[Any]) -> Tensor | list[Any]:
        """What the batch has for the ``values`` of its graphs; notes how to take it apart again."""
        first = values[0]
        if isinstance(first, (int, float)):
            return torch.tensor(values)
        if not isinstance(first, Tensor):
            return values
        try:
            if first.dim() == 0:
                return torch.stack(values)
            dim = cat_dim(key)
            joined = torch.cat(values, dim)
        except (TypeError, RuntimeError) as error:
            raise ValueError(f"the graphs of a batch don't agree in {key!r}: {error}") from error
        ends = torch.tensor([0, *accumulate(value.size(dim) for value in values)])
        self._ends[key] = ends
        if holds_node_indices(key):
            joined += torch.repeat_interleave(self.ptr[:-1], ends.diff())
        return joined

    @property
    def num_graphs(self) -> int:
        """Number of graphs."""
        return self.ptr.numel() - 1

    def get_example(self, index: int) -> Data:
        """The graph number ``index`` (negative ones count from the end), as an object of the class it had."""
        if not -self.num_graphs <= index < self.num_graphs:
            raise IndexError(f"graph {index} of a batch of {self.num_graphs}")
        index %= self.num_graphs
        data = self._data_class.from_dict({key: self._part(key, index) for key in self._graph_keys()})
        data.num_nodes = int(self.ptr[index + 1] - self.ptr[index])
        return data

    def _graph_keys(self) -> list[str]:
        """Names that belong to the graphs, not to the batch."""
        added = {"batch", "ptr", *(f"{key}_batch" for key in self._ends)}
        return [key for key in self.keys if key not in added]

    def _part(self, key: str, index: int) -> Any:
        """What graph ``index`` had under ``key``."""
        value = self.__dict__[key]
        if key not in self._ends:
            return value[index]
        start, end = self._ends[key][index : index + 2].tolist()
        part = value.narrow(cat_dim(key), start, end - start)
        return part - self.ptr[index] if holds_node_indices(key) else part

    def to_data_list(self) -> list[Data]:
        """All graphs, in order."""
        return [self.get_example(index) for index in range(self.num_graphs)]

    def index_select(self, indices: slice | Sequence[int] | np.ndarray | Tensor) -> list[Data]:
        """The graphs that a slice, a list, or an array or tensor of numbers or of a mask selects."""
        if not isinstance(indices, slice):
            indices = torch.as_tensor(indices).cpu()
        return [self.get_example(index) for index in torch.arange(self.num_graphs)[indices].tolist()]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(key)
        if isinstance(key, (int, np.integer)):
            return self.get_example(int(key))
        return self.index_select(key)
