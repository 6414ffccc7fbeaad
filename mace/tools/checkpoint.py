"""Checkpoints: everything a run needs to go on, or to give its best model, as plain tensors and numbers.

Files in the checkpoints folder, ``tag`` being ``<name>_run-<seed>``:

- ``<tag>_epoch-<n>.pt``, ``<tag>_epoch-<n>_swa.pt``: written after epoch n when the validation loss improved,
  in stage one and stage two;
- ``<tag>_latest.pt``: the state after the last epoch, if that was no improvement, or where a run that was
  asked to stop has stopped in the middle of an epoch.

Each is a dictionary with upstream's keys ``model`` (averaged weights if there is an average), ``optimizer``
and ``lr_scheduler``, and with ``format_version``, ``epoch``, ``run_started``, ``ema``, ``raw_parameters``,
``swa_scheduler``, ``scheduler``, ``optimizer_class``, ``description`` (of the model), ``random_state`` and
``progress`` beside them. All can be read with ``torch.load(path, weights_only=True)``.
"""

from __future__ import annotations

import logging
import math
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch

from mace.exceptions import InputError
from mace.tools.checkpoint_state import (
    FORMAT_VERSION,
    Checkpoint,
    CheckpointBuilder,
    CheckpointState,
    Progress,
)
from mace.tools.files import atomic_save
from mace.tools.safe_files import DAMAGE, read_plain_data, require_whole

__all__ = [
    "CheckpointBuilder",
    "CheckpointHandler",
    "CheckpointIO",
    "CheckpointPathInfo",
    "CheckpointState",
    "Progress",
    "tag_of",
    "write_checkpoint",
]

_NAME = re.compile(r"^(?P<tag>.+)_epoch-(?P<epochs>\d+)(?P<swa>_swa)?\.pt$")
_LATEST_NAME = re.compile(r"^(?P<tag>.+)_latest\.pt$")


class UnreadableCheckpoint(Exception):
    """A file that is cut off, empty, or no checkpoint at all; the message says which and why."""


def write_checkpoint(obj: Any, path: str | Path) -> None:
    """Write a checkpoint, whole or not at all; the one place where checkpoints reach the disk."""
    atomic_save(obj, path)


@dataclass(frozen=True)
class CheckpointPathInfo:
    """What the name of a checkpoint file says."""

    path: str
    tag: str
    epochs: int
    swa: bool


