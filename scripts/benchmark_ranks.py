"""Two ranks on two cores beside one rank on one core: seconds of a training step with the same global batch.

Both are the real command, on gloo; they alternate in one run, and a ratio is formed within a round. The
time of a step is that of the metrics file; the first, in which TorchScript specialises, are left out. Beside
them go two runs of one rank at once that do not talk: what the machine itself gives at that time. The cores
of a virtual machine are not always whole cores.

It ends with status 1 and a line that says why if two ranks are less than 1.7 times as fast as one, as the
median of the rounds, or if a step of one rank is shorter than 0.5 s, which is too short to tell.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
GLOBAL_BATCH = 16
STEPS = 10
WARM_UP = 3  # steps that do not count
LEAST_RATIO = 1.7  # of the seconds of one rank to those of two
SHORTEST_STEP = 0.5  # s, of one rank
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
RUN = [
    "-m",
    "mace.cli.run_train",
    "--name=bench",
    "--model=MACE",
    "--train_file=train.xyz",
    "--valid_file=valid.xyz",
    "--E0s=average",
    "--hidden_irreps=64x0e + 64x1o",
    "--max_ell=3",
    "--r_max=5.0",
    "--max_num_epochs=1",
    "--default_dtype=float64",
    "--seed=1",
]


def frames(count: int, skip: int) -> str:
    """Frames of the data that the tests use."""
    text = (ROOT / "tests/data/cu_water_train.xyz").read_text().splitlines(keepends=True)
    length = int(text[0]) + 2  # all have the same number of atoms
    return "".join(text[skip * length : (skip + count) * length])


class Round(NamedTuple):
    """Seconds of a step; all three were measured one after the other."""

    one: float  # one rank, the global batch
    two: float  # two ranks, half of it each
    apart: float  # two runs at once that know nothing of each other, half of it each

    @property
    def ratio(self) -> float:
        """How many times as fast two ranks are as one."""
        return self.one / self.two

    @property
    def ceiling(self) -> float:
        """How many times as much two cores do as one, on this machine at this time."""
        return self.one / self.apart


def start(folder: Path, ranks: int, batch: int) -> subprocess.Popen[str]:
    """A run in an empty folder: the ranks take ``batch`` frames each in a step."""
    count = ranks * batch * STEPS
    (folder / "train.xyz").write_text(frames(count, 0))
    (folder / "valid.xyz").write_text(frames(1, count))
    command = [sys.executable, *(TORCHRUN if ranks > 1 else []), *RUN, f"--batch_size={batch}"]
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def seconds_of_a_step(runs: int, ranks: int) -> float:
    """The median over the steps, of the slower one of ``runs`` at once that share the global batch."""
    with tempfile.TemporaryDirectory() as parent:
        folders = [Path(tempfile.mkdtemp(dir=parent)) for _ in range(runs)]
        started = [start(folder, ranks, GLOBAL_BATCH // (runs * ranks)) for folder in folders]
        said = [run.communicate()[0] for run in started]
        for run, output in zip(started, said, strict=True):
            if run.returncode:
                sys.exit(f"{' '.join(run.args)} ended with status {run.returncode}:\n{output}")
        return max(map(median_step, folders))


def median_step(folder: Path) -> float:
    """Of the run in a folder, without the first steps."""
    lines = map(json.loads, (folder / "results/bench_run-1_train.txt").read_text().splitlines())
    times = [line["time"] for line in lines if line["mode"] == "opt"]
    assert len(times) == STEPS
    return statistics.median(times[WARM_UP:])


def shortfalls(rounds: list[Round]) -> list[str]:
    """What is promised and was not measured."""
    found = []
    ratio = statistics.median(each.ratio for each in rounds)
    if ratio < LEAST_RATIO:
        found.append(f"two ranks are {ratio:.3f} times as fast as one: at least {LEAST_RATIO} is promised")
    shortest = min(each.one for each in rounds)
    if shortest < SHORTEST_STEP:
        found.append(
            f"a step of one rank takes {shortest:.3f} s: the promise is about steps of {SHORTEST_STEP} s or "
            "more, so make them larger (GLOBAL_BATCH)"
        )
    return found


def stolen() -> float:
    """Seconds of cores, since it started, that a virtual machine asked for and its host gave to others."""
    ticks = Path("/proc/stat")
    return int(ticks.read_text().split()[8]) / os.sysconf("SC_CLK_TCK") if ticks.exists() else 0.0


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} - {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds={arguments.rounds}: at least one is needed")
    rounds = []
    for number in range(arguments.rounds):
        # by (runs, ranks); what comes first changes, because the machine is not the same all the time
        order = [(1, 1), (1, 2), (2, 1)]
        order = order[number % 3 :] + order[: number % 3]
        before, began = stolen(), time.monotonic()
        seconds = {kind: seconds_of_a_step(*kind) for kind in order}
        lost = (stolen() - before) / (time.monotonic() - began)
        this = Round(one=seconds[1, 1], two=seconds[1, 2], apart=seconds[2, 1])
        rounds.append(this)
        print(
            f"one rank {this.one:.3f} s, two ranks {this.two:.3f} s: {this.ratio:.2f}; "
            f"two runs that do not talk {this.apart:.3f} s: {this.ceiling:.2f}; the machine was without "
            f"{lost:.2f} of its cores",
            flush=True,
        )
    print(
        f"{platform.machine()}, {os.cpu_count()} cores: two ranks are "
        f"{spread([each.ratio for each in rounds])} times as fast as one, where two runs that do not talk "
        f"give {spread([each.ceiling for each in rounds])}",
        flush=True,
    )
    if found := shortfalls(rounds):
        sys.exit("\n".join(f"benchmark_ranks: {line}" for line in found))


if __name__ == "__main__":
    main()
