"""The heads of a run: one made from the global flags, or those of ``--heads``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from mace.arguments.data_flags import DATA, KEYS
from mace.arguments.data_plan import HeadPlan, LabelKeys
from mace.arguments.limits import FRACTION
from mace.arguments.model_flags import MODELS
from mace.arguments.parsing import atomic_energies_literal, integers, literal, weights_by_name
from mace.exceptions import InputError

DEFAULT_HEAD = "default"

_KEYS = tuple(f"{field.name}_key" for field in fields(LabelKeys))
_SETTINGS = (
    "train_file",
    "valid_file",
    "test_file",
    "test_dir",
    "E0s",
    "statistics_file",
    "valid_fraction",
    "config_type_weights",
    "compute_avg_num_neighbors",
    "avg_num_neighbors",
    "mean",
    "std",
    "keep_isolated_atoms",
    "atomic_numbers",
    *_KEYS,
)
# A head of its own does not inherit these: each head has its test data.
_OWN_ONLY = ("test_file", "test_dir")
_FLAGS = {flag.attribute: flag for group in (DATA, KEYS, MODELS) for flag in group.flags}


def plan_heads(args: Namespace) -> tuple[HeadPlan, ...]:
    """Make the plan of every head, in the order of ``--heads``. Raises ``InputError``."""
    common = {setting: getattr(args, setting) for setting in _SETTINGS}
    if args.heads is None:
        return (_plan_head(DEFAULT_HEAD, common, {setting: f"--{setting}" for setting in _SETTINGS}),)
    heads = literal(args.heads, "--heads")
    if not isinstance(heads, Mapping) or not heads:
        raise InputError(f"--heads is {args.heads!r}: give a dict, head name -> dict of its settings")
    for setting in _OWN_ONLY:
        if common[setting] is not None:
            raise InputError(f"--{setting} belongs to no head: with --heads give {setting} inside each head")
    return tuple(_own_head(name, settings, common) for name, settings in heads.items())


def _own_head(name: Any, settings: Any, common: Mapping[str, Any]) -> HeadPlan:
    if not isinstance(name, str) or not name.strip() or "/" in name:
        raise InputError(f"--heads has a head named {name!r}: give a text without '/'")
    if not isinstance(settings, Mapping):
        raise InputError(
            f"head {name!r} is {settings!r}: give a dict of its settings, e.g. {{'train_file': ...}}"
        )
    unknown = sorted(set(settings) - set(_SETTINGS), key=str)
    if unknown:
        raise InputError(
            f"head {name!r} has the unknown setting {unknown[0]!r}: known are {', '.join(_SETTINGS)}"
        )
    where = {
        setting: f"{setting} of head {name!r}" if setting in settings else f"--{setting}"
        for setting in _SETTINGS
    }
    return _plan_head(name, {**common, **settings}, where)


def _plan_head(name: str, settings: Mapping[str, Any], where: Mapping[str, str]) -> HeadPlan:
    if settings["train_file"] is None:
        raise InputError(
            f"head {name!r} has no training data: give --train_file, or train_file inside the head"
        )
    read = {
        setting: _FLAGS[setting].read(settings[setting], where[setting])
        for setting in _SETTINGS
        if setting not in ("E0s", "config_type_weights", "atomic_numbers")
    }
    if read["valid_file"] is None and not FRACTION.admits(read["valid_fraction"]):
        raise InputError(f"{where['valid_fraction']} is {read['valid_fraction']}: it must be {FRACTION.text}")
    numbers = settings["atomic_numbers"]
    keys = LabelKeys(**{key.removesuffix("_key"): read.pop(key) for key in _KEYS})
    return HeadPlan(
        name=name,
        E0s=_energies(settings["E0s"], where["E0s"]),
        config_type_weights=weights_by_name(settings["config_type_weights"], where["config_type_weights"]),
        atomic_numbers=None if numbers is None else integers(numbers, where["atomic_numbers"]),
        keys=keys,
        **read,
    )


def _energies(value: Any, where: str) -> str | None:
    """Text of E0s, checked; a dict is written as the text of one."""
    if value is None:
        return None
    text = value.strip() if isinstance(value, str) else repr(value)
    if text.lower() in ("foundation", "estimated"):
        raise InputError(f"{where} is {text!r}: it is not built yet (fine-tuning of foundation models)")
    atomic_energies_literal(text, where)
    return "average" if text.lower() == "average" else text
