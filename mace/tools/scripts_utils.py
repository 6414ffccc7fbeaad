"""Upstream's helpers of training scripts: each hands its arguments to the room that does the work.

New code calls those rooms: datasets, reference_energies, losses, optimization, tracking. Helpers that take
``args`` take the namespace of ``mace.tools.build_default_arg_parser()``. Where upstream raises assorted
exceptions these raise ``InputError``, a ``ValueError``.
"""

from __future__ import annotations

import logging
import subprocess
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from mace.arguments.parsing import atomic_energies_literal, is_hdf5_path, weights_by_name
from mace.arguments.plans import TrainPlan
from mace.data import (
    Configurations,
    compute_average_E0s,
    load_from_xyz,
    random_train_valid_split,
    test_config_types,
)
from mace.data.hdf5_files import files_of
from mace.data.labels import ELECTRON, POTENTIAL
from mace.exceptions import InputError
from mace.modules import compute_avg_num_neighbors
from mace.tools.distributed import Ranks
from mace.tools.head_selection import remove_pt_head
from mace.tools.loading import extract_load, load_from_json
from mace.tools.losses import build_loss, stage_two_text
from mace.tools.optimization import (
    LRScheduler,
    SWAContainer,
    build_stage_two,
    optimizer_over,
    parameter_groups,
)
from mace.tools.rebuild import extract_config_mace_model, extract_model
from mace.tools.reference_energies import energies_array, read_energies
from mace.tools.tracking import open_tracking
from mace.tools.utils import AtomicNumberTable, get_atomic_number_table_from_zs

__all__ = [
    "LRScheduler",
    "SWAContainer",
    "SubsetCollection",
    "check_path_ase_read",
    "dict_to_array",
    "dict_to_namespace",
    "extract_config_mace_model",
    "extract_load",
    "extract_model",
    "get_atomic_energies",
    "get_avg_num_neighbors",
    "get_config_type_weights",
    "get_dataset_from_xyz",
    "get_loss_fn",
    "get_optimizer",
    "get_params_options",
    "get_swa",
    "load_from_json",
    "print_git_commit",
    "remove_pt_head",
    "setup_wandb",
]


@dataclass
class SubsetCollection:
    """The configurations of a head: ``tests`` are pairs of a group's name and its configurations."""

    train: Configurations
    valid: Configurations
    tests: list[tuple[str, Configurations]]


def get_dataset_from_xyz(
    work_dir: str,
    train_path: str,
    valid_path: str | None,
    valid_fraction: float,
    config_type_weights: Mapping[str, float],
    test_path: str | None = None,
    seed: int = 1234,
    keep_isolated_atoms: bool = False,
    head_name: str = "Default",
    energy_key: str = "REF_energy",
    forces_key: str = "REF_forces",
    stress_key: str = "REF_stress",
    virials_key: str = "virials",
    dipole_key: str = "dipoles",
    charges_key: str = "charges",
    head_key: str = "head",
    electron_key: str = ELECTRON.key,
    potential_key: str = POTENTIAL.key,
) -> tuple[SubsetCollection, dict[int, float]]:
    """Read the files of a head: its configurations, and the energies (eV) of isolated atoms by number."""
    read = partial(
        load_from_xyz,
        config_type_weights=config_type_weights,
        energy_key=energy_key,
        forces_key=forces_key,
        stress_key=stress_key,
        virials_key=virials_key,
        dipole_key=dipole_key,
        charges_key=charges_key,
        head_key=head_key,
        head_name=head_name,
        electron_key=electron_key,
        potential_key=potential_key,
    )
    isolated, train = read(train_path, extract_atomic_energies=True, keep_isolated_atoms=keep_isolated_atoms)
    if valid_path is None:
        train, valid = random_train_valid_split(train, valid_fraction, seed, work_dir)
    else:
        valid = read(valid_path)[1]
    tests = [] if test_path is None else test_config_types(read(test_path)[1])
    return SubsetCollection(train=train, valid=valid, tests=tests), isolated


