"""How a run trains: losses, optimiser, stages and the loop."""

from __future__ import annotations

from dataclasses import dataclass

# Labels each loss compares. The data need no others, and the weights of others have no effect.
LOSS_LABELS: dict[str, tuple[str, ...]] = {
    "ef": ("energy", "forces"),
    "weighted": ("energy", "forces"),
    "forces_only": ("forces",),
    "l1l2energyforces": ("energy", "forces"),
    "fermi_weighted": ("energy", "forces", "potential"),
    "fermi_weighted_uncertainty": ("energy", "forces", "potential"),
    "fermi_weighted_evidential": ("energy", "forces", "potential"),
    "dipole": ("dipole",),
    "energy_forces_dipole": ("energy", "forces", "dipole"),
    "stress": ("energy", "forces", "stress"),
    "virials": ("energy", "forces", "virials"),
    "huber": ("energy", "forces", "stress"),
    "universal": ("energy", "forces", "stress"),
}
# Losses that keep their form in stage two; every other one becomes the plain energy and force loss.
_KEPT_IN_STAGE_TWO = (
    "fermi_weighted",
    "fermi_weighted_uncertainty",
    "fermi_weighted_evidential",
    "energy_forces_dipole",
    "stress",
    "virials",
    "universal",
)


@dataclass(frozen=True, kw_only=True)
class LossWeights:
    """Weights of the terms of a loss."""

    energy: float
    forces: float
    potential: float
    stress: float
    virials: float
    dipole: float


@dataclass(frozen=True, kw_only=True)
class LossPlan:
    """The loss of both stages."""

    loss: str
    weights: LossWeights
    stage_two_weights: LossWeights
    huber_delta: float

    @property
    def stage_two_loss(self) -> str:
        """Name of the loss in stage two; Fermi level and dipole stay in it."""
        return self.loss if self.loss in _KEPT_IN_STAGE_TWO else "weighted"

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that the loss of stage one compares."""
        return LOSS_LABELS[self.loss]

    def required_labels(self, *, stage_two: bool = False) -> tuple[str, ...]:
        """Labels of non-zero weight: the data must hold some of each.

        ``stage_two`` adds those of the second stage.
        """
        first = [label for label in self.labels if getattr(self.weights, label) != 0.0]
        if stage_two:
            later = LOSS_LABELS[self.stage_two_loss]
            first += [label for label in later if getattr(self.stage_two_weights, label) != 0.0]
        return tuple(dict.fromkeys(first))


@dataclass(frozen=True, kw_only=True)
class OptimPlan:
    """Optimiser, learning-rate schedule, averaging of the weights."""

    optimizer: str
    lr: float
    beta: float  # first Adam beta; the second is 0.999
    beta1_schedulefree: float
    beta2_schedulefree: float
    weight_decay: float
    amsgrad: bool
    scheduler: str
    lr_factor: float
    scheduler_patience: int  # evaluations
    lr_scheduler_gamma: float
    ema: bool
    ema_decay: float
    clip_grad: float | None  # largest global gradient norm; None: no clipping


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """Stage two: from epoch ``start`` on (they count from 0), with the stage-two loss and learning rate."""

    start: int
    lr: float


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """How a training step is spread over time, memory and precision; none of it changes what is trained."""

    accumulation: int  # batches of each rank in a step
    recompute: bool  # compute activations again in the backward pass
    shard_optimizer: bool  # each rank keeps the optimiser's state of its part of the parameters
    autocast: bool  # forward pass in bfloat16


@dataclass(frozen=True, kw_only=True)
class LoopPlan:
    """Length of the run, when it is evaluated and what is kept."""

    max_num_epochs: int
    patience: int  # evaluations without improvement
    eval_interval: int  # epochs
    restart_latest: bool
    keep_checkpoints: bool
    save_all_checkpoints: bool
    progress: bool | None  # progress bar; None: on a terminal only


@dataclass(frozen=True, kw_only=True)
class ReportPlan:
    """The tables of the run."""

    error_table: str
    skip_evaluate_heads: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class WandbPlan:
    """A run recorded by Weights and Biases."""

    project: str
    entity: str
    name: str
    directory: str | None
    hypers: dict[str, object]  # the arguments named by --wandb_log_hypers
    arguments: dict[str, object]  # all arguments, plain JSON
