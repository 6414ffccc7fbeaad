"""Ranks that are threads of this process: collectives without starting processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import Any

import torch

from mace.tools.distributed import PendingSum, Ranks


@dataclass(frozen=True, kw_only=True)
class ThreadRanks(Ranks):
    """One thread of several; ``table`` is shared by all."""

    table: list
    meeting: Barrier

    def gather(self, value):
        self.table[self.rank] = value
        self.meeting.wait(timeout=30)
        values = list(self.table)
        self.meeting.wait(timeout=30)
        return values

    def sum(self, tensor):
        return torch.stack(self.gather(tensor)).sum(dim=0)

    def start_sum(self, tensor):
        return PendingSum(self.sum(tensor), None)

    def broadcast(self, value, source=0):
        return self.gather(value)[source]

    def barrier(self):
        self.gather(None)


def in_threads(world_size: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """What ``work(ranks)`` returns on each of ``world_size`` threads."""
    table, meeting = [None] * world_size, Barrier(world_size)
    ranks = [
        ThreadRanks(
            rank=rank, world_size=world_size, device=torch.device("cpu"), table=table, meeting=meeting
        )
        for rank in range(world_size)
    ]
    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(work, ranks))
