"""The training loop: epochs, evaluations, stage two, patience and checkpoints."""

from __future__ import annotations

import logging
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch_ema import ExponentialMovingAverage

from mace.arguments.plans import LoopPlan, StepPlan
from mace.exceptions import InputError, StopRequested
from mace.tools.checkpoint import CheckpointHandler, CheckpointState, Progress
from mace.tools.checkpoint_state import STAGE_NAMES, Checkpoint, load_model_state
from mace.tools.description import Description
from mace.tools.distributed import Ranks
from mace.tools.evaluation import evaluate
from mace.tools.logging_tools import PatientLogger, RecordLogger, valid_err_log
from mace.tools.metrics import Metrics
from mace.tools.optimization import LRScheduler, SWAContainer, check_all_trained
from mace.tools.ranks.sampling import EpochSampler
from mace.tools.ranks.sharding import collect_state
from mace.tools.restart import continue_from, find_newest
from mace.tools.saving import told_to_all
from mace.tools.training_step import ONE_BATCH, parameters_without_gradient, train_one_epoch


@dataclass(kw_only=True)
class Trainer:
    """Trains a model and remembers which checkpoint is the best.

    Every method that trains, evaluates, saves or loads must be called by all processes of the run. Decisions
    are made from numbers that are the same on all of them.

    Attributes:
        model: the model, without distributed wrapper, on the device of ``ranks``.
        loss_fn: loss of stage one, called with ``pred`` and ``ref``.
        optimizer: holds every trainable parameter once.
        lr_scheduler: learning rates of stage one.
        ema: average of the weights that evaluations and final models use, or None.
        swa: stage two, or None.
        plan: length of the run, patience, what is kept.
        steps: batches of a step, memory and precision.
        max_grad_norm: gradients are scaled down to this norm; None leaves them.
        output_args: which of energy, forces, potential, virials, stress, dipoles the model is asked for.
        ranks: the processes of the run.
        checkpoints: the files of this run.
        metrics_logger: takes the records of steps and evaluations, on the main process.
        log_errors: which errors the log shows: the name of an error table.
        description: what the model was built from: checkpoints carry it, a restart compares it.
        on_evaluation: called on the main process with the metrics of every head after each evaluation.
        progress: where the run stands.
    """

    model: nn.Module
    loss_fn: nn.Module
    optimizer: torch.optim.Optimizer
    lr_scheduler: LRScheduler
    ema: ExponentialMovingAverage | None
    swa: SWAContainer | None
    plan: LoopPlan
    steps: StepPlan = ONE_BATCH
    max_grad_norm: float | None
    output_args: Mapping[str, bool]
    ranks: Ranks
    checkpoints: CheckpointHandler
    metrics_logger: RecordLogger
    log_errors: str
    description: Description | None = None
    on_evaluation: Callable[[Mapping[str, Metrics]], None] | None = None
    progress: Progress = field(default_factory=Progress)
    _records: PatientLogger = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_all_trained(self.model, self.optimizer)
        self.checkpoints.run_started = time.time()

    @property
    def state(self) -> CheckpointState:
        """What a checkpoint of this run holds."""
        return CheckpointState(
            model=self.model,
            optimizer=self.optimizer,
            lr_scheduler=self.lr_scheduler,
            ema=self.ema,
            swa_scheduler=None if self.swa is None else self.swa.scheduler,
            progress=self.progress,
            description=self.description,
        )

    def fit(
        self,
        train_loader: DataLoader,
        valid_loaders: Mapping[str, Iterable[Any]],
        train_sampler: Any | None = None,
        distributed_model: nn.Module | None = None,
    ) -> None:
        """Train until the last epoch or until patience runs out.

        Args:
            train_loader: batches of this process's part of the training set.
            valid_loaders: by head, batches of this process's share of the validation set. The loss of the
                last head decides which checkpoint is the best.
            train_sampler: told the epoch before each of them.
            distributed_model: the distributed wrapper of the model; made here if it is not given.

        Raises:
            InputError: nothing to train on, parameters that the loss does not depend on, or a loss that is
                not finite.
            RunError: a file cannot be written; raised on every process, at the end of the epoch.
            StopRequested: somebody has asked the run to stop; raised on every process, when a checkpoint
                that can be continued is written.
        """
        self._records = PatientLogger(self.metrics_logger)
        self._check_start(train_loader)
        if distributed_model is None:
            distributed_model = self.ranks.wrap(self.model)
        self._announce()
        self._evaluate(valid_loaders, epoch=None)
        self._write(self._records.raise_failure)
        going_on = not self._has_run_out_of_patience
        while going_on and self.progress.next_epoch < self.plan.max_num_epochs:
            epoch = self.progress.next_epoch
            self._train(epoch, train_loader, train_sampler, distributed_model)
            going_on = self._end_epoch(epoch, valid_loaders)
            self._write(self._records.raise_failure)
        if self.ranks.is_main:
            self.checkpoints.io.drop_spare()
        logging.info("Training complete")

    # Before the first epoch

    def _check_start(self, train_loader: DataLoader) -> None:
        """Refuse a training set without a batch, and parameters that would never move."""
        if len(train_loader) == 0:
            raise InputError(
                f"no training batch: {len(train_loader.dataset)} configurations do not fill one batch of "
                f"{train_loader.batch_size}; choose a smaller --batch_size"
            )
        size = min(train_loader.batch_size, len(train_loader.dataset))
        losses = [self.loss_fn] + ([] if self.swa is None else [self.swa.loss_fn])
        unused: set[str] = set()
        for loss_fn in losses:
            # A batch of its own: the model marks positions as differentiable.
            batch = train_loader.collate_fn([train_loader.dataset[i] for i in range(size)])
            unused.update(
                parameters_without_gradient(
                    self.model, loss_fn, batch, self.output_args, self.ranks.device, self.steps.recompute
                )
            )
        unused.update(*self.ranks.gather(sorted(unused)))
        if unused:
            raise InputError(
                f"the loss does not depend on {', '.join(sorted(unused))}: choose a --loss that uses this "
                "output, or a --model without it"
            )

    def _announce(self) -> None:
        if self.max_grad_norm is not None:
            logging.info(f"Using gradient clipping with tolerance={self.max_grad_norm:.3f}")
        logging.info("")
        logging.info("===========TRAINING===========")
        logging.info("Started training, reporting errors on validation set")
        logging.info("Loss metrics on validation set")
        if self.progress.next_epoch == self.progress.consumed == 0:
            self._warn_of_older_files()
        elif self.progress.next_epoch >= self.plan.max_num_epochs:
            logging.info(
                f"Nothing left to train: {self.progress.next_epoch} epochs are done; a larger "
                "--max_num_epochs goes on"
            )

    def _warn_of_older_files(self) -> None:
        """A new run leaves the files of an earlier one with the same tag alone, and never uses them."""
        older = [Path(info.path).name for info in self.checkpoints.io.files()]
        if older:
            logging.warning(
                f"Checkpoints of an earlier run with the same name and seed are in "
                f"'{self.checkpoints.io.directory}' ({', '.join(older)}): this run starts anew and does not "
                "use them; --restart_latest would have gone on from them"
            )

    # One epoch

    @property
    def current_loss(self) -> nn.Module:
        """The loss of the stage that the run is in."""
        return self.swa.loss_fn if self.progress.stage_two and self.swa is not None else self.loss_fn

    def _train(
        self,
        epoch: int,
        train_loader: DataLoader,
        train_sampler: Any | None,
        distributed_model: nn.Module,
    ) -> None:
        """Train for one epoch, or for what a run that was stopped in the middle of it has left.

        Raises:
            StopRequested: on every process; the checkpoint to go on from is written.
        """
        progress = self.progress
        if progress.consumed == 0:
            self._schedule(epoch)
        if isinstance(train_sampler, EpochSampler):
            train_sampler.set_epoch(epoch, progress.consumed)
        elif train_sampler is not None:
            train_sampler.set_epoch(epoch)
        per_step = train_loader.batch_size * self.steps.accumulation * self.ranks.world_size
        outcome = train_one_epoch(
            model=self.model,
            loss_fn=self.current_loss,
            data_loader=train_loader,
            optimizer=self.optimizer,
            epoch=epoch,
            output_args=self.output_args,
            max_grad_norm=self.max_grad_norm,
            ema=self.ema,
            logger=self._records,
            device=self.ranks.device,
            distributed_model=distributed_model,
            ranks=self.ranks,
            progress=sys.stderr.isatty() if self.plan.progress is None else self.plan.progress,
            how=self.steps,
            first_step=progress.consumed // per_step,
        )
        progress.consumed += outcome.steps * per_step
        if outcome.stopping:
            self._stop(epoch)

    def _stop(self, epoch: int) -> NoReturn:
        """Save where the run stands within an epoch, and end it on every process."""
        self._save(lambda: self.checkpoints.save_latest(self.state, epochs=epoch))
        where = f"epoch {epoch}, after {self.progress.consumed} configurations"
        raise StopRequested(
            f"{self.ranks.stop_reason} in {where}: {self.checkpoints.io.latest_path} holds that state, "
            "and --restart_latest goes on from it"
        )

    def _schedule(self, epoch: int) -> None:
        """Set learning rates and loss of an epoch."""
        with warnings.catch_warnings():
            # torch wants a step of the optimiser first; after a restart that was in another process.
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
            if self.swa is not None and epoch >= self.swa.start:
                self._enter_stage_two()
                self.swa.scheduler.step()
            elif self.progress.schedule_is_due:
                self.lr_scheduler.step(metrics=self.progress.last_loss)
        self.progress.schedule_is_due = False

    def _enter_stage_two(self) -> None:
        if self.progress.stage_two:
            return
        logging.info("Changing loss based on Stage Two Weights")
        self.progress.stage_two = True
        self.progress.lowest_loss = math.inf
        self.progress.num_unimproved = 0

    def _end_epoch(self, epoch: int, valid_loaders: Mapping[str, Iterable[Any]]) -> bool:
        """Evaluate if it is time, save, and say whether to go on."""
        last = epoch + 1 == self.plan.max_num_epochs
        evaluated = epoch % self.plan.eval_interval == 0 or last
        loss = self._evaluate_or_stop(valid_loaders, epoch) if evaluated else math.nan
        progress = self.progress
        progress.next_epoch, progress.consumed = epoch + 1, 0
        progress.schedule_is_due = evaluated or not self.lr_scheduler.needs_metrics
        improved, going_on = False, True
        if evaluated:
            progress.last_loss = loss
            improved = loss < progress.lowest_loss  # never true for nan
            going_on = self._count(improved)
        # Decided once: every process follows the first.
        improved, going_on = self.ranks.broadcast((improved, going_on))
        self.progress = self.ranks.broadcast(progress)
        if improved:
            self._save_improvement(epoch)
        elif evaluated and self.plan.save_all_checkpoints:
            self._save(lambda: self.checkpoints.save(self.state, epochs=epoch, keep_last=True))
        else:
            self._save(lambda: self.checkpoints.save_latest(self.state, epochs=epoch))
        return going_on

    def _evaluate_or_stop(self, valid_loaders: Mapping[str, Iterable[Any]], epoch: int) -> float:
        """Evaluate; a run that is asked to stop meanwhile begins with that when it goes on."""
        try:
            return self._evaluate(valid_loaders, epoch)
        except StopRequested:
            self._stop(epoch)

    def _evaluate(self, valid_loaders: Mapping[str, Iterable[Any]], epoch: int | None) -> float:
        """Evaluate every head, under averaged weights except before training; the last head's loss."""
        averaging = self.ema is not None and epoch is not None
        results: dict[str, Metrics] = {}
        loss = math.nan
        with self.ema.average_parameters() if averaging else nullcontext():  # type: ignore[union-attr]
            for head, loader in valid_loaders.items():
                loss, metrics = evaluate(
                    self.model, self.current_loss, loader, self.output_args, self.ranks.device, self.ranks
                )
                results[head] = {**metrics, "epoch": epoch}
                if self.ranks.is_main:
                    valid_err_log(loss, metrics, self._records, self.log_errors, epoch, head)
        if self.on_evaluation is not None and self.ranks.is_main:
            self.on_evaluation(results)
        return loss

    @property
    def _has_run_out_of_patience(self) -> bool:
        """Whether the run that is continued had ended by patience, and has no stage two ahead."""
        return self.progress.num_unimproved >= self.plan.patience and not self._stage_two_ahead

    @property
    def _stage_two_ahead(self) -> bool:
        """Whether stage two has not begun yet, and begins with the next epoch or later."""
        return (
            self.swa is not None
            and not self.progress.stage_two
            and self.progress.next_epoch <= self.swa.start
        )

    def _count(self, improved: bool) -> bool:
        """Keep count of evaluations without improvement, and say whether to go on."""
        progress = self.progress
        if improved:
            progress.lowest_loss = progress.last_loss
            progress.num_unimproved = 0
            return True
        progress.num_unimproved += 1
        if progress.num_unimproved < self.plan.patience:
            return True
        message = f"Stopping optimization after {progress.num_unimproved} epochs without improvement"
        if self.swa is not None and self._stage_two_ahead:
            logging.info(f"{message} and starting Stage Two")
            progress.next_epoch = self.swa.start
            return True
        logging.info(message)
        return False

    # Files

    def _save_improvement(self, epoch: int) -> None:
        """Save the best state so far in place of the one before; the best of stage one survives stage two."""
        stage = STAGE_NAMES[self.progress.stage_two]
        before = self.progress.best.get(stage, "")
        self.progress.best[stage] = self.checkpoints.io.path(epoch).name
        keep_last = self.plan.save_all_checkpoints or not before
        self.progress.spare = "" if keep_last else before
        self._save(lambda: self.checkpoints.save(self.state, epochs=epoch, keep_last=keep_last))

    def _save(self, action: Callable[[], Any]) -> None:
        """Let the main process write a checkpoint, which needs the whole state of the optimiser there."""
        collect_state(self.optimizer)
        self._write(action)

    def _write(self, action: Callable[[], Any]) -> None:
        """Let the main process write; its failure is everybody's."""
        told_to_all(self.ranks, action)

    def restart(self) -> None:
        """Go on from the newest checkpoint of this name and seed; without any, start anew and say so.

        Raises:
            InputError: none can be read, or it belongs to another model, optimiser, schedule or stage.
        """
        found = self.ranks.from_main(lambda: find_newest(self.checkpoints.io))
        if found is not None:
            continue_from(found, self.state, self.checkpoints)
            self._stay_in_stage_two()

    def _stay_in_stage_two(self) -> None:
        """Stage two that has begun goes on, even if it would begin later now (by default in a longer run)."""
        if self.progress.stage_two and self.swa is not None and self.swa.start > self.progress.next_epoch:
            logging.info(f"Stage Two has begun already, and does not wait for epoch {self.swa.start}")
            self.swa.start = self.checkpoints.io.swa_start = self.progress.next_epoch

    def load_best(self, stage_two: bool = False) -> int | None:
        """Load the weights of the best checkpoint that this run (or the one it continues) has written.

        Returns:
            its epoch; None, with a warning that says why, if the stage has none.

        Raises:
            InputError: the file cannot be read.
        """
        stage = STAGE_NAMES[stage_two]
        name = self.progress.best.get(stage)
        if name is None:
            logging.warning(f"There is no checkpoint of stage {stage}: {self._why_no_checkpoint(stage_two)}")
            return None
        files = self.checkpoints.io
        weights, epoch = self.ranks.from_main(lambda: _weights(*files.load(files.directory / name)))
        load_model_state(self.model, weights)
        return epoch

    def _why_no_checkpoint(self, stage_two: bool) -> str:
        if stage_two and self.swa is None:
            return "this run has no stage two"
        if stage_two and not self.progress.stage_two:
            return (
                f"it was to begin with epoch {self.swa.start}, but training ended after "
                f"{self.progress.next_epoch} epochs"
            )
        if not stage_two and self.swa is not None and self.swa.start == 0:
            return "stage two began with epoch 0"
        return "no evaluation gave a finite validation loss"


def _weights(checkpoint: Checkpoint, epoch: int) -> tuple[dict[str, torch.Tensor], int]:
    return checkpoint["model"], epoch
