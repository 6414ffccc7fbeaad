"""``mace_run_train`` with a fault at one moment on one rank.

    FAULT=kind MOMENT=name RANK_AT_FAULT=r python faulty_run.py FLAGS

Started, by torchrun or alone, in place of the command. The fault replaces nothing of the run: at its moment
it does to the process what happens to processes. A file ``fault_<rank>`` in the working folder proves it.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANK = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))  # torchrun's or srun's

# From the name of a moment to the function whose n-th call it is (counted from 1).
MOMENTS: dict[str, tuple[str, str, int]] = {
    "data": ("mace.tools.datasets", "_load_head", 1),
    "graphs": ("mace.tools.graphs", "_build_shares", 1),
    "first evaluation": ("mace.tools.trainer", "evaluate", 1),
    "first step": ("mace.tools.training_step", "loss_terms", 1),
    "middle step": ("mace.tools.training_step", "loss_terms", 5),
    "evaluation": ("mace.tools.trainer", "evaluate", 3),
    "checkpoint": ("mace.tools.checkpoint", "write_checkpoint", 2),
    "last step": ("mace.tools.training_step", "loss_terms", 9),
    "saving": ("mace.cli.run_train", "save_stage", 1),
    "tables": ("mace.tools.tables_utils", "evaluate", 1),
}


class Planted(RuntimeError):
    """The exception of the fault "exception"."""


def happen(fault: str) -> None:
    """What a fault does to this process."""
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "exception":
        raise Planted("planted in this rank")
    elif fault in ("term", "usr1"):  # as a queue does, by way of the launcher
        os.kill(os.getppid(), {"term": signal.SIGTERM, "usr1": signal.SIGUSR1}[fault])
        time.sleep(1.0)  # its way through the launcher, which the run might end before
    elif fault.startswith("self:"):
        os.kill(os.getpid(), signal.Signals[fault.removeprefix("self:")])
    elif fault.startswith("shell:"):
        subprocess.run(fault.removeprefix("shell:"), shell=True, check=True)
    elif fault != "nan":
        raise ValueError(fault)


def install(fault: str, moment: str) -> None:
    """Let ``fault`` happen to this process at ``moment``."""
    module_name, function_name, count = MOMENTS[moment]
    module = importlib.import_module(module_name)
    real: Callable[..., Any] = getattr(module, function_name)
    calls = 0

    def faulty(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != count:
            return real(*args, **kwargs)
        Path(f"fault_{RANK}").write_text(f"{fault} at {moment}")
        happen(fault)
        result = real(*args, **kwargs)
        return {name: value * float("nan") for name, value in result.items()} if fault == "nan" else result

    setattr(module, function_name, faulty)


if __name__ == "__main__":
    # A shell that starts the tests in the background lets all below it ignore the key; a user's does not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("FAULT") and os.environ["RANK_AT_FAULT"] == RANK:
        install(os.environ["FAULT"], os.environ["MOMENT"])
    from mace.cli.launch import run_train

    sys.argv[0] = "mace_run_train"
    run_train()