def check_path_ase_read(filename: str) -> bool:
    """Whether ASE shall read a path: not an HDF5 file, nor a folder of such files."""
    if not is_hdf5_path(filename):
        return True
    files_of(filename)  # complains about a folder without any
    return False


def get_config_type_weights(ct_weights: str) -> dict[str, float]:
    """Weights by config type from the text of a dict."""
    return weights_by_name(ct_weights, "config_type_weights")


def get_atomic_energies(
    E0s: str | None,  # noqa: N803 (public name)
    train_collection: Configurations | None,
    z_table: AtomicNumberTable,
) -> dict[int, float]:
    """Energies of isolated atoms (eV) by number: an average, those of a JSON file or of a dict literal."""
    if E0s is None:
        raise InputError("E0s not found in training file and not specified in command line")
    if E0s.lower() == "average":
        return compute_average_E0s(train_collection or [], z_table)
    return atomic_energies_literal(E0s) or read_energies(E0s)


def dict_to_array(input_data: Mapping[str, Mapping[int, float]], heads: Sequence[str]) -> np.ndarray:
    """Energies by head and atomic number as an array [n_heads, n_elements], 0 where a head lacks one."""
    z_table = get_atomic_number_table_from_zs(z for energies in input_data.values() for z in energies)
    return energies_array([input_data[head] for head in heads], z_table)


def dict_to_namespace(dictionary: Mapping[str, Any]) -> Namespace:
    """The same names and values as attributes."""
    return Namespace(**dictionary)


def get_avg_num_neighbors(
    head_configs: Sequence[Any], args: Namespace, train_loader: Any, device: torch.device
) -> float:
    """Edges per atom of the training set, or the largest given value if a head has it not measured."""
    if all(head.compute_avg_num_neighbors for head in head_configs):
        return compute_avg_num_neighbors(train_loader)
    return max(head.avg_num_neighbors for head in head_configs if head.avg_num_neighbors is not None)


def get_loss_fn(args: Namespace, dipole_only: bool, compute_dipole: bool) -> nn.Module:
    """The loss of stage one; that dipoles are asked for has to fit the model."""
    plan = TrainPlan.from_namespace(args)
    if (dipole_only or compute_dipole) and not plan.model.kind.has_dipole:
        raise InputError(f"--model={plan.model.model} has no dipole")
    return build_loss(plan.loss)


def get_params_options(args: Namespace, model: nn.Module) -> dict[str, Any]:
    """Parameter groups and options of the optimiser."""
    return {
        "params": parameter_groups(model, args.weight_decay),
        "lr": args.lr,
        "amsgrad": args.amsgrad,
        "betas": (args.beta, 0.999),
    }


def get_optimizer(args: Namespace, param_options: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The optimiser that ``args`` names, over the groups of :func:`get_params_options`."""
    return optimizer_over(param_options["params"], TrainPlan.from_namespace(args).optim)


def get_swa(
    args: Namespace,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    swas: list[bool],
    dipole_only: bool = False,
) -> tuple[SWAContainer | None, list[bool]]:
    """Stage two; ``swas``, the stages that are evaluated at the end, gains one."""
    if dipole_only:
        raise InputError("models of dipoles alone have no stage two")
    plan = TrainPlan.from_namespace(args)
    stage_two = build_stage_two(optimizer, build_loss(plan.loss, stage_two=True), plan.stages)
    if stage_two is not None:
        logging.info(stage_two_text(plan))
        swas.append(True)
    return stage_two, swas


def setup_wandb(args: Namespace) -> Callable[..., None] | None:
    """Start a run of Weights and Biases if ``args`` asks for it."""
    return open_tracking(TrainPlan.from_namespace(args).wandb, Ranks.single())


def print_git_commit() -> str:
    """The commit of the repository that the current folder belongs to, or "None"."""
    try:
        answer = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        logging.debug(f"Error accessing Git repository: {error}")
        return "None"
    commit = answer.stdout.strip()
    logging.debug(f"Current Git commit: {commit}")
    return commit
