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
FLAGS = ["--name=m", f"--max_num_epochs={EPOCHS}", "--batch_size=1", "--distributed", "--lr=1e-5", "--ema"]


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
        # Of the process, and what is in use of its heap: pieces of free memory between are no leak.
        for name in ("rss_kb", "used_kb"):
            memory = np.array([row[name] for row in rows[SETTLED:]], dtype=float)
            slope, offset = np.polyfit(epochs, memory, 1)
            noise = np.std(memory - slope * epochs - offset)
            # What the line says about 140 epochs stays within the noise about it, or a page or two.
            assert slope * (EPOCHS - SETTLED) < max(3 * noise, 64), (rank, name, slope, noise)
        assert rows[-1]["files"] == rows[SETTLED]["files"]
    log = (tmp_path / "logs" / "m_run-1.log").read_text().splitlines()
    begin = next(i for i, line in enumerate(log) if "Initial:" in line)
    end = next(i for i, line in enumerate(log) if "Training complete" in line)
    assert end - begin - 1 == EPOCHS  # one line an epoch and head
