"""A process that dies while it writes: what has a final name is whole, and a run goes on from it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from mace.tools.loading import load_model
from tests import harness, kill_points

# ---- the writer alone

WRITER = """
import os, sys, torch
from mace.tools.checkpoint import write_checkpoint
from tests.kill_points import install
folder, proof, point, count = sys.argv[1:]
install(point, "step-", int(count), proof)
previous = None
for step in range(1, 6):
    path = os.path.join(folder, f"step-{step}.pt")
    write_checkpoint({"step": step, "tensor": torch.full((20000,), float(step))}, path)
    if previous:
        os.unlink(previous)
    previous = path
"""


@pytest.mark.parametrize(
    "count", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("point", kill_points.POINTS)
def test_a_killed_writer_leaves_whole_files_only(tmp_path, point, count):
    folder, proof = tmp_path / "files", tmp_path / "proof"
    folder.mkdir()
    command = [sys.executable, "-W", "ignore", "-c", WRITER, str(folder), str(proof), point, str(count)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == -signal.SIGKILL, result.stderr
    assert proof.read_text().startswith(f"{point} {folder}")
    final = [path for path in folder.iterdir() if path.suffix == ".pt"]
    for path in final:
        assert torch.load(path, weights_only=True)["tensor"].unique().tolist() == [float(path.stem[5:])]
    # The death came in step `count`, or when the file of that step was to be removed.
    newest = count + 1 if point == "remove" else count - 1
    assert max([int(path.stem[5:]) for path in final], default=0) == newest


# ---- whole runs


EPOCHS = 4


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = harness.tiny_data(tmp_path_factory.mktemp("undisturbed"))
    harness.two([*harness.CP, "--name=run", f"--max_num_epochs={EPOCHS + 2}"], folder).succeeded()
    return step_losses(folder)


def step_losses(folder: Path) -> dict[int, list[float]]:
    """The losses of the steps of each epoch; a later run of the epoch replaces an earlier one."""
    losses = defaultdict(list)
    for record in harness.records(folder / "results" / "run_run-1_train.txt", "opt"):
        losses[record["epoch"]].append(record["loss"])
    return dict(losses)


def check_kill_and_restart(folder, undisturbed, point, pattern, count):
    proof, hook = folder / "proof", kill_points.hook(folder)
    variables = {"PYTHONPATH": str(hook), **kill_points.environment(point, pattern, count, proof)}
    flags = [*harness.CP, "--name=run"]
    harness.two([*flags, f"--max_num_epochs={EPOCHS}"], harness.tiny_data(folder), env=variables).failed()
    assert proof.read_text().startswith(point) and pattern in proof.read_text()
    killed = step_losses(folder)
    for path in folder.rglob("*.pt"):
        torch.load(path, weights_only=True)
    for path in folder.rglob("*.model"):
        load_model(path)

    kept = [torch.load(path, weights_only=True)["progress"]["next_epoch"] for path in folder.rglob("*.pt")]
    harness.two([*flags, f"--max_num_epochs={EPOCHS + 2}", "--restart_latest"], folder).succeeded()
    for path in ("run.model", "run_compiled.model", "checkpoints/run_run-1.model"):
        load_model(folder / path)
    both = step_losses(folder)
    for epoch, losses in undisturbed.items():
        # Epochs without a whole checkpoint are trained again; the records of both runs stand in the file.
        again = both[epoch][len(killed.get(epoch, [])) :]
        assert bool(again) == (epoch >= max(kept, default=0))
        again = again or both[epoch]
        assert again == pytest.approx(losses, rel=1e-9), f"epoch {epoch}"


CHECKPOINTS = [(point, ".pt", count) for point in kill_points.POINTS[:5] for count in (1, 3)]
REMOVALS = [("remove", ".pt", count) for count in (1, 2, 3)]
MODELS = [
    (point, ".model", count) for point, count in zip(kill_points.POINTS[:5], (1, 2, 1, 2, 3), strict=True)
]
KILLS = CHECKPOINTS + REMOVALS + MODELS


@pytest.mark.multirank
def test_a_run_killed_in_mid_write_goes_on(tmp_path, undisturbed):
    check_kill_and_restart(tmp_path, undisturbed, "write", ".pt", 2)


@pytest.mark.slow
@pytest.mark.multirank
@pytest.mark.parametrize(("point", "pattern", "count"), KILLS)
def test_a_run_killed_anywhere_goes_on(tmp_path, undisturbed, point, pattern, count):
    check_kill_and_restart(tmp_path, undisturbed, point, pattern, count)
