"""What a check says, and what the exit status makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """How much a finding matters."""

    ERROR = "error"  # the run would not start, would not end well, or would be wrong
    WARNING = "warning"  # the run may lose time or accuracy
    NOTE = "note"  # good to know, nothing to do now
    OK = "ok"  # looked at, and in order


ADVICE_CURE = "the line says what to do; the run would go on without it"  # for warnings of a run itself
# Beyond 1 and 2, with which every command ends for bad input, and Python for a mistake of ours.
STATUS = {Severity.ERROR: 4, Severity.WARNING: 3, Severity.NOTE: 0, Severity.OK: 0}


@dataclass(frozen=True)
class Finding:
    """One line about what was found, with the value, and one about what to do.

    ``code`` is short and stable: programs may look for it.
    """

    severity: Severity
    code: str
    found: str
    cure: str = ""


def error(code: str, found: str, cure: str) -> Finding:
    """A finding that should keep the run from being started."""
    return Finding(Severity.ERROR, code, found, cure)


def warning(code: str, found: str, cure: str) -> Finding:
    """A finding that costs time or accuracy."""
    return Finding(Severity.WARNING, code, found, cure)


def note(code: str, found: str, cure: str = "") -> Finding:
    """A finding that changes nothing."""
    return Finding(Severity.NOTE, code, found, cure)


def ok(code: str, found: str) -> Finding:
    """Something that was looked at and is in order."""
    return Finding(Severity.OK, code, found)


def exit_status(findings: Iterable[Finding]) -> int:
    """0 if nothing is worse than a note, 3 with warnings, 4 with errors."""
    return max((STATUS[finding.severity] for finding in findings), default=0)


def listed(names: Sequence[object], limit: int = 3) -> str:
    """The first of some names, and how many more there are: "a, b, c and 4 more"."""
    shown = ", ".join(str(name) for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def one_line(problem: BaseException) -> str:
    """The name and the first line of an exception."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return f"{type(problem).__name__}: {lines[0] if lines else 'no reason given'}"
