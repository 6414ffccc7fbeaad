"""Programs of the system that some tests need, such as mpirun."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def need(*programs: str, namespaces: bool = False) -> None:
    """Leave the test out, with a line in the summary, where a program or the right it needs is missing.

    In continuous integration (CP_MACE_CI=1, see .ci/run) that is a failure.

    Args:
        programs: names of commands.
        namespaces: the test makes network namespaces, which takes root outside most containers.
    """
    missing = [program for program in programs if shutil.which(program) is None]
    if namespaces and not missing:
        tried = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True)
        if tried.returncode != 0 or os.geteuid() != 0:
            missing.append("the right to make network namespaces")
    if not missing:
        return
    message = f"needs {', '.join(missing)}"
    if os.environ.get("CP_MACE_CI") == "1":
        pytest.fail(message)
    pytest.skip(message)
