"""Going on from a checkpoint."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mace.exceptions import InputError
from mace.tools.checkpoint import CheckpointHandler, CheckpointIO
from mace.tools.checkpoint_state import STAGE_NAMES, Checkpoint, CheckpointState
from mace.tools.description import require_same_model


@dataclass(frozen=True, kw_only=True)
class Found:
    """A checkpoint to go on from."""

    checkpoint: Checkpoint
    name: str  # of the file
    stage_two: bool


def find_newest(files: CheckpointIO) -> Found | None:
    """The checkpoint to go on from; None, with a line in the log, if there is no file of this name and seed.

    Raises:
        InputError: there are files, and none of them can be read.
    """
    newest = files.newest()
    if newest is not None:
        checkpoint, path = newest
        _forget_lost(checkpoint.get("progress", {}), path, files)
        stage_two = checkpoint.get("progress", {}).get("stage_two", path.stem.endswith("_swa"))
        return Found(checkpoint=checkpoint, name=path.name, stage_two=stage_two)
    where = f"checkpoint with tag '{files.tag}' in '{files.directory}'"
    if files.paths():
        raise InputError(
            f"--restart_latest: no {where} can be read ({', '.join(path.name for path in files.paths())}): "
            "start without --restart_latest to begin anew"
        )
    others = ", ".join(path.name for path in files.of_other_runs())
    if others:
        logging.warning(
            f"--restart_latest: there is no {where}: STARTING ANEW. Checkpoints of other names or seeds are "
            f"there: {others}"
        )
    else:
        logging.info(f"--restart_latest: there is no {where}: starting anew")
    return None


def _forget_lost(progress: dict[str, Any], path: Path, files: CheckpointIO) -> None:
    """A best state that cannot be read any more is none: the next one that is evaluated takes its place."""
    for stage, name in list(progress.get("best", {}).items()):
        if name == path.name or files.can_read(name):
            continue
        logging.warning(f"The best state of stage {stage} was in {name}, which cannot be read: it is lost")
        del progress["best"][stage]
        if stage == STAGE_NAMES[progress["stage_two"]]:
            progress["lowest_loss"] = math.inf


def continue_from(found: Found, state: CheckpointState, handler: CheckpointHandler) -> None:
    """Load a checkpoint, so that training goes on with the epoch after it.

    Args:
        found: the same on every process.
        state: everything the run consists of; changed in place.
        handler: told which files belong to this run.

    Raises:
        InputError: the checkpoint belongs to another model, optimiser, schedule or stage.
    """
    assert state.progress is not None
    if found.stage_two and state.swa_scheduler is None:
        raise InputError(
            f"{found.name} is a checkpoint of stage two: restart with --swa and the former --start_swa"
        )
    require_same_model(found.checkpoint, state.model, state.description)
    handler.builder.load_checkpoint(state, found.checkpoint)
    progress = state.progress
    if "progress" in found.checkpoint:
        handler.run_started = found.checkpoint.get("run_started", handler.run_started)
        best = progress.best.get(STAGE_NAMES[progress.stage_two])
        handler.io.old_path = None if best is None else handler.io.directory / best
        handler.io.spare = handler.io.directory / progress.spare if progress.spare else None
    else:
        progress.next_epoch = found.checkpoint["epoch"] + 1
        progress.stage_two = found.stage_two
        progress.best = {STAGE_NAMES[found.stage_two]: found.name}
    within = f" after {progress.consumed} of its configurations" if progress.consumed else ""
    logging.info(f"Continuing with epoch {progress.next_epoch}{within}")
