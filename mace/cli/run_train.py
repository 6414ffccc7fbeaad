"""Train a model: the table of contents of a training run.

From the shell this is ``mace_run_train``, ``python -m mace.cli.run_train`` or, on several processes,
``torchrun --no-python mace_run_train``; from Python ``run(build_default_arg_parser().parse_args([...]))``.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from mace.cli.launch import run_train as main
from mace.tools.checkpoint import CheckpointHandler
from mace.tools.datasets import load_heads, record_splits
from mace.tools.description import describe
from mace.tools.distributed import Ranks, open_ranks
from mace.tools.graphs import build_graphs
from mace.tools.kernels import to_cueq, to_e3nn
from mace.tools.loaders import Loaders, build_loaders
from mace.tools.losses import build_loss, requested_outputs
from mace.tools.model_building import build_model, log_model, model_class_and_config
from mace.tools.optimization import LRScheduler, build_ema, build_optimizer, build_stage_two
from mace.tools.plans import TrainPlan
from mace.tools.ranks.debugging import watch_exchanges
from mace.tools.rebuild import disable_e3nn_codegen, rebuild
from mace.tools.run_announcements import announce_optimization
from mace.tools.run_folder import open_run
from mace.tools.saving import save_compiled, save_model, told_to_all
from mace.tools.scripts_utils import print_git_commit
from mace.tools.statistics import measure
from mace.tools.tables_utils import create_error_table
from mace.tools.torch_geometric import DataLoader
from mace.tools.torch_tools import default_dtype
from mace.tools.tracking import open_tracking
from mace.tools.train import Trainer
from mace.tools.utils import MetricsLogger

__all__ = ["main", "run"]


def run(args: Namespace) -> None:
    """One training run, from files to saved models and error tables.

    Args:
        args: what ``mace.tools.build_default_arg_parser().parse_args()`` returns; it is left as it is.

    Raises:
        InputError: what the user gave cannot be used; raised before training starts, on every rank alike.
        SaveError: a model could not be written or is not equal to the trained one; raised on every rank, the
            checkpoints are kept.
    """
    plan = TrainPlan.from_namespace(args)
    if plan.dist_debug:
        watch_exchanges()
    with (
        open_ranks(plan.device, plan.distributed, plan.launcher, plan.dist_timeout) as ranks,
        default_dtype(plan.default_dtype),
    ):
        open_run(plan, ranks)
        logging.debug("Configuration: %s", args)
        heads = load_heads(plan, ranks)
        ranks.heed_stop()
        graphs = build_graphs(heads, plan, ranks)
        ranks.heed_stop()
        statistics = measure(heads, graphs, plan, ranks)
        model_class, config = model_class_and_config(plan.model, statistics)
        output_args = requested_outputs(plan)
        log_model(plan.model)
        model = build_model(model_class, config, plan.default_dtype).to(ranks.device)
        if plan.model.enable_cueq:
            logging.info("Converting model to CUEQ for accelerated training")
            model = to_cueq(model, config)
        loaders = build_loaders(graphs, plan, ranks)
        trainer = build_trainer(model, config, output_args, plan, ranks)
        if plan.training.restart_latest:
            trainer.restart()
        announce_optimization(trainer, loaders, plan)
        record_splits(heads, plan, ranks)
        trainer.fit(loaders.train, loaders.valid, loaders.train_sampler)
        save_stage(model, config, trainer, loaders, plan, ranks)
        logging.info("Done")


def build_trainer(
    model: torch.nn.Module,
    config: dict[str, Any],
    output_args: dict[str, bool],
    plan: TrainPlan,
    ranks: Ranks,
) -> Trainer:
    """Losses, optimiser, schedule, averaging, stage two and checkpoints around the model."""
    sharded = plan.steps.shard_optimizer and ranks.backend is not None
    optimizer = build_optimizer(model, plan.optim, sharded)
    return Trainer(
        model=model,
        loss_fn=build_loss(plan.loss, stage_two=False).to(ranks.device),
        optimizer=optimizer,
        lr_scheduler=LRScheduler(optimizer, plan.optim),
        ema=build_ema(model, plan.optim),
        swa=build_stage_two(optimizer, build_loss(plan.loss, stage_two=True).to(ranks.device), plan.stages),
        plan=plan.training,
        steps=plan.steps,
        max_grad_norm=plan.optim.clip_grad,
        output_args=output_args,
        ranks=ranks,
        checkpoints=CheckpointHandler(
            directory=plan.paths.checkpoints_dir,
            tag=plan.tag,
            keep=plan.training.keep_checkpoints,
            swa_start=plan.stages.start if plan.stages else None,
        ),
        metrics_logger=MetricsLogger(directory=plan.paths.results_dir, tag=f"{plan.tag}_train"),
        log_errors=plan.report.error_table,
        description=describe(model, config),
        on_evaluation=open_tracking(plan.wandb, ranks),
    )


def save_stage(
    model: torch.nn.Module,
    config: dict[str, Any],
    trainer: Trainer,
    loaders: Loaders,
    plan: TrainPlan,
    ranks: Ranks,
) -> None:
    """Write the best model of every stage, then compute the error tables.

    Models come first: nothing that can fail in the tables, or takes an hour there, stands between a finished
    training and its files.
    """
    logging.info("")
    logging.info("===========RESULTS===========")
    stages = [False] if plan.stages is None else [False, True]
    reached = []
    for stage_two in stages:
        if trainer.load_best(stage_two=stage_two) is None:
            continue  # the trainer has said why
        reached.append(stage_two)
        told_to_all(ranks, partial(write_models, model, config, loaders, plan, stage_two))
    for stage_two in reached:
        epoch = trainer.load_best(stage_two=stage_two)
        logging.info("Computing metrics for training, validation, and test sets")
        stage = "two" if stage_two else "one"
        logging.info("Loaded Stage %s model from epoch %s for evaluation", stage, epoch)
        for title, sets in evaluated_sets(loaders, plan.report.skip_evaluate_heads):
            if sets:
                table = create_error_table(
                    table_type=plan.report.error_table,
                    all_data_loaders=sets,
                    model=model,
                    loss_fn=trainer.loss_fn,
                    output_args=trainer.output_args,
                    log_wandb=plan.wandb is not None,
                    device=ranks.device,
                    ranks=ranks,
                )
                logging.info("Error-table on %s:\n%s", title, table)


def evaluated_sets(loaders: Loaders, left_out: Sequence[str]) -> list[tuple[str, dict[str, DataLoader]]]:
    """Title and data sets of each error table; the heads ``left_out`` are in none."""

    def kept(sets: dict[str, DataLoader]) -> dict[str, DataLoader]:
        return {name: loader for name, loader in sets.items() if head_of(name) not in left_out}

    def head_of(name: str) -> str:
        # Names end with their head; of the heads "a" and "x_a", "train_x_a" belongs to the longer one.
        return max((head for head in loaders.valid if name.endswith(f"_{head}")), key=len)

    valid = {f"valid_{head}": loader for head, loader in loaders.valid.items()}
    return [("TRAIN and VALID", kept(loaders.train_evaluation | valid)), ("TEST", kept(loaders.tests))]


def write_models(
    model: torch.nn.Module, config: dict[str, Any], loaders: Loaders, plan: TrainPlan, stage_two: bool
) -> None:
    """Write the files of one stage: the model under tag and name of the run, and its TorchScript archive.

    What is saved must give the live model's energies, forces and Fermi levels for the first validation batch.
    """
    probe = next(iter(loaders.valid[plan.data.head_names[0]])).to_dict()
    model_to_save = rebuild(model)
    if plan.model.enable_cueq:
        logging.info("Converting CUEQ model back to E3NN")
        with disable_e3nn_codegen():
            model_to_save = to_e3nn(model_to_save, config)
    paths = plan.paths
    for path in (paths.tagged_model_file(stage_two=stage_two), paths.model_file(stage_two=stage_two)):
        logging.info("Saving model to %s", path)
        save_model(model_to_save, path, live=model, probe=probe)
    compiled = paths.compiled_file(stage_two=stage_two)
    to = "" if stage_two else "to "  # upstream's text, which programs look for
    logging.info("Compiling model, saving metadata %s%s", to, compiled)
    extra_files = {"commit.txt": print_git_commit()}
    save_compiled(model_to_save, compiled, live=model, probe=probe, extra_files=extra_files)


if __name__ == "__main__":
    main()
