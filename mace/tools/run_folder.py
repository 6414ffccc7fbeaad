"""The beginning of a run: its folders, its log, its seeds, and the list of what it will write."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile

import torch

import mace
from mace.exceptions import InputError
from mace.tools.distributed import Ranks
from mace.tools.plans import PathPlan, TrainPlan
from mace.tools.torch_tools import set_seeds
from mace.tools.utils import setup_logger


def open_run(plan: TrainPlan, ranks: Ranks) -> None:
    """Make the folders, start the log, seed every generator and say what will be written where.

    Raises ``InputError`` on every rank if a file cannot be written: better now than at the end.
    """
    files = plan.paths.writes(stage_two=plan.stages is not None, indices_names=plan.data.indices_names)
    ranks.from_main(lambda: require_writable_files(plan.paths, [path for _, path in files]))
    setup_logger(
        level=plan.log_level,
        tag=plan.tag,
        directory=plan.paths.log_dir,
        rank=ranks.rank,
        own_file=plan.log_all_ranks,
    )
    set_seeds(plan.seed)
    logging.info("===========VERIFYING SETTINGS===========")
    for text, level in plan.messages:
        logging.log(level, text)
    logging.info("MACE version: %s", mace.__version__)
    logging.debug("Plan: %s", plan)
    logging.info(device_line(ranks.device))
    logging.info(ranks.started)
    logging.info("This run writes:")
    for description, path in files:
        logging.info("  %-26s %s", description, path)


def require_writable_files(paths: PathPlan, files: Iterable[Path]) -> None:
    """Make the folders of the run and prove that ``files`` can be written; ``InputError`` says why not."""
    for folder in paths.folders():
        require_writable(folder)
    for file in paths.appended_files():
        require_appendable(file)
    for file in files:
        if file.is_dir():
            raise InputError(
                f"the run would write the file '{file}', which is a folder: remove or rename it, or choose "
                "another --name"
            )


def require_appendable(file: Path) -> None:
    """Prove that a file, if it is there, can be added to; ``InputError`` says why not."""
    if not os.path.lexists(file):
        return
    try:
        with open(file, "a"):
            pass
    except OSError as error:
        raise InputError(
            f"cannot add to the file '{file}' ({error.strerror}): remove or rename what is there, or choose "
            "another --name"
        ) from error


def require_writable(folder: Path) -> None:
    """Make ``folder`` and prove that a file can be made in it; ``InputError`` says why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"cannot write to the folder '{folder}' ({reason}): choose others with --work_dir, --log_dir, "
            "--model_dir, --checkpoints_dir and --results_dir"
        ) from error


def device_line(device: torch.device) -> str:
    """Upstream's line about the device in use."""
    if device.type == "cuda":
        return f"CUDA version: {torch.version.cuda}, CUDA device: {device.index}"
    return "Using CPU" if device.type == "cpu" else f"Using {device} on {platform.machine()}"
