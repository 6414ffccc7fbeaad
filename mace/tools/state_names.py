"""State dicts under the names of the model itself, without those that wrappers put in front."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mace.exceptions import InputError

_LEFT_OUT = object()
# The wrappers' own names, which no model has: dropped wherever they stand.
_OF_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# What DistributedDataParallel, DataParallel and AveragedModel call the model: dropped where all begin so.
_OF_PARALLEL = "module."
_COUNTER = "n_averaged"  # of AveragedModel, beside the model


def is_state(value: Any) -> bool:
    """Whether it is a state dict: tensors by name."""
    return (
        isinstance(value, Mapping)
        and len(value) > 0
        and all(isinstance(name, str) for name in value)
        and all(isinstance(tensor, torch.Tensor) for tensor in value.values())
    )


def cleaned(content: Any, path: Path) -> dict[str, Any]:
    """What a file holds as plain data, with every state dict in it under the names of the model.

    Dictionaries are searched, and modules give their state dict. Values that are no plain data are left out,
    which the log says.

    Raises:
        InputError: two tensors would have one name, or it is no dictionary.
    """
    found = _plain(content, path, "")
    if not isinstance(found, dict):
        raise InputError(f"{path} holds a {type(content).__name__}: no module and no dictionary of tensors")
    return found


def _plain(value: Any, path: Path, place: str) -> Any:
    if isinstance(value, torch.nn.Module):
        value = value.state_dict()
    if is_state(value):
        return _renamed(value)
    if isinstance(value, Mapping):
        items = {name: _plain(item, path, f"{place}[{name!r}]") for name, item in value.items()}
        return {name: item for name, item in items.items() if item is not _LEFT_OUT}
    if isinstance(value, (list, tuple)):
        items_in_order = [_plain(item, path, f"{place}[{index}]") for index, item in enumerate(value)]
        return type(value)(items_in_order) if type(value) in (list, tuple) else items_in_order
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.Tensor, torch.dtype)):
        return value
    logging.warning("%s: %s is left out, a %s is no plain data", path, place or "it", type(value).__name__)
    return _LEFT_OUT


def _renamed(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    names = {name: ".".join(part for part in name.split(".") if part not in _OF_WRAPPERS) for name in state}
    while (inside := [name for name in names.values() if name != _COUNTER]) and all(
        name.startswith(_OF_PARALLEL) for name in inside
    ):
        names = {old: name.removeprefix(_OF_PARALLEL) for old, name in names.items() if name != _COUNTER}
    if len(set(names.values())) != len(names):
        twice = max(names.values(), key=list(names.values()).count)
        raise InputError(f"two tensors would be called {twice} without the names of wrappers")
    return {name: state[old] for old, name in names.items()}