class CheckpointIO:
    """The checkpoint files of one run.

    Args:
        directory: where they are; made with the first file.
        tag: ``<name>_run-<seed>``.
        keep: never delete a file.
        swa_start: first epoch of stage two, if there is one.
    """

    def __init__(
        self, directory: str | Path, tag: str, keep: bool = False, swa_start: int | None = None
    ) -> None:
        self.directory = Path(directory)
        self.tag = tag
        self.keep = keep
        self.swa_start = swa_start
        self.old_path: Path | None = None  # the last file of an improvement
        self.spare: Path | None = None  # the one before it, to be deleted

    def path(self, epochs: int) -> Path:
        """The file for an epoch."""
        stage_two = self.swa_start is not None and epochs >= self.swa_start
        return self.directory / f"{self.tag}_epoch-{epochs}{'_swa' if stage_two else ''}.pt"

    @property
    def latest_path(self) -> Path:
        """The file for an epoch that was no improvement."""
        return self.directory / f"{self.tag}_latest.pt"

    def save(self, checkpoint: Checkpoint, epochs: int, keep_last: bool = False) -> Path:
        """Write the file for an epoch; the one written before it becomes the spare one.

        ``keep_last`` keeps that one for good.
        """
        path = self.path(epochs)
        self._write(checkpoint, path)
        self.drop_spare()
        previous, self.old_path = self.old_path, path
        if previous != path and not (self.keep or keep_last):
            self.spare = previous
        return path

    def save_latest(self, checkpoint: Checkpoint) -> None:
        """Replace the file of the last epoch."""
        self._write(checkpoint, self.latest_path)
        self.drop_spare()

    def drop_spare(self) -> None:
        """Delete the spare file: there are two newer ones, or the run has ended.

        So whatever happens to the newest file on the disk, the run can go on from another one.
        """
        if self.spare is not None and self.spare != self.old_path:
            logging.debug(f"Deleting old checkpoint file: {self.spare}")
            try:
                self.spare.unlink(missing_ok=True)
            except OSError as refusal:  # no reason to end a run
                logging.warning(f"An old checkpoint was not deleted: {refusal}")
        self.spare = None

    def _write(self, checkpoint: Checkpoint, path: Path) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        logging.debug(f"Saving checkpoint: {path}")
        write_checkpoint(checkpoint, path)

    def files(self) -> list[CheckpointPathInfo]:
        """The improvements that carry the tag, the newest epoch last."""
        infos = (_parse(path) for path in self._all_files())
        mine = [info for info in infos if info is not None and info.tag == self.tag]
        return sorted(mine, key=lambda info: info.epochs)

    def paths(self) -> list[Path]:
        """Every file that carries the tag."""
        latest = [self.latest_path] if self.latest_path.exists() else []
        return [Path(info.path) for info in self.files()] + latest

    def _all_files(self) -> list[Path]:
        return sorted(self.directory.glob("*.pt"))

    def of_other_runs(self) -> list[Path]:
        """Checkpoints in the folder that carry another tag."""
        return [path for path in self._all_files() if tag_of(path) not in (None, self.tag)]

    def load_latest(
        self, swa: bool = False, device: torch.device | str | None = None
    ) -> tuple[Checkpoint, int] | None:
        """The improvement of the highest epoch, of stage two (``swa``) or one, with its epoch."""
        infos = [info for info in self.files() if info.swa == swa]
        if not infos and swa:
            logging.warning(
                "No SWA checkpoint found, while SWA is enabled. Compare the swa_start parameter and the "
                "latest checkpoint."
            )
        if not infos:
            logging.warning(f"Cannot find checkpoint with tag '{self.tag}' in '{self.directory}'")
            return None
        return self.load(infos[-1].path, device=device)

    def load(self, path: str | Path, device: torch.device | str | None = None) -> tuple[Checkpoint, int]:
        """A checkpoint and its epoch.

        Raises:
            InputError: the file cannot be read, or was written by a newer version.
        """
        logging.info(f"Loading checkpoint: {path}")
        try:
            checkpoint = _read(path, device=device)
        except UnreadableCheckpoint as error:
            raise InputError(str(error)) from error
        return checkpoint, checkpoint["epoch"]

    def can_read(self, name: str) -> bool:
        """Whether a file of the folder is a whole checkpoint; a warning says why not."""
        return _read_or_warn(self.directory / name) is not None

    def newest(self) -> tuple[Checkpoint, Path] | None:
        """The checkpoint to go on from: the latest epoch of the run that was started last.

        Files that cannot be read are skipped with a warning each; a whole one that holds code is an
        InputError.
        """
        # Mapped, not read: only the few numbers beside the tensors are needed to find the newest.
        ages = [(_age(header), path) for path in self.paths() if (header := _read_or_warn(path, mmap=True))]
        for _, path in sorted(ages, reverse=True):
            checkpoint = _read_or_warn(path)
            if checkpoint is not None:
                logging.info(f"Loading checkpoint: {path}")
                return checkpoint, path
        return None


def tag_of(path: Path) -> str | None:
    """The tag of the run, as the name of a checkpoint says it; None for a name of another form."""
    match = _NAME.match(path.name) or _LATEST_NAME.match(path.name)
    return None if match is None else match["tag"]


def _parse(path: Path) -> CheckpointPathInfo | None:
    match = _NAME.match(path.name)
    if match is None:
        return None
    return CheckpointPathInfo(
        path=str(path), tag=match["tag"], epochs=int(match["epochs"]), swa=match["swa"] is not None
    )


