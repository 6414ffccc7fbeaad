"""One step and one epoch of training."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch_ema import ExponentialMovingAverage
from tqdm import tqdm

from mace.exceptions import InputError
from mace.tools.distributed import Ranks
from mace.tools.evaluation import forward_keywords
from mace.tools.logging_tools import RecordLogger


def take_step(
    model: nn.Module,
    loss_fn: nn.Module,
    batch: Any,
    optimizer: torch.optim.Optimizer,
    ema: ExponentialMovingAverage | None,
    output_args: Mapping[str, bool],
    max_grad_norm: float | None,
    device: torch.device,
    ranks: Ranks | None = None,
    place: str = "this step",
) -> tuple[torch.Tensor, dict[str, float]]:
    """Train on one batch.

    With several processes all must call this, with the distributed wrapper of the model.

    Args:
        model: what is trained.
        loss_fn: called with ``pred`` and ``ref``; gives the mean loss of a batch.
        batch: this process's part of the step.
        optimizer: holds every trainable parameter.
        ema: average to update afterwards.
        output_args: which outputs the model is asked for.
        max_grad_norm: gradients are scaled down to this norm over all parameters; None leaves them.
        device: where the model is.
        ranks: the processes of the run; None for this process alone.
        place: names the step in errors.

    Returns:
        the loss averaged over the processes, and the record of the step: ``loss`` and ``time`` in seconds.

    Raises:
        InputError: loss or gradient is not finite, on any process; the weights are as before then.
    """
    ranks = Ranks.single(device) if ranks is None else ranks
    started = time.monotonic()
    batch = batch.to(device)
    optimizer.zero_grad(set_to_none=True)
    output = model(batch.to_dict(), training=True, **forward_keywords(model, output_args))
    loss = loss_fn(pred=output, ref=batch)
    loss.backward()
    mean_loss = ranks.sum(loss.detach()) / ranks.world_size
    _require_finite("loss", mean_loss, place)
    if max_grad_norm is not None:
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=max_grad_norm)
        _require_finite("gradient norm", norm, place)
    optimizer.step()
    if ema is not None:
        ema.update()
    return mean_loss, {"loss": mean_loss.item(), "time": time.monotonic() - started}


def _require_finite(what: str, value: torch.Tensor, place: str) -> None:
    """All processes see the same value, so all of them stop or none does."""
    if not math.isfinite(value.item()):
        raise InputError(
            f"the training {what} is {value.item()} in {place}, which changed no weight: look for wrong "
            "labels and atoms on top of each other, lower --lr or --clip_grad, and go on from the last "
            "checkpoint with --restart_latest"
        )


def train_one_epoch(
    model: nn.Module,
    loss_fn: nn.Module,
    data_loader: Iterable[Any],
    optimizer: torch.optim.Optimizer,
    epoch: int,
    output_args: Mapping[str, bool],
    max_grad_norm: float | None,
    ema: ExponentialMovingAverage | None,
    logger: RecordLogger,
    device: torch.device,
    distributed_model: nn.Module | None = None,
    rank: int = 0,
    ranks: Ranks | None = None,
    progress: bool = False,
) -> None:
    """Train on every batch of the loader once, and give ``logger`` a record a step on the first process.

    ``distributed_model`` is the wrapper of ``model`` with several processes; ``rank`` is this process's
    number where ``ranks`` does not say it; ``progress`` shows a bar on stderr. The other arguments are those
    of :func:`take_step`.
    """
    ranks = Ranks.single(device) if ranks is None else ranks
    _switch(optimizer, "train")
    bar = tqdm(data_loader, desc=f"Epoch {epoch}", leave=False, disable=not (progress and ranks.is_main))
    for step, batch in enumerate(bar):
        _, record = take_step(
            model=model if distributed_model is None else distributed_model,
            loss_fn=loss_fn,
            batch=batch,
            optimizer=optimizer,
            ema=ema,
            output_args=output_args,
            max_grad_norm=max_grad_norm,
            device=device,
            ranks=ranks,
            place=f"epoch {epoch}, step {step} (both counted from 0)",
        )
        if ranks.is_main and rank == 0:
            logger.log({**record, "mode": "opt", "epoch": epoch})
    _switch(optimizer, "eval")


def _switch(optimizer: torch.optim.Optimizer, mode: str) -> None:
    """Schedule-free optimisers keep other weights for training than for evaluation; torch's have no mode."""
    switch = getattr(optimizer, mode, None)
    if switch is not None:
        switch()


def parameters_without_gradient(
    model: nn.Module, loss_fn: nn.Module, batch: Any, output_args: Mapping[str, bool], device: torch.device
) -> list[str]:
    """Names of trainable parameters that a loss does not depend on. Gradients are None afterwards.

    Parameters without elements do not count.
    """
    batch = batch.to(device)
    output = model(batch.to_dict(), training=True, **forward_keywords(model, output_args))
    loss_fn(pred=output, ref=batch).backward()
    unused = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.numel() > 0 and parameter.grad is None
    ]
    model.zero_grad(set_to_none=True)
    return unused
