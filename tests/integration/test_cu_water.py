"""The configuration that tests/data/README.md gives the errors of upstream for: those of ours are smaller.

One run says little about the Fermi level of the test set, which consists of the offsets of other
trajectories: training amplifies rounding, so the same seed on another processor is another sample. Seven runs
(seeds 1 to 3, two processors, two versions of e3nn) gave 103 to 114 meV with a spread of 5 meV, beside the
120 recorded of one run of upstream. Before the readout got its start (mace/tools/model_building.py) it was
121, 125, 111 and 119 for seeds 1 to 4.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.harness import DATA_FOLDER, run

# RMSE of upstream CP-MACE in meV/atom, meV/Angstrom and meV; see tests/data/README.md.
UPSTREAM = {"valid": (77.2, 55.6, 134.0), "test": (66.8, 86.7, 120.0)}
SEEDS = (1, 2, 3)
SPREAD = 5.0  # of the Fermi level's error over runs, meV: standard deviation on the test set
FLAGS = [
    "--name=cu",
    "--model=FermiMACE",
    "--hidden_irreps=32x0e + 32x1o",
    "--max_ell=2",
    "--correlation=3",
    "--r_max=4.5",
    "--num_interactions=2",
    "--batch_size=8",
    "--max_num_epochs=60",
    "--default_dtype=float32",
    "--lr=0.01",
    "--ema",
    "--ema_decay=0.99",
    "--amsgrad",
    "--loss=fermi_weighted",
    "--energy_weight=1",
    "--forces_weight=100",
    "--potential_weight=10",
    "--E0s=average",
    "--valid_fraction=0.1",
    "--error_table=Fermi_PerAtomRMSE",
]


def errors(log: str, row: str) -> tuple[float, ...]:
    """Energy, forces and Fermi level of a row of the final error tables."""
    cells = re.search(rf"^\| +{row} +\|(.*)\|$", log, re.MULTILINE)
    assert cells is not None, row
    return tuple(float(cell) for cell in cells.group(1).split("|")[:3])


def trained(folder, seed: int) -> str:
    """What a run says."""
    folder.mkdir()
    files = [f"--train_file={DATA_FOLDER}/cu_water_train.xyz", f"--test_file={DATA_FOLDER}/cu_water_test.xyz"]
    command = ["-m", "mace.cli.run_train", *files, *FLAGS, f"--seed={seed}"]
    return run(command, folder, timeout=5400).succeeded().output


@pytest.mark.slow
@pytest.mark.timeout(16200)
def test_errors_after_60_epochs_are_better_than_upstreams(tmp_path):
    logs = [trained(tmp_path / str(seed), seed) for seed in SEEDS]
    clearly = 2 * SPREAD / np.sqrt(len(SEEDS))  # two standard errors of the mean
    for row, kind in (("valid_default", "valid"), ("Default_default", "test")):
        runs = np.array([errors(log, row) for log in logs])
        print(f"{kind}, meV/atom, meV/A, meV:\n{runs}")
        energy, forces, fermi = UPSTREAM[kind] - runs.mean(axis=0)
        assert energy >= 0 and forces >= 0
        assert fermi >= clearly
