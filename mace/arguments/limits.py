"""Ranges of numbers, as rows of the flag tables name them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """A range of numbers and how it is said."""

    text: str
    holds: Callable[[float], bool]

    def admits(self, value: float) -> bool:
        """Whether the value is a finite number in the range."""
        return math.isfinite(value) and self.holds(value)


FINITE = Limit("finite", lambda value: True)
POSITIVE = Limit("greater than 0", lambda value: value > 0)
NOT_NEGATIVE = Limit("0 or greater", lambda value: value >= 0)
AT_LEAST_ONE = Limit("1 or greater", lambda value: value >= 1)
DEGREE = Limit("from 0 to 11, as far as e3nn's spherical harmonics go", lambda value: 0 <= value <= 11)
FRACTION = Limit("greater than 0 and less than 1", lambda value: 0 < value < 1)
DECAY = Limit("0 or greater and less than 1", lambda value: 0 <= value < 1)
SEED = Limit("from 0 to 2**32 - 1", lambda value: 0 <= value < 2**32)