def _read(path: str | Path, mmap: bool = False, device: torch.device | str | None = None) -> Checkpoint:
    """The content of a file, with its epoch.

    Raises:
        UnreadableCheckpoint: it is no whole checkpoint.
        InputError: it was written by a newer version of this program, or is whole but holds code.
    """
    try:
        if not mmap:
            require_whole(path)
        checkpoint = read_plain_data(path, map_location=device or "cpu", mmap=mmap and is_zipfile(path))
    except pickle.UnpicklingError as error:
        _require_torn(path, error)
        raise UnreadableCheckpoint(f"the checkpoint {path} cannot be read: {error}") from error
    except PermissionError as error:
        raise InputError(
            f"the checkpoint {path} cannot be read: {error.strerror}; make it readable"
        ) from error
    except DAMAGE as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise UnreadableCheckpoint(f"the checkpoint {path} cannot be read: {reason}") from error
    if not isinstance(checkpoint, dict) or not {"model", "optimizer", "lr_scheduler"} <= set(checkpoint):
        raise UnreadableCheckpoint(f"{path} does not hold model, optimizer and lr_scheduler")
    version = checkpoint.get("format_version", FORMAT_VERSION)
    if version > FORMAT_VERSION:
        raise InputError(
            f"the checkpoint {path} has format {version}, but this program knows formats up to "
            f"{FORMAT_VERSION}: upgrade it"
        )
    if "epoch" in checkpoint:
        return checkpoint
    info = _parse(Path(path))  # upstream says the epoch in the file name only
    if info is None:
        raise UnreadableCheckpoint(f"neither the content nor the name of {path} says the epoch")
    return {**checkpoint, "epoch": info.epochs}


def _require_torn(path: str | Path, refusal: pickle.UnpicklingError) -> None:
    """A torn file may be passed over; a whole one holds what somebody wanted it to hold."""
    try:
        require_whole(path)
    except DAMAGE:
        return
    raise InputError(f"the checkpoint {path} cannot be used: {refusal}; move it away to go on without it")


def _read_or_warn(path: Path, mmap: bool = False) -> Checkpoint | None:
    try:
        return _read(path, mmap)
    except UnreadableCheckpoint as error:
        logging.warning(f"A checkpoint is skipped: {error}")
        return None


def _age(checkpoint: Checkpoint) -> tuple[float, int, bool, int]:
    """When the run of a checkpoint was started, and how far it had come; larger means newer."""
    consumed = checkpoint.get("progress", {}).get("consumed", 0)  # in the middle of the epoch
    return checkpoint.get("run_started", -math.inf), checkpoint["epoch"], consumed == 0, consumed


class CheckpointHandler:
    """Saves and loads the state of a run; the arguments are those of :class:`CheckpointIO`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.io = CheckpointIO(*args, **kwargs)
        self.builder = CheckpointBuilder()
        self.run_started: float | None = (
            None  # seconds since 1970; tells the files of this run from older ones
        )

    def save(self, state: CheckpointState, epochs: int, keep_last: bool = False) -> Path:
        """Write the checkpoint of an improvement; see :meth:`CheckpointIO.save`."""
        return self.io.save(self._checkpoint(state, epochs), epochs, keep_last)

    def save_latest(self, state: CheckpointState, epochs: int) -> None:
        """Write the checkpoint of an epoch that was no improvement, in the place of the one before."""
        self.io.save_latest(self._checkpoint(state, epochs))

    def _checkpoint(self, state: CheckpointState, epochs: int) -> Checkpoint:
        checkpoint = self.builder.create_checkpoint(state)
        checkpoint["epoch"] = epochs
        if self.run_started is not None:
            checkpoint["run_started"] = self.run_started
        return checkpoint

    def load_latest(
        self,
        state: CheckpointState,
        swa: bool = False,
        device: torch.device | str | None = None,
        strict: bool = False,
    ) -> int | None:
        """Load the improvement of the highest epoch and return that epoch, None without a file."""
        found = self.io.load_latest(swa=swa, device=device)
        if found is None:
            return None
        checkpoint, epochs = found
        self.builder.load_checkpoint(state, checkpoint, strict)
        return epochs

    def load(
        self,
        state: CheckpointState,
        path: str | Path,
        strict: bool = False,
        device: torch.device | str | None = None,
    ) -> int:
        """Load a file and return its epoch."""
        checkpoint, epochs = self.io.load(path, device)
        self.builder.load_checkpoint(state, checkpoint, strict)
        return epochs
