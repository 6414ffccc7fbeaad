"""Two ranks on two cores beside one rank on one core: seconds of a training step with the same global batch.

Both are the real command, on gloo. They are started once and take turns: one takes some steps while the
others are stopped (SIGSTOP), so that what is compared was measured within seconds, many times. The time of a
step is that of the metrics file; the first, in which TorchScript specialises, and those in which a turn
begins are left out. Beside them go two runs of one rank at once that do not talk: what the machine itself
gives at that time. The cores of a virtual machine are not always whole cores.

It ends with status 1 and a line that says why if two ranks are less than 1.7 times as fast as one, as the
median of the rounds, or if a step of one rank is shorter than 0.5 s, which is too short to tell.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
GLOBAL_BATCH = 16
STEPS = 10  # of an epoch
WARM_UP = 4  # steps that do not count
TURN = 2  # steps of each in a round
LEAST_RATIO = 1.7  # of the seconds of one rank to those of two
SHORTEST_STEP = 0.5  # s, of one rank
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
TRAIN = [
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
    "--max_num_epochs=1000",
    "--default_dtype=float64",
    "--seed=1",
]


def frames(count: int, skip: int) -> str:
    """Frames of the data that the tests use."""
    text = (ROOT / "tests/data/cu_water_train.xyz").read_text().splitlines(keepends=True)
    length = int(text[0]) + 2  # all have the same number of atoms
    return "".join(text[skip * length : (skip + count) * length])


class Round(NamedTuple):
    """Seconds of a step; all three took their turns one after the other."""

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


class Run:
    """A training in an empty folder, on these cores alone; it stands still but for its turns."""

    def __init__(self, folder: Path, ranks: int, batch: int, cores: set[int]) -> None:
        count = ranks * batch * STEPS
        (folder / "train.xyz").write_text(frames(count, 0))
        (folder / "valid.xyz").write_text(frames(1, count))
        self.records = folder / "results/bench_run-1_train.txt"
        self.output = folder / "output.txt"
        command = [sys.executable, *(TORCHRUN if ranks > 1 else []), *TRAIN, f"--batch_size={batch}"]
        settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | settings,
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )

    def signal(self, number: signal.Signals) -> None:
        """To torchrun, to its processes, which are groups of their own, and to theirs."""
        family = [self.process.pid]
        for pid in family:
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                family += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                os.kill(pid, number)

    def step_times(self) -> list[float]:
        """Seconds of the steps so far."""
        if (status := self.process.poll()) is not None:
            sys.exit(f"a run ended with status {status}:\n{self.output.read_text()}")
        text = self.records.read_text() if self.records.exists() else ""
        lines = map(json.loads, text[: text.rfind("\n") + 1].splitlines())
        return [line["time"] for line in lines if line["mode"] == "opt"]


class Job:
    """``runs`` at once, of ``ranks`` each, which share the global batch.

    There are as many cores as ranks: a single rank would else use the second for what it does aside, and
    leave a core that the host of a virtual machine takes away. It gets the last: the first has interrupts.
    """

    def __init__(self, runs: int, ranks: int) -> None:
        self.parent = tempfile.TemporaryDirectory()
        cores = set(sorted(os.sched_getaffinity(0))[-runs * ranks :])
        batch = GLOBAL_BATCH // (runs * ranks)
        folders = [Path(tempfile.mkdtemp(dir=self.parent.name)) for _ in range(runs)]
        self.runs = [Run(folder, ranks, batch, cores) for folder in folders]

    def turn(self, steps: int) -> float:
        """Let it take so many steps: the seconds of one, of the run that was slower."""
        before = [len(run.step_times()) for run in self.runs]
        self._signal(signal.SIGCONT)
        # The first has been waiting since the last turn.
        ends = [count + 1 + steps for count in before]
        while any(len(run.step_times()) < end for run, end in zip(self.runs, ends, strict=True)):
            time.sleep(0.25)  # looking takes time of the cores that are measured
        self._signal(signal.SIGSTOP)
        times = [run.step_times()[end - steps : end] for run, end in zip(self.runs, ends, strict=True)]
        return max(map(statistics.mean, times))

    def end(self) -> None:
        """Kill it, and remove its files."""
        self._signal(signal.SIGKILL)
        for run in self.runs:
            run.process.wait()
        self.parent.cleanup()

    def _signal(self, number: signal.Signals) -> None:
        for run in self.runs:
            run.signal(number)


@contextmanager
def jobs_of(kinds: Iterable[tuple[int, int]]) -> Iterator[dict[tuple[int, int], Job]]:
    """Jobs by (runs, ranks), warm, and each waiting for its turn."""
    jobs: dict[tuple[int, int], Job] = {}
    try:
        for kind in kinds:
            jobs[kind] = Job(*kind)
            jobs[kind].turn(WARM_UP)
        yield jobs
    finally:
        for job in jobs.values():
            job.end()


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
    """The median, and between which values half of them are."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    first, _, third = statistics.quantiles(values, n=4)
    return f"{statistics.median(values):.2f} ({first:.2f} - {third:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds={arguments.rounds}: at least one is needed")
    rounds = []
    with jobs_of([(1, 1), (1, 2), (2, 1)]) as jobs:
        before, began = stolen(), time.monotonic()
        for number in range(arguments.rounds):
            # What comes first changes, because the machine is not the same all the time.
            order = [*jobs, *jobs][number % 3 :][:3]
            seconds = {kind: jobs[kind].turn(TURN) for kind in order}
            rounds.append(Round(one=seconds[1, 1], two=seconds[1, 2], apart=seconds[2, 1]))
            print("one rank {:.3f} s, two ranks {:.3f} s, apart {:.3f} s".format(*rounds[-1]), flush=True)
        lost = (stolen() - before) / (time.monotonic() - began)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores: two ranks are "
        f"{spread([each.ratio for each in rounds])} times as fast as one, where two runs that do not talk "
        f"give {spread([each.ceiling for each in rounds])}: median (quartiles) of {len(rounds)} rounds; the "
        f"machine was without {lost:.2f} of its cores",
        flush=True,
    )
    if found := shortfalls(rounds):
        sys.exit("\n".join(f"benchmark_ranks: {line}" for line in found))


if __name__ == "__main__":
    main()
