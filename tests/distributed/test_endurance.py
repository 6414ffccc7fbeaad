"""A long run of several ranks does not grow: neither in memory, nor in open files, nor in its log."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.harness import BASE, CP, DATA, E0S, run, tiny_data

RUN = Path(__file__).with_name("watched_run.py")
EPOCHS = 200
RANKS = 4
SETTLED = 60  # epochs until allocators and TorchScript have what they need
WINDOW = 20  # epochs
NOISE = 16  # kB that a window may have more than the one before: less than 1 kB an epoch
FLAGS = ["--name=m", f"--max_num_epochs={EPOCHS}", "--batch_size=1", "--distributed", "--lr=1e-5", "--ema"]


def usual_growth(memory: Sequence[float]) -> float:
    """What a window of epochs usually has more than the one before, by the medians of both.

    What is lost in every epoch is lost in every window; allocators take a step in one window or another.
    """
    windows = np.reshape(memory[: len(memory) // WINDOW * WINDOW], (-1, WINDOW))
    return float(np.median(np.diff(np.median(windows, axis=1))))


def test_a_leak_is_told_from_steps_of_an_allocator():
    epochs = np.arange(EPOCHS - SETTLED)
    steps = 400.0 * (epochs > 25) + 150.0 * (epochs > 97)
    assert usual_growth(steps) == 0.0
    assert usual_growth(steps + 1.0 * epochs) > NOISE


@pytest.mark.slow
@pytest.mark.multirank
@pytest.mark.timeout(1500)
def test_200_epochs_of_four_ranks_do_not_grow(tmp_path):
    tiny_data(tmp_path)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={RANKS}", "--no-python"]
    command = [*launcher, sys.executable, str(RUN), *DATA, *E0S, *BASE, *CP, *FLAGS]
    run(command, tmp_path, timeout=1400).succeeded()
    for rank in range(RANKS):
        rows = [json.loads(line) for line in (tmp_path / f"watch_{rank}").read_text().splitlines()]
        assert len(rows) == EPOCHS
        growth = usual_growth([row["rss_kb"] for row in rows[SETTLED:]])
        assert growth <= NOISE, (rank, growth)
        assert rows[-1]["files"] == rows[SETTLED]["files"]
    log = (tmp_path / "logs" / "m_run-1.log").read_text().splitlines()
    begin = next(i for i, line in enumerate(log) if "Initial:" in line)
    end = next(i for i, line in enumerate(log) if "Training complete" in line)
    assert end - begin - 1 == EPOCHS  # one line an epoch and head
