"""Element tables, error measures, the run's logger and its metrics file."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mace.exceptions import InputError, RunError

LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s: %(message)s"
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"


class AtomicNumberTable:
    """The elements of a model, in the order of its one-hot node attributes.

    Args:
        zs: atomic numbers, each once.
    """

    def __init__(self, zs: Sequence[int]) -> None:
        self.zs = [int(z) for z in zs]
        self._indices = {z: index for index, z in enumerate(self.zs)}

    def __len__(self) -> int:
        return len(self.zs)

    def __str__(self) -> str:
        return f"AtomicNumberTable: {tuple(self.zs)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AtomicNumberTable) and self.zs == other.zs

    def __hash__(self) -> int:
        return hash(tuple(self.zs))

    def index_to_z(self, index: int) -> int:
        """The atomic number of element ``index``."""
        return self.zs[index]

    def z_to_index(self, atomic_number: int) -> int:
        """The place of an element; ``InputError`` (a ``ValueError``) if it is not in the table."""
        try:
            return self._indices[int(atomic_number)]
        except KeyError:
            raise InputError(
                f"atomic number {atomic_number} is not among the elements {self.zs} of this model"
            ) from None


def get_atomic_number_table_from_zs(zs: Iterable[int]) -> AtomicNumberTable:
    """The table of the different atomic numbers in ``zs``, sorted."""
    return AtomicNumberTable(sorted({int(z) for z in zs}))


def atomic_numbers_to_indices(
    atomic_numbers: np.ndarray | Sequence[int], z_table: AtomicNumberTable
) -> np.ndarray:
    """The places of ``atomic_numbers`` in ``z_table``: int64, of the same shape.

    Raises:
        InputError: an element is not in the table.
    """
    numbers = np.asarray(atomic_numbers, dtype=np.int64)
    places = np.full(max([numbers.max(initial=0), *z_table.zs]) + 1, -1)
    places[z_table.zs] = np.arange(len(z_table))
    indices = places[numbers]
    for unknown in numbers[indices < 0].flat:
        z_table.z_to_index(unknown)  # raises
    return indices


def compute_mae(delta: np.ndarray) -> float:
    """Mean absolute error; ``delta`` = reference - prediction."""
    return np.mean(np.abs(delta)).item()


def compute_rel_mae(delta: np.ndarray, target_val: np.ndarray) -> float:
    """Mean absolute error in percent of the mean absolute reference."""
    return 100 * compute_mae(delta) / (compute_mae(target_val) + 1e-9)


def compute_rmse(delta: np.ndarray) -> float:
    """Root mean square error."""
    return np.sqrt(np.mean(np.square(delta))).item()


def compute_rel_rmse(delta: np.ndarray, target_val: np.ndarray) -> float:
    """Root mean square error in percent of the reference's root mean square."""
    return 100 * compute_rmse(delta) / (compute_rmse(target_val) + 1e-9)


def compute_q95(delta: np.ndarray) -> float:
    """The 95th percentile of the absolute error."""
    return np.percentile(np.abs(delta), q=95).item()


def compute_c(delta: np.ndarray, eta: float) -> float:
    """The share of errors that are smaller than ``eta``."""
    return np.mean(np.abs(delta) < eta).item()


def get_tag(name: str, seed: int) -> str:
    """The tag that the files of a run carry."""
    return f"{name}_run-{seed}"


class LogFile(logging.FileHandler):
    """A log that says once that it cannot be written; a full disk would fill the console with tracebacks."""

    complained = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Complain about the first record that is lost."""
        if not self.complained:
            self.complained = True
            print(f"the log {self.baseFilename} cannot be written: {sys.exc_info()[1]}", file=sys.stderr)


def setup_logger(
    level: int | str = logging.INFO,
    tag: str | None = None,
    directory: str | Path | None = None,
    rank: int = 0,
    own_file: bool = False,
) -> None:
    """Point the root logger at the console and at the run's log files.

    Rank 0 writes records of ``level`` and above to stdout and to ``<directory>/<tag>.log``, and all records
    to ``<directory>/<tag>_debug.log``; both files are appended to. Other ranks write only errors, to stderr,
    with their number. Calling it again replaces what the last call set up and leaves other
    handlers alone.

    Args:
        level: name or number of the lowest level shown.
        tag: the run's tag; without it, or without ``directory``, there are no files.
        directory: made if it is missing.
        rank: number of this process.
        own_file: every rank also writes all records to ``<directory>/<tag>_rank<rank>.log``.
    """
    logger = logging.getLogger()
    logger.setLevel(logging.DEBUG)
    for handler in [handler for handler in logger.handlers if handler.get_name() == __name__]:
        logger.removeHandler(handler)
        handler.close()
    handlers = _handlers(level, tag, directory, rank)
    if own_file and tag is not None and directory is not None:
        handlers.append((LogFile(_made(directory) / f"{tag}_rank{rank}.log"), logging.DEBUG))
    for handler, lowest in handlers:
        handler.set_name(__name__)
        handler.setLevel(lowest)
        prefix = "" if rank == 0 else f"rank {rank}: "
        handler.setFormatter(logging.Formatter(prefix + LOG_FORMAT, datefmt=DATE_FORMAT))
        logger.addHandler(handler)


def _handlers(
    level: int | str, tag: str | None, directory: str | Path | None, rank: int
) -> list[tuple[logging.Handler, int | str]]:
    """The handlers of one process, each with the lowest level it takes."""
    if rank != 0:
        return [(logging.StreamHandler(sys.stderr), logging.ERROR)]
    handlers: list[tuple[logging.Handler, int | str]] = [(logging.StreamHandler(sys.stdout), level)]
    if tag is not None and directory is not None:
        folder = _made(directory)
        handlers.append((LogFile(folder / f"{tag}.log"), level))
        handlers.append((LogFile(folder / f"{tag}_debug.log"), logging.DEBUG))
    return handlers


def _made(directory: str | Path) -> Path:
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class UniversalEncoder(json.JSONEncoder):
    """A JSON encoder that knows numpy's numbers and arrays and torch's tensors."""

    def default(self, o: Any) -> Any:
        """Numbers, lists or, for what it doesn't know, the base class's ``TypeError``."""
        if isinstance(o, np.generic):
            return o.item()
        if isinstance(o, np.ndarray):
            return o.tolist()
        if isinstance(o, torch.Tensor):
            return o.detach().cpu().tolist()
        return super().default(o)


def _drop_half_a_line(path: Path) -> None:
    """Cut what stands behind the last end of a line, if there is such a file."""
    if path.is_file():
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)


class MetricsLogger:
    """Appends records to ``<directory>/<tag>.txt``, one JSON object a line.

    Only one process of a run may have one.

    Args:
        directory: made with the first record if it is missing.
        tag: stem of the file.
    """

    def __init__(self, directory: str | Path, tag: str) -> None:
        self.directory = Path(directory)
        self.path = self.directory / f"{tag}.txt"
        self._begun = False

    def log(self, d: Mapping[str, Any]) -> None:
        """Append one record.

        Raises:
            RunError: the file cannot be written; a full disk, for example.
        """
        logging.debug("Saving info: %s", self.path)
        line = json.dumps(d, cls=UniversalEncoder) + "\n"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if not self._begun:
                _drop_half_a_line(self.path)  # of a run that died
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(line)
            self._begun = True
        except OSError as error:
            raise RunError(
                f"cannot write {self.path}: {error.strerror}; checkpoints are kept, --restart_latest goes on "
                "from the last of them"
            ) from error
