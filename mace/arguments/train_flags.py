"""Every flag of ``mace_run_train``, by group."""

from typing import Any

from mace.arguments.data_flags import DATA, FINE_TUNING, KEYS
from mace.arguments.flags import FlagGroup
from mace.arguments.model_flags import MODEL_OPTIONS, MODELS
from mace.arguments.run_flags import CHECKPOINTS, PROCESSES, REPORT, RUN, WANDB
from mace.arguments.training_flags import LOSS, OPTIMIZER, STAGE_TWO, STEPS

TRAIN: tuple[FlagGroup, ...] = (
    RUN,
    PROCESSES,
    DATA,
    KEYS,
    MODELS,
    MODEL_OPTIONS,
    LOSS,
    OPTIMIZER,
    STAGE_TWO,
    STEPS,
    FINE_TUNING,
    CHECKPOINTS,
    REPORT,
    WANDB,
)

DEFAULTS: dict[str, Any] = {flag.attribute: flag.default for group in TRAIN for flag in group.flags}
