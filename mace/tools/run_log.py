"""What the log of a training run, ours or upstream's, says about the model that it trains.

A log is text: its arguments are taken apart by the parser of Python, and nothing in it is run.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mace.exceptions import InputError

_ARGUMENTS = "Configuration: Namespace("
_PLAN = "Plan: TrainPlan("  # only this package writes it, before the arguments
_NEIGHBORS = re.compile(r"Average number of neighbors: (\S+)$")
_HEADS = re.compile(r"Using heads: (\[.*\])$")
_ELEMENTS = re.compile(r"Atomic Numbers used: \[(.*)\]$")
_NUMBER = re.compile(r"\b\d+\b")  # upstream may print [np.int64(1), np.int64(8)]
_NOT_PLAIN = object()


@dataclass
class LoggedRun:
    """One run of a log, which may hold several: each restart adds one.

    Attributes:
        arguments: those of the command line, as far as they are plain values.
        ours: it is a run of this package.
        avg_num_neighbors: as measured or given; None if the log ends before.
        heads: names; None if the log does not say.
        atomic_numbers: of the elements; None if the log does not say.
    """

    arguments: dict[str, Any]
    ours: bool
    avg_num_neighbors: float | None = None
    heads: list[str] | None = None
    atomic_numbers: list[int] | None = None


def read_log(path: Path) -> LoggedRun | None:
    """The newest run in a log that came as far as its model; None if the log holds no arguments.

    Raises:
        InputError: the file cannot be read, or its arguments cannot be taken apart.
    """
    runs: list[LoggedRun] = []
    planned = False
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in map(str.rstrip, lines):
                planned = planned or _PLAN in line
                if _ARGUMENTS in line:
                    text = line[line.index(_ARGUMENTS) + len("Configuration: ") :]
                    runs.append(LoggedRun(_arguments(text, path), planned))
                    planned = False
                elif runs:
                    _add(line, runs[-1])
    except OSError as error:
        raise InputError(f"the log {path} cannot be read ({error.strerror})") from error
    whole = [run for run in runs if run.avg_num_neighbors is not None]
    return next(reversed(whole or runs), None)


def _add(line: str, run: LoggedRun) -> None:
    if found := _NEIGHBORS.search(line):
        number = _plain(_parsed(found[1]))
        if isinstance(number, (int, float)) and math.isfinite(number):
            run.avg_num_neighbors = float(number)
    elif found := _HEADS.search(line):
        names = _plain(_parsed(found[1]))
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            run.heads = names
    elif found := _ELEMENTS.search(line):
        run.atomic_numbers = [int(number) for number in _NUMBER.findall(found[1])]


def _arguments(text: str, path: Path) -> dict[str, Any]:
    """The keywords of a printed namespace whose values are plain; others say nothing about the model."""
    call = _parsed(text)
    if not isinstance(call, ast.Call):
        raise InputError(f"the arguments in the log {path} are cut off or not those of a run: {text[:60]}...")
    named = {keyword.arg: _plain(keyword.value) for keyword in call.keywords if keyword.arg is not None}
    return {name: value for name, value in named.items() if value is not _NOT_PLAIN}


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _plain(node: ast.expr | None) -> Any:
    try:
        return _NOT_PLAIN if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return _NOT_PLAIN
