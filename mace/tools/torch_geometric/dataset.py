"""The base of data sets that make their graphs one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.utils.data

from .data import Data


class Dataset(torch.utils.data.Dataset[Data]):
    """A data set whose derived class gives ``len()`` and ``get(index)``.

    ``dataset[i]`` is a graph, ``dataset[...]`` with a slice, list, mask or tensor of numbers a subset.

    Args:
        transform: applied to every graph that leaves the data set.
    """

    def __init__(self, transform: Callable[[Data], Data] | None = None) -> None:
        super().__init__()
        self.transform = transform

    def len(self) -> int:
        """Number of graphs."""
        raise NotImplementedError

    def get(self, index: int) -> Data:
        """Graph number ``index``, 0 <= index < len()."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.len()

    def __getitem__(  # type: ignore[override]  # torch's own data sets know no subsets
        self, index: int | slice | Sequence[int] | np.ndarray | torch.Tensor
    ) -> Data | torch.utils.data.Subset[Data]:
        if not isinstance(index, (int, np.integer)):
            selected = index if isinstance(index, slice) else torch.as_tensor(index)
            return torch.utils.data.Subset(self, torch.arange(len(self))[selected].tolist())
        if not -len(self) <= index < len(self):
            raise IndexError(f"graph {index} of a data set of {len(self)}")
        data = self.get(int(index) % len(self))
        return data if self.transform is None else self.transform(data)
