"""Upstream's way from arguments to a model; the run itself uses ``statistics`` and ``model_building``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import nn

from mace.arguments.plans import TrainPlan
from mace.exceptions import InputError
from mace.modules import scaling_classes
from mace.tools.losses import requested_outputs
from mace.tools.model_building import build_model, log_model, model_class_and_config
from mace.tools.statistics import Statistics
from mace.tools.utils import AtomicNumberTable


def configure_model(
    args: Namespace,
    train_loader: Iterable[Any],
    atomic_energies: np.ndarray,
    model_foundation: nn.Module | None = None,
    heads: Sequence[str] | None = None,
    z_table: AtomicNumberTable | None = None,
) -> tuple[nn.Module, dict[str, bool]]:
    """A new model for some training data, and the outputs it is asked for in training.

    Args:
        args: of ``mace_run_train``; ``avg_num_neighbors`` is taken from it and, for a model with electron
        input or Fermi level, so are
            ``mean_electron`` and ``mean_potential`` (V), which scripts put there. It is not changed.
        train_loader: batches, read once for the scale if ``args`` does not give mean and std.
        atomic_energies: E0s, [n_elements] or [n_heads, n_elements], eV.
        model_foundation: None.
        heads: their names.
        z_table: elements of the model.

    Raises:
        InputError: a foundation model is given (fine-tuning is not built yet), or something is missing.
    """
    if model_foundation is not None:
        raise InputError("fine-tuning of foundation models is not built yet")
    if z_table is None:
        raise InputError("configure_model needs z_table, the elements of the model")
    plan = TrainPlan.from_namespace(args)
    names = tuple(heads or ("default",))
    energies = np.atleast_2d(atomic_energies)
    mean, std = _mean_and_std(args, train_loader, energies)
    statistics = Statistics(
        z_table=z_table,
        heads=names,
        atomic_energies=energies,
        avg_num_neighbors=args.avg_num_neighbors,
        mean=np.broadcast_to(mean, len(names)),
        std=np.broadcast_to(std, len(names)),
        mean_electron=_given(args, "mean_electron") if plan.model.needs_electron else None,
        mean_potential=_given(args, "mean_potential") if plan.model.has_potential else None,
    )
    outputs = requested_outputs(plan)
    log_model(plan.model)
    return build_model(*model_class_and_config(plan.model, statistics), plan.default_dtype), outputs


def _mean_and_std(args: Namespace, train_loader: Iterable[Any], energies: np.ndarray) -> tuple[Any, Any]:
    """Mean and scale, of each head or for all of them: those given if there are any, else measured."""
    measured = (0.0, 1.0)
    if args.scaling != "no_scaling" and None in (args.mean, args.std):
        measured = scaling_classes[args.scaling](train_loader, energies)
    return (
        measured[0] if args.mean is None else args.mean,
        measured[1] if args.std is None else args.std,
    )


def _given(args: Namespace, name: str) -> float:
    if not hasattr(args, name):
        raise InputError(f"configure_model needs args.{name} for --model={args.model}")
    return float(getattr(args, name))
