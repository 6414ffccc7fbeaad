"""Which rank trains on which configuration: a random order that all ranks share."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler


class EpochSampler(Sampler[int]):
    """This rank's part of the order of an epoch, which depends on seed and epoch alone.

    Step k of W ranks that take b configurations each is step k of one rank that takes W b. Only whole steps
    are taken: what is left over differs from epoch to epoch.

    Args:
        count: number of configurations.
        rank: this process.
        world_size: number of processes.
        per_step: configurations that each rank takes in a training step.
        seed: of the order.
    """

    def __init__(self, count: int, rank: int, world_size: int, per_step: int, seed: int) -> None:
        self._count = count
        self._rank = rank
        self._world_size = world_size
        self._per_step = per_step
        self._seed = seed
        self._epoch = 0
        self._consumed = 0

    def set_epoch(self, epoch: int, consumed: int = 0) -> None:
        """Choose the epoch; its first ``consumed`` configurations, those of all ranks, are passed over."""
        self._epoch = epoch
        self._consumed = consumed

    def __len__(self) -> int:
        steps = max(0, self._count - self._consumed) // (self._per_step * self._world_size)
        return steps * self._per_step

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch)
        order = torch.randperm(self._count, generator=generator)[self._consumed :]
        return iter(order[self._rank :: self._world_size][: len(self)].tolist())
