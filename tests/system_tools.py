"""Programs of the system that some tests need, such as mpirun."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NoReturn

import pytest

# What a right is good for: it is there if this ends well.
_TRIALS = {
    "to make network namespaces": ["unshare", "--net", "--uts", "true"],
    "to mount": ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
}


def need(*programs: str, right: str | None = None) -> None:
    """Leave the test out, with a line in the summary, where a program or the right it needs is missing.

    In continuous integration (CI is set, see .ci/run) that is a failure.

    Args:
        programs: names of commands.
        right: of root, outside most containers: one of the rights above.
    """
    missing = [program for program in programs if shutil.which(program) is None]
    if right is not None and not missing:
        tried = subprocess.run(_TRIALS[right], capture_output=True)
        if tried.returncode != 0 or os.geteuid() != 0:
            missing.append(f"the right {right}")
    if missing:
        leave_out(f"needs {', '.join(missing)}")


def leave_out(reason: str) -> NoReturn:
    """End a test that cannot run here: a failure in continuous integration, elsewhere listed as not run."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
