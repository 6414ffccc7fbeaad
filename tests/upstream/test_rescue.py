"""mace_rescue on what mace-torch 0.3.16 writes: pickled wrappers, and checkpoints with its log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from mace.tools.loading import load_model
from mace.tools.rescue import RescuePlan, rescue
from mace.tools.same import differences, same_bits
from tests.harness import BASE, DATA, E0S, run, tiny_data
from tests.upstream.test_interchange import MODELS, same_numbers, the_batch

pytestmark = [pytest.mark.upstream, pytest.mark.slow]
SCRIPT = str(Path(__file__).with_name("peer_rescue.py"))
WRAPPED = ("plain", "soft", "kept_scalars", "energy_dipoles")
RUNS = {
    "two_layers": ["--model=ScaleShiftMACE", "--ema", "--swa", "--start_swa=1", "--gate=tanh"],
    "one_layer": ["--model=MACE", "--num_interactions=1", "--pair_repulsion", "--distance_transform=Soft"],
    "chebyshev": ["--model=MACE", "--radial_type=chebyshev"],
    "large": [
        "--model=MACE",
        "--hidden_irreps=8x0e + 8x1o + 8x2e",
        "--correlation=3",
        "--use_reduced_cg=True",
    ],
}


@pytest.fixture(scope="module")
def wrapped(peer, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wrapped")
    batch = {**the_batch(), "head": torch.zeros(2, dtype=torch.long)}
    np.savez(folder / "batch.npz", **{key: value.numpy() for key, value in batch.items()})
    jobs = {name: {"class": MODELS[name][0], "arguments": MODELS[name][1]} for name in WRAPPED}
    (folder / "job.json").write_text(json.dumps(jobs))
    peer([SCRIPT, "wrap", "job.json"], folder)
    return folder


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_model_of_the_peer(wrapped: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises((AttributeError, RuntimeError, ValueError)):
        torch.load(wrapped / f"{name}.pt", weights_only=False)
    (path,) = rescue(RescuePlan(source=wrapped / f"{name}.pt", output=tmp_path / "m.model"))
    model = load_model(path)
    assert type(model).__name__ == MODELS[name][0]
    same_numbers(model, wrapped, name)


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_of_the_peer_without_its_models(upstream_python: str, tmp_path: Path, kind: str) -> None:
    folder, crashed = tmp_path / "run", tmp_path / "crashed"
    folder.mkdir()
    flags = [*DATA, *E0S, *BASE, "--max_num_epochs=2", "--name=m", *RUNS[kind]]
    settings = {"PYTHONPATH": "", "PYTHONWARNINGS": "ignore"}
    done = run(
        [SCRIPT, "train", *flags], tiny_data(folder), tree=folder, python=upstream_python, env=settings
    )
    written = {path.relative_to(folder) for path in folder.rglob("*.model")}
    if kind == "chebyshev":  # it dies on its way from the first file to the second
        assert "has no attribute 'bessel_weights'" in done.failed().output
        assert written == {Path("checkpoints/m_run-1.model")}
    else:
        done.succeeded()
    for part in ("checkpoints", "logs"):
        shutil.copytree(folder / part, crashed / part, ignore=shutil.ignore_patterns("*.model"))
    rescue(RescuePlan(source=crashed, name="m"))
    rescued = {path.relative_to(crashed) for path in crashed.rglob("*.model")}
    assert rescued == written | {Path("m.model"), Path("m_compiled.model")}
    for name in sorted(path for path in written if "_compiled" not in path.name):
        found = load_model(crashed / name)
        assert not differences(load_model(folder / name), found)
        mark = "_swa" if "stagetwo" in name.name else ""
        newest = sorted((folder / "checkpoints").glob(f"m_run-1_epoch-?{mark}.pt"))[-1]
        weights, state = torch.load(newest, weights_only=True)["model"], found.state_dict()
        assert all(same_bits(state[key], weights[key]) for key in state.keys() & weights.keys())
