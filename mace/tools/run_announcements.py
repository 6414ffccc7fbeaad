"""Log lines that describe a run's optimisation before it starts (texts as upstream's)."""

from __future__ import annotations

import logging

from mace.tools.loaders import Loaders
from mace.tools.losses import stage_two_text
from mace.tools.plans import TrainPlan
from mace.tools.torch_tools import count_parameters
from mace.tools.train import Trainer


def announce_optimization(trainer: Trainer, loaders: Loaders, plan: TrainPlan) -> None:
    """Parameters, optimiser, batches, averaging, number of updates, learning rate, loss and stage two.

    What the run has, which after a restart is not always what the plan asked for.
    """
    groups = trainer.optimizer.param_groups
    weight_decay = max(group["weight_decay"] for group in groups)  # some groups have none
    logging.debug(trainer.model)
    logging.info("Total number of parameters: %d", count_parameters(trainer.model))
    logging.info("")
    logging.info("===========OPTIMIZER INFORMATION===========")
    logging.info("Using %s as parameter optimizer", plan.optim.optimizer.upper())
    logging.info("Batch size: %d", loaders.batch_size)
    if plan.steps.accumulation > 1:
        logging.info("Batches in a gradient update: %d", plan.steps.accumulation)
    if trainer.ema is not None:
        logging.info("Using Exponential Moving Average with decay: %s", trainer.ema.decay)
    logging.info("Number of gradient updates: %d", plan.training.max_num_epochs * loaders.steps_per_epoch)
    logging.info("Learning rate: %s, weight decay: %s", groups[0]["lr"], weight_decay)
    logging.info(trainer.current_loss)
    if plan.stages is not None and not trainer.progress.stage_two:
        logging.info(stage_two_text(plan))
