"""From graphs to batches: which rank sees which graph, and in which order."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Subset

from mace.arguments.plans import DataPlan, TrainPlan
from mace.data import AtomicData
from mace.exceptions import InputError
from mace.tools.distributed import Ranks
from mace.tools.graphs import GraphSet, RunGraphs, share
from mace.tools.ranks.sampling import EpochSampler
from mace.tools.ranks.stopping import spare_worker
from mace.tools.torch_geometric import DataLoader


@dataclass(frozen=True, kw_only=True)
class Loaders:
    """Every loader of a run, as one rank sees it.

    The evaluation loaders (all but ``train``) hold this rank's share in natural order: together the ranks
    meet every configuration exactly once. A share may be empty.
    """

    train: DataLoader
    train_sampler: EpochSampler  # call set_epoch before every epoch
    train_evaluation: dict[str, DataLoader]  # "train_<head>"
    valid: dict[str, DataLoader]  # "<head>"
    tests: dict[str, DataLoader]  # "<config_type>_<head>"
    batch_size: int  # graphs per training batch on each rank, after a reduction to what there is
    steps_per_epoch: int


def build_loaders(graphs: RunGraphs, plan: TrainPlan, ranks: Ranks) -> Loaders:
    """Make the loaders of a run.

    The training order of an epoch depends on the seed and the epoch alone: step k of W ranks with batch size
    b takes the same configurations as step k of one rank with batch size W b. An incomplete last step is
    left out, and the log says how many configurations that costs. A batch larger than a rank's part of the
    training set is reduced, with a warning.
    """
    settings = _loader_settings(plan.data, ranks)
    training: ConcatDataset[AtomicData] = ConcatDataset(list(graphs.train.values()))
    accumulation = plan.steps.accumulation
    batch_size = _fitting_batch_size(plan.data.batch_size, len(training), ranks.world_size, accumulation)
    per_step = batch_size * accumulation
    sampler = EpochSampler(len(training), ranks.rank, ranks.world_size, per_step, plan.seed)
    train = DataLoader(
        training,
        batch_size=batch_size,
        sampler=sampler,
        persistent_workers=plan.data.num_workers > 0,  # a worker keeps the graphs it has built
        generator=torch.Generator().manual_seed(plan.seed),
        **settings,
    )
    _report_left_out(len(training), per_step * ranks.world_size)
    _warn_of_large_validation_batch(graphs, plan.data.valid_batch_size)

    def evaluation(graph_set: GraphSet) -> DataLoader:
        part = Subset(graph_set, share(len(graph_set), ranks))
        generator = torch.Generator().manual_seed(plan.seed)
        return DataLoader(part, batch_size=plan.data.valid_batch_size, generator=generator, **settings)

    return Loaders(
        train=train,
        train_sampler=sampler,
        train_evaluation={f"train_{head}": evaluation(graph_set) for head, graph_set in graphs.train.items()},
        valid={head: evaluation(graph_set) for head, graph_set in graphs.valid.items()},
        tests={name: evaluation(graph_set) for name, graph_set in graphs.tests.items()},
        batch_size=batch_size,
        steps_per_epoch=len(sampler) // per_step,
    )


def _loader_settings(plan: DataPlan, ranks: Ranks) -> dict[str, Any]:
    """Pinned memory only speeds up copies to a GPU."""
    return {
        "num_workers": plan.num_workers,
        "worker_init_fn": spare_worker,
        "pin_memory": plan.pin_memory and ranks.device.type == "cuda",
    }


def _fitting_batch_size(
    batch_size: int, num_configurations: int, num_processes: int, accumulation: int
) -> int:
    batches = num_processes * accumulation
    fitting = num_configurations // batches
    if batch_size <= fitting:
        return batch_size
    plural = "process" if num_processes == 1 else "processes"
    accumulated = "" if accumulation == 1 else f" and the batches of a step ({accumulation})"
    what = (
        f"Batch size ({batch_size}) is larger than the number of training data ({num_configurations}) "
        f"divided by the number of processes ({num_processes} {plural}){accumulated}"
    )
    if fitting == 0:
        raise InputError(f"{what}: give a smaller --gradient_accumulation_steps")
    logging.warning(f"{what}: using batch size {fitting}")
    return fitting


def _report_left_out(num_configurations: int, global_batch_size: int) -> None:
    steps, left_out = divmod(num_configurations, global_batch_size)
    logging.info(
        f"Training steps per epoch: {steps} of {global_batch_size} configurations; each epoch leaves out "
        f"{left_out} of "
        f"{num_configurations} configurations, other ones every time"
        if left_out
        else f"Training steps per epoch: {steps} of {global_batch_size} configurations; none is left out"
    )


def _warn_of_large_validation_batch(graphs: RunGraphs, batch_size: int) -> None:
    for graph_set in graphs.valid.values():
        if batch_size > len(graph_set):
            logging.warning(
                f"Validation batch size ({batch_size}) is larger than the number of validation data "
                f"({len(graph_set)})"
            )
