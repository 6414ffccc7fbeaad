"""One step and one epoch of training."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import nn
from torch_ema import ExponentialMovingAverage
from tqdm import tqdm

from mace.arguments.plans import StepPlan
from mace.exceptions import InputError
from mace.tools.distributed import PendingSum, Ranks
from mace.tools.evaluation import forward_keywords
from mace.tools.logging_tools import RecordLogger
from mace.tools.metrics import loss_terms, term_counts
from mace.tools.recomputation import recomputed_activations

# A batch a step, everything kept, in the model's own precision.
ONE_BATCH = StepPlan(accumulation=1, recompute=False, shard_optimizer=False, autocast=False)


class StepOutcome(NamedTuple):
    """What a step was, on every rank alike."""

    loss: torch.Tensor  # of all configurations of the step
    time: float  # seconds
    stopping: bool  # somebody has asked a rank to stop

    @property
    def record(self) -> dict[str, float]:
        """The step in the metrics file."""
        return {"loss": self.loss.item(), "time": self.time}


@dataclass(frozen=True, kw_only=True)
class Stepper:
    """Takes training steps; with several processes all must take the same number of them.

    Attributes:
        model: what is trained; with several processes its distributed wrapper.
        loss_fn: called with ``pred`` and ``ref``; gives the mean loss of a batch.
        optimizer: holds every trainable parameter.
        ema: average to update after each step.
        output_args: which outputs the model is asked for.
        max_grad_norm: gradients are scaled down to this norm over all parameters; None leaves them.
        device: where the model is.
        ranks: the processes of the run.
        autocast: dtype of torch.autocast in the forward pass, or None.
    """

    model: nn.Module
    loss_fn: nn.Module
    optimizer: torch.optim.Optimizer
    ema: ExponentialMovingAverage | None
    output_args: Mapping[str, bool]
    max_grad_norm: float | None
    device: torch.device
    ranks: Ranks
    autocast: torch.dtype | None = None

    def step(self, batches: Sequence[Any], place: str) -> StepOutcome:
        """Train on some batches at once, as if all configurations of all processes were in one batch.

        Args:
            batches: this process's part of the step, one of them in memory at a time.
            place: names the step in errors.

        Raises:
            InputError: loss or gradient is not finite, on any process; the weights are as before then.
        """
        started = time.monotonic()
        counts = [term_counts(self.loss_fn, batch) for batch in batches]
        totals = self._announce(counts)
        self.optimizer.zero_grad(set_to_none=True)
        shares = []
        for batch, count in zip(batches, counts, strict=True):
            with self._exchanging(last=batch is batches[-1]):
                loss = self._share_of_loss(batch.to(self.device), count, totals)
                loss.backward()
            shares.append(loss.detach())
        mean_loss = self.ranks.sum(torch.stack(shares).sum()) / self.ranks.world_size
        _require_finite("loss", mean_loss, place)
        largest = math.inf if self.max_grad_norm is None else self.max_grad_norm
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=largest)
        _require_finite("gradient norm", norm, place)
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update()
        return StepOutcome(mean_loss, time.monotonic() - started, totals.stopping)

    @cached_property
    def _keywords(self) -> dict[str, bool]:
        return forward_keywords(self.model, self.output_args)

    def _announce(self, counts: Sequence[Mapping[str, int]]) -> StepTotals:
        """Tell the other ranks what this one has in the step, and whether it is asked to stop.

        The numbers are on their way during the forward pass.
        """
        mine = [*(sum(count[name] for count in counts) for name in counts[0]), bool(self.ranks.stop)]
        return StepTotals(tuple(counts[0]), self.ranks.start_sum(torch.tensor(mine, dtype=torch.float64)))

    def _share_of_loss(self, batch: Any, counts: Mapping[str, int], totals: StepTotals) -> torch.Tensor:
        """What a batch adds to the loss of the step, times the number of ranks.

        The mean over the ranks, which their gradients are given, is then the loss of all in one batch.
        """
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            output = self.model(batch.to_dict(), training=True, **self._keywords)
        terms = loss_terms(self.loss_fn, batch, output)
        world_size = self.ranks.world_size
        shares = [value * (counts[name] * world_size / totals[name]) for name, value in terms.items()]
        return torch.stack(shares).sum()

    def _exchanging(self, last: bool) -> AbstractContextManager[None]:
        """Gradients are exchanged between the ranks once a step, with its last batch."""
        if last or not isinstance(self.model, nn.parallel.DistributedDataParallel):
            return nullcontext()
        return self.model.no_sync()


class StepTotals:
    """What all ranks together have in a step; known when it is first asked for."""

    def __init__(self, names: tuple[str, ...], pending: PendingSum) -> None:
        self._names = names
        self._pending = pending

    def __getitem__(self, name: str) -> float:
        """The number of elements that a term of the loss is the mean of; 1 if there is none."""
        return max(1.0, self._numbers[self._names.index(name)])

    @property
    def stopping(self) -> bool:
        """Whether somebody has asked a rank to stop."""
        return self._numbers[-1] > 0

    @cached_property
    def _numbers(self) -> list[float]:
        return self._pending.wait().tolist()


def take_step(
    model: nn.Module,
    loss_fn: nn.Module,
    batch: Any,
    optimizer: torch.optim.Optimizer,
    ema: ExponentialMovingAverage | None,
    output_args: Mapping[str, bool],
    max_grad_norm: float | None,
    device: torch.device,
) -> tuple[torch.Tensor, dict[str, float]]:
    """Train on one batch in this process; upstream's function. See :class:`Stepper`.

    Returns:
        the loss, and the record of the step: ``loss`` and ``time`` in seconds.
    """
    stepper = Stepper(
        model=model,
        loss_fn=loss_fn,
        optimizer=optimizer,
        ema=ema,
        output_args=output_args,
        max_grad_norm=max_grad_norm,
        device=device,
        ranks=Ranks.single(device),
    )
    outcome = stepper.step([batch], "this step")
    return outcome.loss, outcome.record


def _require_finite(what: str, value: torch.Tensor, place: str) -> None:
    """All processes see the same value, so all of them stop or none does."""
    if not math.isfinite(value.item()):
        raise InputError(
            f"the training {what} is {value.item()} in {place}, which changed no weight: look for wrong "
            "labels and atoms on top of each other, lower --lr or --clip_grad, and go on from the last "
            "checkpoint with --restart_latest"
        )


class EpochOutcome(NamedTuple):
    """How far an epoch got."""

    steps: int
    stopping: bool  # somebody has asked a rank to stop


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
    how: StepPlan = ONE_BATCH,
    first_step: int = 0,
) -> EpochOutcome:
    """Train on every batch of the loader once, and give ``logger`` a record a step on the first process.

    Batches that do not fill a step are left out. The epoch ends early, on all ranks after the same step, if
    somebody has asked one of them to stop; ``first_step`` counts what an earlier call has done of it.
    ``distributed_model`` is the wrapper of ``model`` with several processes; ``rank`` is this process's
    number where ``ranks`` does not say it; ``progress`` shows a bar on stderr; ``how`` is about batches,
    memory and precision. The other arguments are those of :class:`Stepper`.
    """
    ranks = Ranks.single(device) if ranks is None else ranks
    stepper = Stepper(
        model=model if distributed_model is None else distributed_model,
        loss_fn=loss_fn,
        optimizer=optimizer,
        ema=ema,
        output_args=output_args,
        max_grad_norm=max_grad_norm,
        device=device,
        ranks=ranks,
        autocast=torch.bfloat16 if how.autocast else None,
    )
    steps, stopping = 0, False
    groups = tqdm(
        in_groups(data_loader, how.accumulation),
        desc=f"Epoch {epoch}",
        leave=False,
        disable=not (progress and ranks.is_main),
    )
    _switch(optimizer, "train")
    with recomputed_activations(model) if how.recompute else nullcontext():
        for batches in groups:
            place = f"epoch {epoch}, step {first_step + steps} (both counted from 0)"
            outcome = stepper.step(batches, place)
            steps += 1
            if ranks.is_main and rank == 0:
                logger.log({**outcome.record, "mode": "opt", "epoch": epoch})
            if stopping := outcome.stopping:
                break
    _switch(optimizer, "eval")
    return EpochOutcome(steps, stopping)


def in_groups(batches: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """``size`` batches at a time; what does not fill a group is left out."""
    iterator = iter(batches)
    while len(group := list(islice(iterator, size))) == size:
        yield group


def _switch(optimizer: torch.optim.Optimizer, mode: str) -> None:
    """Schedule-free optimisers keep other weights for training than for evaluation; torch's have no mode."""
    switch = getattr(optimizer, mode, None)
    if switch is not None:
        switch()


def parameters_without_gradient(
    model: nn.Module,
    loss_fn: nn.Module,
    batch: Any,
    output_args: Mapping[str, bool],
    device: torch.device,
    recompute: bool = False,
) -> list[str]:
    """Names of trainable parameters that a loss does not depend on. Gradients are None afterwards.

    Parameters without elements do not count. ``recompute`` as in the steps: the batch fits no better here.
    """
    batch = batch.to(device)
    with recomputed_activations(model) if recompute else nullcontext():
        output = model(batch.to_dict(), training=True, **forward_keywords(model, output_args))
        loss_fn(pred=output, ref=batch).backward()
    unused = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.numel() > 0 and parameter.grad is None
    ]
    model.zero_grad(set_to_none=True)
    return unused
