"""What some tests need of the system: missing in continuous integration is a failure, elsewhere a note."""

from __future__ import annotations

import os
import shutil

import pytest


def need(*commands: str) -> None:
    """End a test that cannot run here: it fails where CI is set, and is listed as not run elsewhere."""
    if missing := [command for command in commands if shutil.which(command) is None]:
        _cannot(f"not installed: {', '.join(missing)}")


def need_root(*commands: str) -> None:
    """The same, for commands that only root may run."""
    need(*commands)
    if os.geteuid() != 0:
        _cannot(f"only root may run {', '.join(commands)}")


def _cannot(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
