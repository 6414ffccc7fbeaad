"""One process of the trial group: joins, sums over the processes, measures, and says so as lines of JSON.

It is a process of its own so that whatever hangs can be ended: its alarm goes off after the given time.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from mace.exceptions import InputError
from mace.tools.distributed import Ranks, open_ranks

SIZES = (1, 16, 64)  # MB, 1e6 bytes, as a gradient is sent
_REPEATS = 3
_COMPARED = ("cp-mace", "torch", "e3nn", "numpy")


def main() -> None:
    """Arguments: JSON of device, launcher (or null), patience (s) and the data files."""
    asked = json.loads(sys.argv[1])
    signal.alarm(asked["patience"])  # ends this process from outside of Python, wherever it waits
    _say("started")
    try:
        with open_ranks(asked["device"], distributed=False, launcher=asked["launcher"]) as ranks:
            _say("joined", backend=ranks.backend, world_size=ranks.world_size)
            right = sum_is_right(ranks)
            _say("summed")
            seconds = {size: time_of(ranks, size) for size in SIZES} if ranks.world_size > 1 else {}
            members = ranks.gather(facts(ranks, asked["files"]))
            _say("done", sum_is_right=right, seconds=seconds, members=members)
    except InputError as refusal:
        sys.exit(str(refusal))


def sum_is_right(ranks: Ranks) -> bool:
    """Whether the sum of the ranks, counted from 1, is what it must be."""
    total = ranks.sum(torch.full((1000,), ranks.rank + 1.0, device=ranks.device))
    return bool((total == ranks.world_size * (ranks.world_size + 1) / 2).all())


def time_of(ranks: Ranks, megabytes: int) -> float:
    """Seconds that a sum over the processes of so many float32 takes, the fastest of some."""
    tensor = torch.ones(megabytes * 250_000, dtype=torch.float32, device=ranks.device)
    times = []
    for _ in range(_REPEATS + 1):  # the first makes connections
        ranks.barrier()
        started = time.perf_counter()
        ranks.sum(tensor)
        if tensor.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def facts(ranks: Ranks, files: list[str]) -> dict[str, Any]:
    """What should be the same for all processes, and where this one is."""
    return {
        "host": socket.gethostname(),
        "versions": {name: _version(name) for name in _COMPARED},
        "files": {file: _size(Path(file)) for file in files},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _size(path: Path) -> int | None:
    """Bytes of a file, the number of entries of a folder, None if there is nothing."""
    if path.is_dir():
        return len(list(path.iterdir()))
    return path.stat().st_size if path.is_file() else None


def _say(stage: str, **what: Any) -> None:
    print(json.dumps({"stage": stage, **what}), flush=True)


if __name__ == "__main__":
    main()
