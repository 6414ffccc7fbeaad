"""What a model was built from, as plain data: a checkpoint carries it, and a restart compares it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from mace.exceptions import InputError

Description = dict[str, Any]

# Statistics are summed in another order on another machine or number of processes. The second is for numbers
# that are 0 but for rounding, like the mean energy per atom beside fitted E0s.
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
# Flags behind the entries that the constructor calls otherwise.
_FLAGS = {
    "class": "model",
    "dtype": "default_dtype",
    "num_bessel": "num_radial_basis",
    "num_polynomial_cutoff": "num_cutoff_basis",
    "interaction_cls": "interaction",
    "interaction_cls_first": "interaction_first",
    "atomic_energies": "E0s",
    "atomic_inter_scale": "scaling, --std",
    "atomic_inter_shift": "scaling, --mean",
}
# Constants that upstream measures or signs otherwise, and that are right as they come with the weights.
_OF_THE_WEIGHTS = ("U_matrix", "mean_potential", "mean_electron")


def describe(model: nn.Module, config: Mapping[str, Any]) -> Description:
    """Class, dtype and the constructor's keywords ``config`` of a model, as a checkpoint can carry them."""
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    return {"class": type(model).__name__, "dtype": dtype, **_plain(dict(config))}


def other_model(what: str) -> InputError:
    """The complaint about a checkpoint of another model; ``what`` says in which way it is another."""
    return InputError(
        f"the checkpoint belongs to another model: {what}; restart with the data and settings it was trained "
        "with, or use another --name"
    )


def require_same_model(
    checkpoint: Mapping[str, Any], model: nn.Module, description: Description | None
) -> None:
    """Make sure that the weights of a checkpoint mean the same in this model.

    Descriptions are compared. Where one is missing (upstream writes none), the constants that the state dicts
    of both hold are.

    Raises:
        InputError: names every entry that differs, with both values.
    """
    saved, present = checkpoint.get("description"), description
    if saved is None or present is None:
        names = _constants_of_both(checkpoint["model"], model)
        saved, present = _numbers(checkpoint["model"], names), _numbers(model.state_dict(), names)
    found = (_difference(name, saved.get(name), present.get(name)) for name in sorted(saved | present))
    unlike = [text for text in found if text]
    if unlike:
        raise other_model(", ".join(unlike))


def _plain(value: Any) -> Any:
    """The value out of None, booleans, numbers, texts, lists and dictionaries."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):  # irreps are tuples too, and say more as text
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # of tensors, and of arrays and numbers of numpy
        return value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__name__", str(value))


def _constants_of_both(saved: Mapping[str, torch.Tensor], model: nn.Module) -> list[str]:
    """Names of the buffers that a state dict and a model have in common."""
    names = [name for name, _ in model.named_buffers() if name in saved]
    return [name for name in names if not any(part in name for part in _OF_THE_WEIGHTS)]


def _numbers(tensors: Mapping[str, torch.Tensor], names: list[str]) -> Description:
    """Tensors as numbers and lists, whatever sides of length 1 they have: [] and [1] are both in use."""
    return {name: tensors[name].squeeze().tolist() for name in names}


def _difference(name: str, saved: Any, present: Any) -> str:
    """What differs in an entry, in words; "" if nothing does."""
    pairs = list(_unlike(name, saved, present))
    if not pairs:
        return ""
    place, theirs, ours = pairs[0]
    flag = f" (--{_FLAGS[name]})" if name in _FLAGS else ""
    more = f" and {len(pairs) - 1} more" if len(pairs) > 1 else ""
    return f"{place}{flag} {_short(theirs)} in the checkpoint, {_short(ours)} in this run{more}"


def _unlike(name: str, saved: Any, present: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two plain values differ: inside of lists of one length, number by number."""
    if isinstance(saved, list) and isinstance(present, list) and len(saved) == len(present):
        for i, (theirs, ours) in enumerate(zip(saved, present, strict=True)):
            yield from _unlike(f"{name}[{i}]", theirs, ours)
    elif not _same(saved, present):
        yield name, saved, present


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, (int, float)) and isinstance(two, (int, float)):
        return math.isclose(one, two, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return bool(one == two)


def _short(value: Any, length: int = 60) -> str:
    text = str(value)
    return text if len(text) <= length else f"{text[: length - 3]}..."
