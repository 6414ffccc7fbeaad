"""A data loader that joins graphs to batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch.utils.data
from torch.utils.data.dataloader import default_collate

from .batch import Batch
from .data import Data


class Collater:
    """Joins the samples of a batch: graphs to a :class:`Batch`, everything else as torch does."""

    def __init__(
        self, follow_batch: Iterable[str | None] = (), exclude_keys: Iterable[str | None] = ()
    ) -> None:
        self.follow_batch = tuple(follow_batch)
        self.exclude_keys = tuple(exclude_keys)

    def __call__(self, samples: list[Any]) -> Any:
        """The batch of ``samples``."""
        if isinstance(samples[0], Data):
            return Batch.from_data_list(samples, self.follow_batch, self.exclude_keys)
        return default_collate(samples)


class DataLoader(torch.utils.data.DataLoader[Any]):
    """``torch.utils.data.DataLoader`` for graphs.

    Args:
        dataset: a data set or a list of graphs.
        batch_size: graphs per batch.
        shuffle: a new order in every epoch.
        follow_batch: names for which the batch gets ``<name>_batch``.
        exclude_keys: names that are left out of the batches.
        **kwargs: of ``torch.utils.data.DataLoader``, except ``collate_fn``.
    """

    def __init__(
        self,
        dataset: torch.utils.data.Dataset[Data] | Sequence[Data],
        batch_size: int | None = 1,
        shuffle: bool = False,
        follow_batch: Iterable[str | None] = (),
        exclude_keys: Iterable[str | None] = (),
        **kwargs: Any,
    ) -> None:
        collater = Collater(follow_batch, exclude_keys)
        super().__init__(
            cast(torch.utils.data.Dataset[Data], dataset), batch_size, shuffle, collate_fn=collater, **kwargs
        )
