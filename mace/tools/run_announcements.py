"""Log lines that describe a run's optimisation before it starts (texts as upstream's)."""

from __future__ import annotations

import logging

import torch

from mace.tools.loaders import Loaders
from mace.tools.losses import stage_two_text
from mace.tools.plans import TrainPlan
from mace.tools.torch_tools import count_parameters


def announce_optimization(
    model: torch.nn.Module, loss_fn: torch.nn.Module, loaders: Loaders, plan: TrainPlan
) -> None:
    """Parameters, optimiser, batches, averaging, number of updates, learning rate, loss and stage two."""
    optim = plan.optim
    logging.debug(model)
    logging.info("Total number of parameters: %d", count_parameters(model))
    logging.info("")
    logging.info("===========OPTIMIZER INFORMATION===========")
    logging.info("Using %s as parameter optimizer", optim.optimizer.upper())
    logging.info("Batch size: %d", loaders.batch_size)
    if optim.ema:
        logging.info("Using Exponential Moving Average with decay: %s", optim.ema_decay)
    logging.info("Number of gradient updates: %d", plan.training.max_num_epochs * len(loaders.train))
    logging.info("Learning rate: %s, weight decay: %s", optim.lr, optim.weight_decay)
    logging.info(loss_fn)
    if plan.stages is not None:
        logging.info(stage_two_text(plan))
