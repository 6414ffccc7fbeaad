"""From the log of a run and a state dict to the model: choices from the log, statistics from the state."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from e3nn import o3

from mace.arguments.flags import ON, Flag, check_values
from mace.arguments.model_flags import MODEL_OPTIONS, MODELS
from mace.arguments.model_planning import plan_model
from mace.arguments.plans import ModelPlan
from mace.arguments.reconcile import check_args
from mace.arguments.train_flags import DEFAULTS
from mace.exceptions import InputError
from mace.tools.model_building import model_class_and_config
from mace.tools.run_log import LoggedRun
from mace.tools.statistics import Statistics
from mace.tools.upstream_config import in_our_terms
from mace.tools.utils import AtomicNumberTable

State = Mapping[str, torch.Tensor]

_GROUPS = (MODELS, MODEL_OPTIONS)
# What is asked of the model in training says nothing about the model.
_OF_TRAINING = ("compute_stress", "compute_potential", "compute_forces", "compute_polarizability")
_FIRST_PRODUCT = "products.0.symmetric_contractions.contractions."


def logged_config(run: LoggedRun, state: State) -> tuple[str, dict[str, Any]]:
    """Class and constructor keywords of the model whose state a run has written.

    Raises:
        InputError: the log does not say enough, is that of another run, or asks for what this package lacks.
    """
    plan = _model_plan(run)
    _require_same_run(plan, state)
    cls, config = model_class_and_config(plan, _statistics(plan, run, state))
    if run.ours:
        return cls.__name__, config
    if plan.num_interactions == 1 and f"{_FIRST_PRODUCT}0.weights_max" in state:
        # mace-torch's models of one layer keep scalars only, CP-MACE's keep everything.
        kept = {
            name.removeprefix(_FIRST_PRODUCT).partition(".")[0] for name in state if _FIRST_PRODUCT in name
        }
        config["hidden_irreps"] = str(o3.Irreps(plan.hidden_irreps)[: len(kept)])
    return cls.__name__, in_our_terms(cls.__name__, config, state)


def _model_plan(run: LoggedRun) -> ModelPlan:
    if run.arguments.get("foundation_model") is not None:
        raise InputError(
            f"the run was started from the foundation model {run.arguments['foundation_model']!r}, and its "
            "log does not say of what architecture that is"
        )
    logged = {
        flag.attribute: _value(flag, run.arguments[flag.attribute])
        for group in _GROUPS
        for flag in group.flags
        if flag.attribute in run.arguments and flag.attribute not in _OF_TRAINING
    }
    args = Namespace(**{**DEFAULTS, **logged})
    if not run.ours and args.hidden_irreps is not None:
        args.num_channels = args.max_L = None  # upstream logs them as it has derived them
    check_values(args, _GROUPS)
    return plan_model(check_args(args)[0], [])


def _value(flag: Flag, value: Any) -> Any:
    """A value of the log, as strictly checked as on the command line."""
    where = f"{flag.name} in the log"
    if flag.kind == ON:
        if not isinstance(value, bool):
            raise InputError(f"{where} is {value!r}: it must be True or False")
        return value
    read = None if value is None and flag.default is None else flag.read(str(value), where)
    if flag.choices and read not in flag.choices:
        raise InputError(f"{where} is {value!r}, which this version does not know")
    return read


def _require_same_run(plan: ModelPlan, state: State) -> None:
    """Compare what both say: a log of another run gives another model that may well load."""
    pairs = {
        "r_max": (plan.r_max, "radial_embedding.cutoff_fn.r_max"),
        "num_interactions": (plan.num_interactions, "num_interactions"),
        "num_cutoff_basis": (plan.num_cutoff_basis, "radial_embedding.cutoff_fn.p"),
    }
    for name, (logged, key) in pairs.items():
        saved = float(state[key]) if key in state else logged
        if not np.isclose(saved, logged, rtol=1e-6):
            raise InputError(
                f"the log is that of another run: its {name} is {logged}, that of the weights {saved}"
            )


def _statistics(plan: ModelPlan, run: LoggedRun, state: State) -> Statistics:
    """What the run measured, as far as the model holds it; the number of neighbours is in the log alone."""
    heads = tuple(run.heads or ["default"])
    numbers = _atomic_numbers(run, state)
    if "atomic_energies_fn.atomic_energies" in state:
        energies = np.atleast_2d(state["atomic_energies_fn.atomic_energies"].numpy())
        if len(energies) != len(heads):
            raise InputError(
                f"the log is that of another run: its heads are {', '.join(heads)}, the weights have "
                f"{len(energies)}"
            )
    else:
        energies = np.zeros((len(heads), len(numbers)))
    return Statistics(
        z_table=AtomicNumberTable(numbers),
        heads=heads,
        atomic_energies=energies,
        avg_num_neighbors=_neighbors(run),
        mean=_per_head(state, "scale_shift.shift", heads, 0.0),
        std=_per_head(state, "scale_shift.scale", heads, 1.0),
        mean_electron=_mean(plan, state, "mean_electron"),
        mean_potential=_mean(plan, state, "mean_potential"),
    )


def _atomic_numbers(run: LoggedRun, state: State) -> list[int]:
    saved = state["atomic_numbers"].tolist() if "atomic_numbers" in state else run.atomic_numbers
    if not saved:
        raise InputError(
            "neither the weights nor the log (a line 'Atomic Numbers used: ...') name the elements"
        )
    if run.atomic_numbers not in (None, saved):
        raise InputError(
            f"the log is that of another run: its elements are {run.atomic_numbers}, "
            f"those of the weights {saved}"
        )
    return saved


def _neighbors(run: LoggedRun) -> float:
    if run.avg_num_neighbors is None:
        raise InputError(
            "the log ends before the line 'Average number of neighbors: ...', without which the model cannot "
            "be built"
        )
    return run.avg_num_neighbors


def _per_head(state: State, name: str, heads: tuple[str, ...], default: float) -> np.ndarray:
    if name not in state:
        return np.full(len(heads), default)
    return state[name].numpy()  # upstream has a number without a head, which it stays


def _mean(plan: ModelPlan, state: State, name: str) -> float | None:
    if not plan.has_potential:
        return None
    if name not in state:
        raise InputError(f"the weights lack {name}, which --model={plan.model} in the log has")
    return float(state[name])
