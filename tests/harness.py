"""Runs of the commands in processes of their own, as a user starts them, with tiny data and tiny models."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.make_tiny import main as make_tiny

TREE = Path(__file__).resolve().parent.parent  # the tree that is tested unless another one is named
DATA_FOLDER = Path(__file__).resolve().parent / "data"

DATA = ("--train_file=train.xyz", "--valid_file=valid.xyz")
E0S = ("--E0s={1: -1.0, 8: -2.0}",)
BASE = (
    "--r_max=4.0",
    "--hidden_irreps=8x0e + 8x1o",
    "--max_ell=2",
    "--correlation=2",
    "--num_interactions=2",
    "--MLP_irreps=4x0e",
    "--num_radial_basis=4",
    "--batch_size=2",
    "--valid_batch_size=2",
    "--max_num_epochs=3",
    "--lr=0.005",
    "--device=cpu",
    "--default_dtype=float64",
    "--seed=1",
)
CP = ("--model=FermiMACE", "--loss=fermi_weighted", "--error_table=Fermi_PerAtomRMSE")
NO_STATISTICS = ("--scaling=no_scaling", "--compute_avg_num_neighbors=False", "--avg_num_neighbors=6")
TIMEOUT = 300  # seconds; a tiny run takes some ten


class Hung(AssertionError):
    """A command did not end in time."""


@dataclass(frozen=True)
class Finished:
    """What a command left: exit status, output (stdout and stderr as they came) and the folder it ran in."""

    status: int
    output: str
    folder: Path

    @property
    def told(self) -> str:
        """What our processes printed, without torchrun's report, which repeats the cause."""
        return re.split(r"^=+\n.* FAILED\n", self.output, flags=re.MULTILINE)[0]

    def succeeded(self) -> Finished:
        """This, after an assertion that the exit status was 0."""
        assert self.status == 0, f"status {self.status}:\n{self.output[-6000:]}"
        return self

    def failed(self) -> Finished:
        """This, after an assertion that the exit status was not 0."""
        assert self.status != 0, f"status 0:\n{self.output[-6000:]}"
        return self


def tiny_data(folder: Path, **options: object) -> Path:
    """Write train.xyz (12 frames) and valid.xyz (6) to ``folder``, with options of make_tiny."""
    make_tiny(folder / "train.xyz", 12, 1, **options)
    make_tiny(folder / "valid.xyz", 6, 2, **options)
    return folder


def one(args: Sequence[str], folder: Path, *, data: Sequence[str] = DATA, **how: Any) -> Finished:
    """``mace_run_train`` in one process with the settings above; ``args`` win; ``how`` of :func:`run`."""
    return run(["-m", "mace.cli.run_train", *data, *E0S, *BASE, *args], folder, **how)


def two(
    args: Sequence[str], folder: Path, *, data: Sequence[str] = DATA, ranks: int = 2, **how: Any
) -> Finished:
    """As :func:`one`, in two gloo processes under torchrun."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nnodes=1", f"--nproc_per_node={ranks}"]
    command = ["-m", "mace.cli.run_train", *data, *E0S, *BASE, "--distributed", *args]
    return run([*launcher, *command], folder, **how)


def run(
    command: Sequence[str],
    folder: Path,
    *,
    tree: Path = TREE,
    python: str = sys.executable,
    env: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> Finished:
    """``python *command`` in ``folder``, with the package of ``tree``.

    Args:
        command: arguments of the interpreter.
        folder: the working folder.
        tree: a checkout or an exported tree; its ``mace`` is imported.
        python: the interpreter, which brings the packages that the tree needs.
        env: variables on top of this process's.
        timeout: seconds.

    Raises:
        Hung: it took longer; it and all processes that it started are killed then.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = start([python, *command], folder, output, tree=tree, env=env)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            kill_tree(process)
            raise Hung(f"{timeout} s were not enough:\n{_text(output)[-6000:]}") from None
        except BaseException:
            kill_tree(process)
            raise
        return Finished(status, _text(output), Path(folder))


def start(
    command: Sequence[str],
    folder: Path,
    output: Any,
    *,
    tree: Path = TREE,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen:
    """Start a command in its own session, with stdout and stderr to the file ``output``; see :func:`run`."""
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        **(env or {}),
    }
    variables["PYTHONPATH"] = os.pathsep.join(
        path for path in (str(tree), variables.get("PYTHONPATH", "")) if path
    )
    return subprocess.Popen(
        list(command),
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def kill_tree(process: subprocess.Popen) -> None:
    """Kill a process and all its descendants, those that moved to sessions of their own included."""
    doomed = descendants(process.pid)
    process.kill()
    for pid in doomed:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # it ended meanwhile
            continue
    process.wait()


def descendants(pid: int) -> list[int]:
    """The processes that ``pid`` started, and those that they started."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        queue += (new := children.get(queue.pop(), []))
        found += new
    return found


def records(results_file: Path, mode: str) -> list[dict[str, Any]]:
    """The records of a metrics file that are of a mode: "opt" for steps, "eval" for validations."""
    lines = Path(results_file).read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["mode"] == mode]


def losses(results_file: Path) -> list[float]:
    """The losses of all training steps, in order."""
    return [record["loss"] for record in records(results_file, "opt")]


def metric(folder: Path, name: str, key: str, epoch: int | None = None, seed: int = 1) -> float:
    """The last value of a metric of run ``name`` after ``epoch``; None is before any training."""
    results = records(Path(folder) / "results" / f"{name}_run-{seed}_train.txt", "eval")
    return [record[key] for record in results if record["epoch"] == epoch][-1]


def tracebacks(output: str) -> int:
    """How many Python tracebacks an output shows."""
    return len(re.findall(r"^(?:\[rank\d+\]: ?)?Traceback \(most recent call last\)", output, re.MULTILINE))


def rank_statuses(output: str) -> dict[int, int]:
    """The exit status of every rank that failed, from torchrun's summary."""
    found = re.findall(r"^  rank +: (\d+) .*\n  exitcode +: (-?\d+)", output, re.MULTILINE)
    return {int(rank): int(status) for rank, status in found}


def told_once(finished: Finished, *parts: str, ranks: int = 2) -> None:
    """Under torchrun: one line of ours with the ``parts``, no traceback of ours, status 1 of every rank."""
    finished.failed()
    complaints = re.findall(r"^.*mace.*error: .*$", finished.told, re.MULTILINE)
    assert len(complaints) == 1, finished.output
    for part in parts:
        assert part in complaints[0]
    # torchrun's report has the cause where it names the process that failed first.
    assert complaints[0] in finished.output.partition("Root Cause (first observed failure)")[2]
    assert tracebacks(finished.output) == 1, finished.output  # torchrun's own
    assert rank_statuses(finished.output) == dict.fromkeys(range(ranks), 1), finished.output


def _text(output: Any) -> str:
    output.seek(0)
    return output.read()
