"""The state of random numbers, as plain data that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """The state of torch's and numpy's random numbers, as plain data."""
    name, keys, *rest = np.random.get_state()
    return {"torch": torch.get_rng_state(), "numpy": [name, torch.from_numpy(keys.astype(np.int64)), *rest]}


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Go on with the random numbers of :func:`random_state`."""
    name, keys, *rest = state["numpy"]
    torch.set_rng_state(state["torch"])
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
