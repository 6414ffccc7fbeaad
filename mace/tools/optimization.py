"""What moves the weights: parameter groups, optimiser, learning-rate schedules and the moving average."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau
from torch.optim.swa_utils import SWALR
from torch_ema import ExponentialMovingAverage

from mace.arguments.plans import OptimPlan, StagePlan
from mace.exceptions import InputError
from mace.tools.ranks.sharding import sharded_optimizer

# Children of a MACE model whose parameters upstream groups; checkpoints hold the groups in this order.
_GROUP_OF_CHILD = {"node_embedding": "embedding", "products": "products", "readouts": "readouts"}
_GROUP_ORDER = ("embedding", "interactions_decay", "interactions_no_decay", "products", "readouts")
_DECAYING_GROUPS = ("interactions_decay", "products")
# Within the interactions only the maps of the messages decay.
_DECAYING_NAMES = ("linear.weight", "skip_tp_full.weight")


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Put every trainable parameter into exactly one optimiser group.

    The first five groups are upstream's (embedding, interactions_decay, interactions_no_decay, products,
    readouts; they may be empty). Everything else, the Fermi-level readout for example, forms one group a
    top-level child of the model, named like the child, without weight decay. Frozen parameters are in no
    group; the log lists them.

    Args:
        model: the model to train.
        weight_decay: of interactions_decay and products; the other groups have none.

    Returns:
        dictionaries with keys name, params, weight_decay.

    Raises:
        InputError: nothing is trainable.
    """
    members: dict[str, list[nn.Parameter]] = {name: [] for name in _GROUP_ORDER}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            members.setdefault(_group_name(name), []).append(parameter)
    if not any(members.values()):
        raise InputError("the model has no trainable parameter")
    _list_frozen(model)
    return [
        {
            "name": name,
            "params": parameters,
            "weight_decay": weight_decay if name in _DECAYING_GROUPS else 0.0,
        }
        for name, parameters in members.items()
    ]


def _group_name(parameter_name: str) -> str:
    child, _, rest = parameter_name.partition(".")
    if child == "interactions":
        decays = any(part in rest for part in _DECAYING_NAMES)
        return "interactions_decay" if decays else "interactions_no_decay"
    return _GROUP_OF_CHILD.get(child, child)


def _list_frozen(model: nn.Module) -> None:
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    if frozen:
        logging.info(f"Frozen parameters, not trained: {', '.join(frozen)}")


def check_all_trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Make sure that the optimiser holds every trainable parameter of the model once.

    Raises:
        InputError: names the parameters that are in no group or in several.
    """
    held = Counter(id(parameter) for group in optimizer.param_groups for parameter in group["params"])
    names = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and held[id(parameter)] != 1
    ]
    if names:
        raise InputError(
            f"not in exactly one optimiser group: {', '.join(names)}; put each trainable parameter into one "
            "group, or freeze it with requires_grad_(False)"
        )


def build_optimizer(model: nn.Module, plan: OptimPlan, sharded: bool = False) -> torch.optim.Optimizer:
    """Make the optimiser over :func:`parameter_groups`; ``sharded`` over the ranks of the process group."""
    return optimizer_over(parameter_groups(model, plan.weight_decay), plan, sharded)


def optimizer_over(
    groups: Iterable[dict[str, Any]], plan: OptimPlan, sharded: bool = False
) -> torch.optim.Optimizer:
    """Make the optimiser that ``plan.optimizer`` names over the given parameter groups.

    If it is ``sharded`` each rank keeps the state of a part of the parameters only, updates that part and
    sends it to the others (ZeRO, stage 1).

    Raises:
        InputError: the optimiser is unknown, or its package is not installed.
    """
    if plan.optimizer == "schedulefree":
        return _schedule_free(groups, plan)
    classes = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if plan.optimizer not in classes:
        raise InputError(f"unknown optimizer '{plan.optimizer}'; choose adam, adamw or schedulefree")
    options = {"lr": plan.lr, "betas": (plan.beta, 0.999), "amsgrad": plan.amsgrad}
    if sharded:
        return sharded_optimizer(classes[plan.optimizer], list(groups), **options)
    return classes[plan.optimizer](list(groups), **options)


def _schedule_free(groups: Iterable[dict[str, Any]], plan: OptimPlan) -> torch.optim.Optimizer:
    try:
        from schedulefree import AdamWScheduleFree
    except ImportError as error:
        raise InputError(
            "--optimizer schedulefree needs the package schedulefree: pip install 'cp-mace[schedulefree]'"
        ) from error
    betas = (plan.beta1_schedulefree, plan.beta2_schedulefree)
    return AdamWScheduleFree(list(groups), lr=plan.lr, betas=betas)


class ScheduleSettings(Protocol):
    """What a learning-rate schedule has to know; a plan and upstream's arguments both do."""

    optimizer: str
    scheduler: str
    lr_factor: float
    scheduler_patience: int
    lr_scheduler_gamma: float


