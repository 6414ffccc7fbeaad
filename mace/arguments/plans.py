"""The plan of a training run: what the command line asked for, checked once and frozen.

Below the door (``TrainPlan.from_namespace``) nobody reads an ``argparse.Namespace``.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

from mace.arguments.data_plan import DataPlan, HeadPlan, LabelKeys
from mace.arguments.model_plan import ModelPlan
from mace.arguments.path_plan import PathPlan
from mace.arguments.planning import plan_training
from mace.arguments.training_plan import (
    LoopPlan,
    LossPlan,
    LossWeights,
    OptimPlan,
    ReportPlan,
    StagePlan,
    StepPlan,
    WandbPlan,
)

__all__ = [
    "DataPlan",
    "HeadPlan",
    "LabelKeys",
    "LoopPlan",
    "LossPlan",
    "LossWeights",
    "ModelPlan",
    "OptimPlan",
    "PathPlan",
    "ReportPlan",
    "StagePlan",
    "StepPlan",
    "TrainPlan",
    "WandbPlan",
]


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """Everything one call of ``mace_run_train`` does."""

    name: str
    seed: int
    device: str
    default_dtype: str  # "float32" or "float64"
    distributed: bool
    launcher: str | None  # None: recognised from the environment
    dist_timeout: float | None  # seconds; None: torch's
    dist_debug: bool
    log_all_ranks: bool
    log_level: int
    messages: tuple[tuple[str, int], ...]  # (text, logging level), to be logged once there is a log
    paths: PathPlan
    data: DataPlan
    model: ModelPlan
    loss: LossPlan
    optim: OptimPlan
    stages: StagePlan | None  # None: no stage two
    steps: StepPlan
    training: LoopPlan
    report: ReportPlan
    wandb: WandbPlan | None

    @property
    def tag(self) -> str:
        """``<name>_run-<seed>``."""
        return self.paths.tag

    @classmethod
    def from_namespace(cls, args: Namespace) -> TrainPlan:
        """Turn parsed arguments into a plan.

        The namespace is left as it is. Raises ``InputError`` for values that cannot be used, for
        arguments that contradict each other and for flags that are known but not built yet.
        """
        return cls(**plan_training(args))
