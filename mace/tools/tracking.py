"""Weights and Biases, when the user asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mace.exceptions import InputError
from mace.tools.distributed import Ranks
from mace.tools.plans import WandbPlan

Evaluation = Mapping[str, Mapping[str, Any]]  # head -> metrics of one evaluation, "epoch" among them


def open_tracking(plan: WandbPlan | None, ranks: Ranks) -> Callable[[Evaluation], None] | None:
    """Start a wandb run on the main rank; returns what to call after an evaluation (None without a plan).

    Raises ``InputError`` on every rank if the package is missing.
    """
    if plan is None:
        return None
    ranks.from_main(lambda: _start(plan))
    return log_evaluation


def _start(plan: WandbPlan) -> None:
    try:
        import wandb
    except ImportError as error:
        raise InputError("--wandb needs the package wandb: pip install 'cp-mace[wandb]'") from error
    wandb.init(
        project=plan.project,
        entity=plan.entity,
        name=plan.name,
        config=plan.hypers,
        dir=plan.directory,
        resume="allow",
    )
    wandb.run.summary["params"] = json.dumps(plan.arguments)


def log_evaluation(evaluation: Evaluation) -> None:
    """Log one evaluation to the open wandb run."""
    import wandb

    wandb.log(
        {
            head: {
                "epoch": metrics["epoch"],
                "valid_loss": metrics["loss"],
                "valid_rmse_e_per_atom": metrics.get("rmse_e_per_atom"),
                "valid_rmse_f": metrics.get("rmse_f"),
            }
            for head, metrics in evaluation.items()
        }
    )
