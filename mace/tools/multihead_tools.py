"""Upstream's description of a head and the helpers that make one; a run itself uses ``HeadPlan``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from mace.tools.scripts_utils import SubsetCollection, dict_to_namespace, get_dataset_from_xyz

__all__ = [
    "HeadConfig",
    "SubsetCollection",
    "dict_head_to_dataclass",
    "dict_to_namespace",
    "get_dataset_from_xyz",
    "prepare_default_head",
]

# What a script fills in later, and what a head does not inherit from the global arguments.
_FILLED_IN = ("head_name", "collections", "train_loader", "z_table", "atomic_energies_dict")
_OWN_ONLY = ("test_file", "test_dir")


@dataclass
class HeadConfig:
    """A head as scripts hand it around: settings first, then what they fill in while they go on."""

    head_name: str
    train_file: str | None = None
    valid_file: str | None = None
    test_file: str | None = None
    test_dir: str | None = None
    E0s: Any | None = None
    statistics_file: str | None = None
    valid_fraction: float | None = None
    config_type_weights: dict[str, float] | None = None
    energy_key: str | None = None
    forces_key: str | None = None
    stress_key: str | None = None
    virials_key: str | None = None
    dipole_key: str | None = None
    charges_key: str | None = None
    keep_isolated_atoms: bool | None = None
    atomic_numbers: list[int] | str | None = None
    mean: float | None = None
    std: float | None = None
    avg_num_neighbors: float | None = None
    compute_avg_num_neighbors: bool | None = None
    collections: SubsetCollection | None = None
    train_loader: Any | None = None
    z_table: Any | None = None
    atomic_energies_dict: dict[int, float] | None = None
    electron_key: str | None = None
    potential_key: str | None = None


_SETTINGS = tuple(field.name for field in fields(HeadConfig) if field.name not in _FILLED_IN)


def prepare_default_head(args: Namespace) -> dict[str, dict[str, Any]]:
    """The settings of the one head that the global arguments describe, by its name."""
    return {"default": {setting: getattr(args, setting) for setting in _SETTINGS}}


def dict_head_to_dataclass(head: Mapping[str, Any], head_name: str, args: Namespace) -> HeadConfig:
    """A head from its settings; those it lacks are the global ones, except its test data."""
    common = {setting: getattr(args, setting) for setting in _SETTINGS if setting not in _OWN_ONLY}
    own = {setting: head[setting] for setting in _SETTINGS if setting in head}
    return HeadConfig(head_name=head_name, **{**common, **own})
