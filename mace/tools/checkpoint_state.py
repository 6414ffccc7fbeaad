"""What a checkpoint holds: from the objects of a run to plain tensors and numbers, and back."""

from __future__ import annotations

import logging
import math
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn
from torch_ema import ExponentialMovingAverage

from mace.exceptions import InputError
from mace.tools.description import Description, other_model
from mace.tools.random_state import random_state, restore_random_state
from mace.tools.ranks.sharding import numbered_groups, optimizer_class

FORMAT_VERSION = 2  # 2: with a position within the epoch
Checkpoint = dict[str, Any]
STAGE_NAMES = {False: "one", True: "two"}  # by whether it is stage two

# Settings that a restart takes from the checkpoint: names in torch's dictionaries, and for the log.
_KEPT_SETTINGS = {
    "initial_lr": "lr",
    "weight_decay": "weight_decay",
    "betas": "betas",
    "amsgrad": "amsgrad",
    "factor": "lr_factor",
    "patience": "scheduler_patience",
    "gamma": "lr_scheduler_gamma",
    "decay": "ema_decay",
}
# Values of --optimizer by the class they stand for.
_OPTIMIZERS = {"Adam": "adam", "AdamW": "adamw", "AdamWScheduleFree": "schedulefree"}


@dataclass
class Progress:
    """Where a run stands: between two epochs, or in the middle of one."""

    next_epoch: int = 0  # not finished yet
    consumed: int = 0  # configurations of that epoch that all processes have trained on
    stage_two: bool = False
    lowest_loss: float = math.inf  # validation loss, within the stage
    num_unimproved: int = 0  # evaluations in a row
    last_loss: float = math.nan  # of the last evaluation
    schedule_is_due: bool = False  # the learning-rate schedule has not yet seen the last epoch
    # File name of the best checkpoint of each stage.
    best: dict[str, str] = field(default_factory=dict)
    spare: str = ""  # file name of the best before it: kept until two newer ones are whole


@dataclass
class CheckpointState:
    """The objects a checkpoint is made of, and into which it is loaded.

    ``ema``, ``swa_scheduler`` (learning rates of stage two) and ``progress`` may be None: then they are
    neither saved nor loaded. ``description`` (what the model was built from) is saved, and compared before a
    restart; it may be None.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    lr_scheduler: Any
    ema: ExponentialMovingAverage | None = None
    swa_scheduler: Any | None = None
    progress: Progress | None = None
    description: Description | None = None


class CheckpointBuilder:
    """From objects to a dictionary and back."""

    @staticmethod
    def create_checkpoint(state: CheckpointState) -> Checkpoint:
        """The dictionary of a state. Its tensors are those of the state, but for averaged weights: copies."""
        checkpoint: Checkpoint = {}
        if state.ema is not None:
            average = state.ema.state_dict()
            checkpoint["ema"] = {key: average[key] for key in ("decay", "num_updates", "shadow_params")}
            checkpoint["raw_parameters"] = {
                name: parameter.detach().clone() for name, parameter in state.model.named_parameters()
            }
        with state.ema.average_parameters() if state.ema is not None else nullcontext():
            tensors = state.model.state_dict()
            # Outside the context the average is gone from the parameters.
            checkpoint["model"] = (
                {k: v.clone() for k, v in tensors.items()} if state.ema is not None else tensors
            )
        if state.description is not None:
            checkpoint["description"] = state.description
        checkpoint["optimizer"] = state.optimizer.state_dict()
        checkpoint["optimizer_class"] = optimizer_class(state.optimizer).__name__
        checkpoint["lr_scheduler"] = state.lr_scheduler.state_dict()
        if state.swa_scheduler is not None:
            # Some versions of torch put a function among the numbers.
            numbers = state.swa_scheduler.state_dict().items()
            checkpoint["swa_scheduler"] = {key: value for key, value in numbers if not callable(value)}
        checkpoint["scheduler"] = _schedule_name(state.lr_scheduler)
        checkpoint["random_state"] = random_state()
        checkpoint["format_version"] = FORMAT_VERSION
        if state.progress is not None:
            checkpoint["progress"] = asdict(state.progress)
        return checkpoint

    @staticmethod
    def load_checkpoint(state: CheckpointState, checkpoint: Checkpoint, strict: bool = True) -> None:
        """Load a dictionary into a state: what training goes on from.

        Args:
            state: changed in place.
            checkpoint: ours, or upstream's with three keys; the log then says what it lacks.
            strict: keys that only one side has are an error.

        Raises:
            InputError: the checkpoint belongs to another architecture, optimiser or schedule.
        """
        _refuse_other_classes(state, checkpoint)
        load_model_state(state.model, checkpoint["model"], strict)
        _warn_of_other_settings(state, checkpoint)
        _load_optimizer(state.optimizer, checkpoint["optimizer"])
        state.lr_scheduler.load_state_dict(checkpoint["lr_scheduler"])
        if state.swa_scheduler is not None and "swa_scheduler" in checkpoint:
            state.swa_scheduler.load_state_dict(checkpoint["swa_scheduler"])
        _load_average(state, checkpoint)
        if "random_state" in checkpoint:
            restore_random_state(checkpoint["random_state"])
        if state.progress is not None:
            if "progress" in checkpoint:
                vars(state.progress).update(checkpoint["progress"])
            else:
                logging.warning(
                    "The checkpoint was not written by this program: it has no average of the weights, no "
                    "lowest loss and no count of evaluations without improvement; they start anew"
                )


def load_model_state(model: nn.Module, saved: dict[str, torch.Tensor], strict: bool = True) -> None:
    """Load weights and buffers into a model.

    Raises:
        InputError: the model has another architecture; the message lists what differs.
    """
    try:
        model.load_state_dict(saved, strict=strict)
    except RuntimeError as error:
        raise other_model(_difference(model, saved) or str(error)) from error


def _difference(model: nn.Module, saved: dict[str, torch.Tensor]) -> str:
    """What the state of a model and a saved one do not have in common, in one line."""
    present = model.state_dict()
    groups = {
        "only in the checkpoint": sorted(set(saved) - set(present)),
        "only in the model": sorted(set(present) - set(saved)),
        "different shapes": [
            f"{name} {tuple(saved[name].shape)} in the checkpoint, {tuple(present[name].shape)} in the model"
            for name in sorted(set(saved) & set(present))
            if saved[name].shape != present[name].shape
        ],
    }
    return "; ".join(f"{title}: {_shortened(names)}" for title, names in groups.items() if names)


def _shortened(names: list[str], shown: int = 4) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _schedule_name(lr_scheduler: Any) -> str:
    return type(getattr(lr_scheduler, "lr_scheduler", lr_scheduler)).__name__


def _refuse_other_classes(state: CheckpointState, checkpoint: Checkpoint) -> None:
    """Refuse an optimiser or a schedule that is not the checkpoint's; upstream does not say which it had."""
    schedule, optimizer = _schedule_name(state.lr_scheduler), optimizer_class(state.optimizer).__name__
    for what, flag, saved, present in (
        ("learning-rate schedule", "scheduler", checkpoint.get("scheduler", schedule), schedule),
        ("optimiser", "optimizer", checkpoint.get("optimizer_class", optimizer), optimizer),
    ):
        if saved != present:
            raise InputError(
                f"the checkpoint was written with the {what} {saved}, this run has {present}: restart with "
                f"--{flag}={_OPTIMIZERS.get(saved, saved)}, or use another --name"
            )


