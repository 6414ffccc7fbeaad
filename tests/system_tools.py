"""Programs of the system that some tests need, such as mpirun."""

from __future__ import annotations

import os
import shutil

import pytest


def need(*programs: str, root: bool = False) -> None:
    """Leave the test out, with a line in the summary, where a program (or the rights of root) is missing.

    In continuous integration (CP_MACE_CI=1, see .ci/run) that is a failure.
    """
    missing = [program for program in programs if shutil.which(program) is None]
    if root and os.geteuid() != 0:
        missing.append("the rights of root")
    if not missing:
        return
    message = f"needs {', '.join(missing)}"
    if os.environ.get("CP_MACE_CI") == "1":
        pytest.fail(message)
    pytest.skip(message)
