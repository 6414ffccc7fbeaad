"""The environment of mace-torch 0.3.16, which scripts/test --full makes and names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.harness import run

TIMEOUT = 900  # seconds; each takes some ten on an idle core


@pytest.fixture(scope="session")
def upstream_python() -> str:
    """The interpreter of that environment."""
    python = os.environ.get("CP_MACE_UPSTREAM_PYTHON")
    assert python, (
        "CP_MACE_UPSTREAM_PYTHON must name the python of an environment with mace-torch 0.3.16; "
        "scripts/test --full makes one, and -m 'not upstream' leaves these tests out"
    )
    return python


@pytest.fixture(scope="session")
def peer(upstream_python: str) -> Callable[[Sequence[str], Path], str]:
    """Runs ``python *command`` of that environment in a folder, without this package; gives its output."""

    def run_there(command: Sequence[str], folder: Path) -> str:
        settings = {"PYTHONPATH": "", "PYTHONWARNINGS": "ignore"}
        done = run(command, folder, tree=folder, python=upstream_python, env=settings, timeout=TIMEOUT)
        return done.succeeded().output

    return run_there
