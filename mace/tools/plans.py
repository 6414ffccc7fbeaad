"""The plans of a training run, under the path where the rest of the package looks for them."""

from mace.arguments.plans import (
    DataPlan,
    HeadPlan,
    LabelKeys,
    LoopPlan,
    LossPlan,
    LossWeights,
    ModelPlan,
    OptimPlan,
    PathPlan,
    ReportPlan,
    StagePlan,
    TrainPlan,
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
    "TrainPlan",
    "WandbPlan",
]
