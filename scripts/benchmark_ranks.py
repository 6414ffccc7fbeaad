"""Two ranks on two cores beside one rank on one core: seconds of a training step with the same global batch.

Both are the real command, on gloo; the two alternate in one run, and a ratio is formed within a round. The
time of a step is that of the metrics file; the first, in which TorchScript specialises, are left out.

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
from pathlib import Path

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


def seconds_of_a_step(ranks: int) -> float:
    """The median over the steps of one run."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.xyz").write_text(frames(GLOBAL_BATCH * STEPS, 0))
        Path(folder, "valid.xyz").write_text(frames(1, GLOBAL_BATCH * STEPS))
        command = [*(TORCHRUN if ranks > 1 else []), *RUN, f"--batch_size={GLOBAL_BATCH // ranks}"]
        settings = {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
        }
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, env=os.environ | settings, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
        lines = map(json.loads, Path(folder, "results/bench_run-1_train.txt").read_text().splitlines())
        times = [line["time"] for line in lines if line["mode"] == "opt"]
        assert len(times) == STEPS
        return statistics.median(times[WARM_UP:])


def ratios_of(rounds: list[dict[int, float]]) -> list[float]:
    """How many times as fast two ranks are as one, by round."""
    return [seconds[1] / seconds[2] for seconds in rounds]


def shortfalls(rounds: list[dict[int, float]]) -> list[str]:
    """What is promised and was not measured; the seconds of a step are given by number of ranks."""
    found = []
    ratio = statistics.median(ratios_of(rounds))
    if ratio < LEAST_RATIO:
        found.append(f"two ranks are {ratio:.3f} times as fast as one: at least {LEAST_RATIO} is promised")
    shortest = min(seconds[1] for seconds in rounds)
    if shortest < SHORTEST_STEP:
        found.append(
            f"a step of one rank takes {shortest:.3f} s: the promise is about steps of {SHORTEST_STEP} s or "
            "more, so make them larger (GLOBAL_BATCH)"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds={arguments.rounds}: at least one is needed")
    rounds = []
    for number in range(arguments.rounds):
        order = (1, 2) if number % 2 else (2, 1)
        seconds = {ranks: seconds_of_a_step(ranks) for ranks in order}
        rounds.append(seconds)
        (ratio,) = ratios_of([seconds])
        print(f"one rank {seconds[1]:.3f} s, two ranks {seconds[2]:.3f} s: {ratio:.2f}", flush=True)
    ratios = ratios_of(rounds)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores: two ranks are {statistics.median(ratios):.2f} times "
        f"as fast as one ({min(ratios):.2f} - {max(ratios):.2f})",
        flush=True,
    )
    if found := shortfalls(rounds):
        sys.exit("\n".join(f"benchmark_ranks: {line}" for line in found))


if __name__ == "__main__":
    main()
