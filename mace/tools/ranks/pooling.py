"""Statistics of numbers that are spread over ranks, from sums and the largest few percent of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch


class Collectives(Protocol):
    """What pooling asks of the processes of a run."""

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over the processes."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in the order of the ranks."""
        ...


class Pooled(NamedTuple):
    """Errors of one quantity over all ranks."""

    mean_abs: float
    mean_square: float
    mean_abs_reference: float
    mean_square_reference: float
    q95: float  # 95th percentile of the absolute errors


def pooled(samples: Mapping[str, tuple[np.ndarray, np.ndarray]], ranks: Collectives) -> dict[str, Pooled]:
    """Statistics by quantity of (errors, references) over all ranks, those without any number left out.

    All ranks must call this; each may hold other quantities, or none.
    """
    names = sorted(set().union(*ranks.gather(sorted(samples))))
    if not names:
        return {}
    nothing = (np.empty(0), np.empty(0))
    mine = [samples.get(name, nothing) for name in names]
    sums = ranks.sum(torch.tensor([_sums(*sample) for sample in mine], dtype=torch.float64))
    statistics = {}
    for name, (errors, _), (count, *totals) in zip(names, mine, sums.tolist(), strict=True):
        if count:
            q95 = _percentile(np.abs(errors), int(count), 0.95, ranks)
            statistics[name] = Pooled(*(total / count for total in totals), q95)
    return statistics


def _sums(errors: np.ndarray, references: np.ndarray) -> list[float]:
    """Number of errors, sums of |error|, error^2, |reference| and reference^2."""
    sizes = [np.abs(errors), np.square(errors), np.abs(references), np.square(references)]
    return [float(errors.size), *(float(size.sum()) for size in sizes)]


def _percentile(values: np.ndarray, count: int, fraction: float, ranks: Collectives) -> float:
    """Percentile (linear between neighbours) of the values of all ranks, ``count`` in total.

    The values from the percentile's lower neighbour upwards are among the largest of each rank, so only
    those travel.
    """
    position = fraction * (count - 1)
    below = math.floor(position)
    num_largest = count - below
    largest = np.sort(values)[max(0, values.size - num_largest) :]
    tail = np.sort(np.concatenate(ranks.gather(largest)))[-num_largest:]
    above = tail[min(1, tail.size - 1)]
    return float(tail[0] + (position - below) * (above - tail[0]))