def _load_optimizer(optimizer: torch.optim.Optimizer, saved: Checkpoint) -> None:
    """Load the state of an optimiser, group by group under their names.

    Groups that the checkpoint lacks (upstream trains no Fermi-level readout, for example) start anew. What a
    saved group does not say, and the learning rate of stage two, stay as this run has them.
    """
    present = _groups_by_name(numbered_groups(optimizer))
    saved_groups = _groups_by_name(saved["param_groups"])
    lost = sorted(name for name, group in saved_groups.items() if group["params"] and name not in present)
    state, groups = {}, []
    for name, group in present.items():
        known = saved_groups.get(name)
        if known is None:
            logging.warning(f"The checkpoint has no optimiser state for the group '{name}'; it starts anew")
            groups.append(group)
            continue
        if len(known["params"]) != len(group["params"]):
            lost.append(name)
            continue
        for mine, theirs in zip(group["params"], known["params"], strict=True):
            if theirs in saved["state"]:
                state[mine] = saved["state"][theirs]
        kept = {"params": group["params"]} | {k: group[k] for k in ("swa_lr",) if k in group}
        groups.append({**group, **known, **kept})
    if lost:
        raise InputError(
            f"the optimiser groups {', '.join(lost)} of the checkpoint do not fit this model: restart with "
            "the model and optimizer settings it was written with"
        )
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _warn_of_other_settings(state: CheckpointState, checkpoint: Checkpoint) -> None:
    """Say which settings of this run a restart does not use: those of the checkpoint go on."""
    saved_groups = _groups_by_name(checkpoint["optimizer"]["param_groups"])
    groups = _groups_by_name(numbered_groups(state.optimizer))
    pairs = [(group, saved_groups.get(name, {})) for name, group in groups.items()]
    pairs.append((state.lr_scheduler.state_dict(), checkpoint["lr_scheduler"]))
    if state.ema is not None:
        pairs.append((state.ema.state_dict(), checkpoint.get("ema", {})))
    other = [
        f"{name} {saved[key]} (not {asked[key]})"
        for asked, saved in pairs
        for key, name in _KEPT_SETTINGS.items()
        if key in asked and key in saved and saved[key] != asked[key]
    ]
    if other:
        settings = ", ".join(dict.fromkeys(other))  # groups have most of them in common
        logging.warning(f"The restart goes on with the settings of the checkpoint: {settings}")


def _groups_by_name(groups: list[Checkpoint]) -> dict[str, Checkpoint]:
    return {group.get("name", str(i)): group for i, group in enumerate(groups)}


def _load_average(state: CheckpointState, checkpoint: Checkpoint) -> None:
    """Take up the moving average, and put the raw weights back into the model."""
    with torch.no_grad():
        for name, parameter in state.model.named_parameters():
            if name in checkpoint.get("raw_parameters", {}):
                parameter.copy_(checkpoint["raw_parameters"][name])
    if state.ema is None:
        return
    average = checkpoint.get("ema")
    if average is None:
        logging.warning("The checkpoint has no average of the weights; averaging starts at its weights")
        raw = [parameter.detach() for parameter in state.model.parameters()]
        average = {"decay": state.ema.decay, "num_updates": 0, "shadow_params": raw}
    state.ema.load_state_dict({**average, "collected_params": None})
