"""Reference cases as torch tensors, and their labels as a batch (see data/reference/README.md)."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.data.reference.load import cases, load

__all__ = ["case", "cases", "labels", "predictions", "state_dict"]


@cache
def case(name: str) -> dict[str, Any]:
    """A case as numpy arrays; shared, so do not change it."""
    return load(name)


def _tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {key: torch.as_tensor(value) for key, value in arrays.items()}


def state_dict(name: str) -> dict[str, torch.Tensor]:
    """The weights and buffers of a case."""
    return _tensors(case(name)["state_dict"])


def predictions(name: str) -> dict[str, torch.Tensor]:
    """What the original program returned for all structures of a case in one batch."""
    return _tensors(case(name)["batch"])


def labels(name: str) -> SimpleNamespace:
    """The labels of a case as a batch of graphs: attributes as in AtomicData, ``ptr`` and ``batch``."""
    structures = case(name)["structures"]
    numbers = torch.tensor([len(structure["numbers"]) for structure in structures])
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), numbers.cumsum(0)])
    batch = SimpleNamespace(ptr=ptr, batch=torch.repeat_interleave(numbers))
    for key in structures[0]["labels"]:
        values = [torch.as_tensor(structure["labels"][key]) for structure in structures]
        setattr(batch, key, torch.cat(values) if key == "forces" else torch.stack(values))
    return batch
