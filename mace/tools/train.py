"""Training and evaluation under upstream's names; the loop itself is in ``trainer.py``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch_ema import ExponentialMovingAverage

from mace.arguments.plans import LoopPlan
from mace.tools.checkpoint import CheckpointHandler, Progress
from mace.tools.distributed import Ranks
from mace.tools.evaluation import evaluate
from mace.tools.logging_tools import RecordLogger, valid_err_log
from mace.tools.metrics import MetricsAccumulator
from mace.tools.optimization import LRScheduler, SWAContainer
from mace.tools.tracking import log_evaluation
from mace.tools.trainer import Trainer
from mace.tools.training_step import take_step, train_one_epoch

__all__ = [
    "MACELoss",
    "SWAContainer",
    "Trainer",
    "evaluate",
    "take_step",
    "train",
    "train_one_epoch",
    "valid_err_log",
]

MACELoss = MetricsAccumulator


def train(
    model: nn.Module,
    loss_fn: nn.Module,
    train_loader: DataLoader,
    valid_loaders: Mapping[str, Iterable[Any]],
    optimizer: torch.optim.Optimizer,
    lr_scheduler: LRScheduler,
    start_epoch: int,
    max_num_epochs: int,
    patience: int,
    checkpoint_handler: CheckpointHandler,
    logger: RecordLogger,
    eval_interval: int,
    output_args: Mapping[str, bool],
    device: torch.device,
    log_errors: str,
    swa: SWAContainer | None = None,
    ema: ExponentialMovingAverage | None = None,
    max_grad_norm: float | None = 10.0,
    log_wandb: bool = False,
    distributed: bool = False,
    save_all_checkpoints: bool = False,
    distributed_model: nn.Module | None = None,
    train_sampler: Any | None = None,
    rank: int = 0,
) -> None:
    """Train with upstream's function; see :class:`Trainer` and :meth:`Trainer.fit`.

    With ``distributed`` the process group must exist; ``rank`` is then known from it. ``log_wandb`` expects a
    Weights & Biases run to be open.
    """
    plan = LoopPlan(
        max_num_epochs=max_num_epochs,
        patience=patience,
        eval_interval=eval_interval,
        restart_latest=False,
        keep_checkpoints=checkpoint_handler.io.keep,
        save_all_checkpoints=save_all_checkpoints,
        progress=None,
    )
    trainer = Trainer(
        model=model,
        loss_fn=loss_fn,
        optimizer=optimizer,
        lr_scheduler=lr_scheduler,
        ema=ema,
        swa=swa,
        plan=plan,
        max_grad_norm=max_grad_norm,
        output_args=output_args,
        ranks=Ranks.joined(device) if distributed else Ranks.single(device),
        checkpoints=checkpoint_handler,
        metrics_logger=logger,
        log_errors=log_errors,
        on_evaluation=log_evaluation if log_wandb else None,
        progress=Progress(next_epoch=start_epoch),
    )
    trainer.fit(train_loader, valid_loaders, train_sampler, distributed_model)
