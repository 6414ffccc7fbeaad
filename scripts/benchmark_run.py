"""Alternate measured processes of this package and of a peer, and report ratios peer/ours with their spread.

A round runs a workload once with each side, in turn; a ratio is formed within a round, so that a machine
whose speed drifts does not favour one side. Both sides must compute the same energies and forces (checked).
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
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AGREEMENT = {"float64": 1e-9, "float32": 1e-4}  # relative; energies of the same weights on both sides
SMALL = {"hidden_irreps": "32x0e + 32x1o", "max_ell": 2, "r_max": 4.5}
DEFAULT = {
    "hidden_irreps": "128x0e + 128x1o",
    "max_ell": 3,
    "r_max": 5.0,
}  # the size of the command line's defaults


def architecture(size: dict) -> dict:
    """Constructor arguments of ScaleShiftMACE that both packages take."""
    return {
        "num_bessel": 8,
        "num_polynomial_cutoff": 5,
        "interaction_cls": "RealAgnosticResidualInteractionBlock",
        "interaction_cls_first": "RealAgnosticInteractionBlock",
        "num_interactions": 2,
        "MLP_irreps": "16x0e",
        "gate": "silu",
        "atomic_energies": [[-10.0, -70.0, -100.0]],
        "avg_num_neighbors": 10.0,
        "atomic_numbers": [1, 8, 29],
        "correlation": 3,
        "atomic_inter_scale": 1.0,
        "atomic_inter_shift": 0.0,
        **size,
    }


WORKLOADS = {
    f"{measure}-{name}-{dtype}": {
        "measure": measure,
        "model": architecture(size),
        "dtype": dtype,
        "frames": 8,
    }
    for name, size in (("small", SMALL), ("default", DEFAULT))
    for measure in ("training", "evaluation")
    for dtype in ("float64", "float32")
}


def run_worker(python: str, ours: bool, job_file: str) -> dict:
    """One measured process; our tree is put on the path of our side only."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"BENCHMARK_STARTED": repr(time.time()), "PYTHONWARNINGS": "ignore"}
    if ours:
        environment["PYTHONPATH"] = str(ROOT)
    command = [python, str(ROOT / "scripts/benchmark_worker.py"), job_file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tempfile.gettempdir())
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def check_agreement(name: str, dtype: str, ours: dict, peer: dict) -> None:
    """The two sides must do the same calculation, or the ratio means nothing."""
    for key in ("energy", "forces_norm"):
        a, b = (value if isinstance(value, list) else [value] for value in (ours[key], peer[key]))
        worst = max(abs(x - y) / max(abs(y), 1e-12) for x, y in zip(a, b, strict=True))
        assert worst <= AGREEMENT[dtype], f"{name}: {key} of the two sides differ by {worst:.1e}"


def measure(workload: dict, name: str, arguments, folder: str) -> dict:
    """All rounds of one workload: ratios peer/ours of time, start-up and peak memory."""
    job = workload | {
        "threads": arguments.threads,
        "repetitions": arguments.repetitions,
        "file": str(ROOT / "tests/data/cu_water_train.xyz"),
        "weights": f"{folder}/{name}.pt",
    }
    job_file = f"{folder}/{name}.json"
    Path(job_file).write_text(json.dumps(job))
    run_worker(arguments.ours, True, job_file)  # writes the weights; warms the file cache for both
    run_worker(arguments.peer, False, job_file)
    rounds = []
    for number in range(arguments.rounds):
        sides = [("ours", arguments.ours, True), ("peer", arguments.peer, False)]
        result = {
            side: run_worker(python, ours, job_file)
            for side, python, ours in (sides if number % 2 else sides[::-1])
        }
        check_agreement(name, workload["dtype"], result["ours"], result["peer"])
        rounds.append(result)
    return {
        "rounds": rounds,
        "ratios": {figure: ratios(rounds, figure) for figure in ("seconds", "start_up", "import", "peak_mb")},
    }


def ratios(rounds: list[dict], figure: str) -> dict:
    """Median, smallest and largest ratio peer/ours over the rounds (times: the median of the repetitions)."""

    def value(side: dict) -> float:
        return statistics.median(side[figure]) if isinstance(side[figure], list) else side[figure]

    each = [value(entry["peer"]) / value(entry["ours"]) for entry in rounds]
    return {
        "median": statistics.median(each),
        "min": min(each),
        "max": max(each),
        "ours": statistics.median(value(entry["ours"]) for entry in rounds),
    }


def table(results: dict) -> str:
    """Ratios peer/ours as text, one workload a line."""
    lines = [f"{'workload':28s} {'time':>22s} {'start-up':>22s} {'peak memory':>22s} {'ours':>10s}"]
    for name, result in results.items():
        cells = [
            f"{r['median']:.2f} ({r['min']:.2f} - {r['max']:.2f})"
            for r in (result["ratios"][figure] for figure in ("seconds", "start_up", "peak_mb"))
        ]
        lines.append(
            f"{name:28s} "
            + " ".join(f"{cell:>22s}" for cell in cells)
            + f" {result['ratios']['seconds']['ours']:8.3f} s"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--ours",
        type=os.path.abspath,  # the workers start in another folder
        required=True,
        help="python of an environment with this package's dependencies",
    )
    parser.add_argument(
        "--peer",
        type=os.path.abspath,
        required=True,
        help="python of an environment with mace-torch 0.3.16",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=5, help="timed repetitions in each process")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", default="outputs/benchmark.json")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="comma-separated names")
    arguments = parser.parse_args()
    for name in ("rounds", "repetitions", "threads"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name}={getattr(arguments, name)}: at least one is needed")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.workloads.split(","):
            results[name] = measure(WORKLOADS[name], name, arguments, folder)
            print(table({name: results[name]}), flush=True)
    print("\nRatios peer / ours: median (min - max) of the rounds; above 1, ours is faster or smaller.")
    print(table(results))
    report = {
        "machine": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "threads": arguments.threads,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "results": results,
    }
    Path(arguments.json).parent.mkdir(parents=True, exist_ok=True)
    Path(arguments.json).write_text(json.dumps(report, indent=1))
    print(f"written: {arguments.json}")


if __name__ == "__main__":
    main()
