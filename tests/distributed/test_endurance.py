"""A long run of several ranks does not grow: neither in memory, nor in open files, nor in its log."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.harness import BASE, CP, DATA, E0S, run, tiny_data

pytestmark = [pytest.mark.multirank, pytest.mark.slow]

RUN = Path(__file__).with_name("watched_run.py")
EPOCHS = 200
RANKS = 4
SETTLED = 60  # epochs until torch's record of the last 2000 exchanges is full, about 40 an epoch
LITTLE = 64  # kB in the other 140 epochs
FLAGS = ["--name=m", f"--max_num_epochs={EPOCHS}", "--batch_size=1", "--distributed", "--lr=1e-5", "--ema"]


def drift(memory: np.ndarray) -> tuple[float, float]:
    """Growth of memory from the first to the last value, and how much of it may be noise: one deviation.

    The memory of a process goes in steps, of pages and of a third of a megabyte, as the allocator finds room
    for a large block in what is free or not. If they were as likely to go down as up, their sum would have
    this deviation. A leak is a drift of many steps of one sign, which stands out.
    """
    steps = np.diff(memory)
    return float(memory[-1] - memory[0]), float(np.std(steps, ddof=1) * np.sqrt(len(steps)))


@pytest.mark.parametrize("leak", [1.0, 4.0])
def test_a_leak_stands_out(leak):
    rng = np.random.default_rng(0)
    epochs = np.arange(EPOCHS - SETTLED)
    quiet = 400_000 + 4 * rng.integers(0, 3, len(epochs)) + 330.0 * (epochs > 70)
    growth, noise = drift(quiet)
    assert growth < max(3 * noise, LITTLE)
    pages = 4 * np.floor(leak * epochs / 4)
    growth, noise = drift(400_000 + pages)
    assert growth > max(3 * noise, LITTLE)


@pytest.mark.timeout(1500)
def test_200_epochs_of_four_ranks_do_not_grow(tmp_path):
    tiny_data(tmp_path)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={RANKS}", "--no-python"]
    command = [*launcher, sys.executable, str(RUN), *DATA, *E0S, *BASE, *CP, *FLAGS]
    run(command, tmp_path, timeout=1400).succeeded()
    for rank in range(RANKS):
        rows = [json.loads(line) for line in (tmp_path / f"watch_{rank}").read_text().splitlines()]
        assert len(rows) == EPOCHS
        epochs = np.arange(SETTLED, EPOCHS)
        growth, noise = drift(np.array([row["rss_kb"] for row in rows[SETTLED:]], dtype=float))
        assert growth < max(3 * noise, LITTLE), (rank, growth, noise)
        # What is in use of the heap has no such noise.
        growth = np.polyfit(epochs, [row["used_kb"] for row in rows[SETTLED:]], 1)[0] * len(epochs)
        assert growth < LITTLE, (rank, growth)
        # Python's own heap: less than an object an epoch.
        growth = np.polyfit(epochs, [row["blocks"] for row in rows[SETTLED:]], 1)[0] * len(epochs)
        assert growth < len(epochs), (rank, growth)
        assert rows[-1]["files"] == rows[SETTLED]["files"]
    log = (tmp_path / "logs" / "m_run-1.log").read_text().splitlines()
    begin = next(i for i, line in enumerate(log) if "Initial:" in line)
    end = next(i for i, line in enumerate(log) if "Training complete" in line)
    assert end - begin - 1 == EPOCHS  # one line an epoch and head