class LRScheduler:
    """The learning-rate schedule of stage one.

    Every attribute it lacks itself is that of the torch scheduler inside. With a schedule-free optimiser
    :meth:`step` does nothing.

    Args:
        optimizer: whose learning rates it changes.
        args: settings; ``scheduler`` is "ReduceLROnPlateau" or "ExponentialLR".

    Raises:
        InputError: the schedule is unknown.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, args: ScheduleSettings) -> None:
        self._idle = args.optimizer == "schedulefree"
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]  # as most of torch's schedules do; a restart compares it
        if args.scheduler == "ReduceLROnPlateau":
            self.lr_scheduler: Any = ReduceLROnPlateau(
                optimizer, factor=args.lr_factor, patience=args.scheduler_patience
            )
        elif args.scheduler == "ExponentialLR":
            self.lr_scheduler = ExponentialLR(optimizer, gamma=args.lr_scheduler_gamma)
        else:
            raise InputError(
                f"unknown scheduler '{args.scheduler}'; choose ReduceLROnPlateau or ExponentialLR"
            )

    @property
    def needs_metrics(self) -> bool:
        """Whether a step looks at the validation loss, so that there is none without an evaluation."""
        return isinstance(self.lr_scheduler, ReduceLROnPlateau)

    def step(self, metrics: float | None = None, epoch: int | None = None) -> None:
        """Advance the schedule; ``metrics`` is the last validation loss. ``epoch`` is not used."""
        if self._idle:
            return
        if self.needs_metrics:
            self.lr_scheduler.step(metrics)
        else:
            self.lr_scheduler.step()

    def __getattr__(self, name: str) -> Any:
        if name == "lr_scheduler":  # not made yet: while being copied, for example
            raise AttributeError(name)
        return getattr(self.lr_scheduler, name)


def build_ema(model: nn.Module, plan: OptimPlan) -> ExponentialMovingAverage | None:
    """Exponential moving average over all parameters of the model, or None if it is not asked for."""
    if not plan.ema:
        return None
    return ExponentialMovingAverage(model.parameters(), decay=plan.ema_decay)


@dataclass
class SWAContainer:
    """Stage two: from epoch ``start`` on (counted from 0) ``loss_fn`` and ``scheduler`` replace those before.

    ``model`` is upstream's averaged copy; nothing reads it, and it may be None.
    """

    model: nn.Module | None
    scheduler: SWALR
    start: int
    loss_fn: nn.Module


def build_stage_two(
    optimizer: torch.optim.Optimizer, loss_fn: nn.Module, plan: StagePlan | None
) -> SWAContainer | None:
    """Stage two: another loss and, from its first epoch on, another constant learning rate."""
    if plan is None:
        return None
    scheduler = SWALR(optimizer, swa_lr=plan.lr, anneal_epochs=1, anneal_strategy="linear")
    return SWAContainer(model=None, scheduler=scheduler, start=plan.start, loss_fn=loss_fn)
