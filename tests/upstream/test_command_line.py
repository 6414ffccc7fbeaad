"""The same command in both packages: statistics of the data, and models that move from one to the other."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mace.modules import ScaleShiftMACE
from mace.tools import default_dtype
from mace.tools.loading import load_model
from mace.tools.model_building import build_model
from mace.tools.rebuild import recorded_config
from mace.tools.torch_geometric import DataLoader
from scripts.benchmark_worker import load_weights, make_graphs
from tests.data.make_tiny import main as make_tiny
from tests.harness import run
from tests.tolerances import relative

WORKER = Path(__file__).with_name("peer_model.py")
# The architecture is the default one: 128x0e + 128x1o, max_ell 3, correlation 3.
COMMAND = [
    "-m",
    "mace.cli.run_train",
    "--name=run",
    "--train_file=train.xyz",
    "--valid_file=valid.xyz",
    "--model=ScaleShiftMACE",
    "--E0s=average",
    "--r_max=4.0",
    "--batch_size=4",
    "--valid_batch_size=4",
    "--max_num_epochs=1",
    "--default_dtype=float64",
    "--device=cpu",
    "--seed=1",
]
# Arguments of our models that mace-torch does not have, or not as plain values; this model uses none of them.
OURS_ONLY = {
    "mean_potential",
    "mean_electron",
    "electron_input",
    "potential_output",
    "use_global_state",
    "pred_uncertainty",
    "pred_evidential",
    "cueq_config",
}
E0_LINE = re.compile(r"Atomic Energies used \(z: eV\) for head [Dd]efault: (\{.*\})")
NEIGHBOURS_LINE = re.compile(r"Average number of neighbors: (\S+)")
pytestmark = [pytest.mark.upstream, pytest.mark.slow, pytest.mark.timeout(2400)]


@dataclass(frozen=True)
class Runs:
    """Folders and outputs of both runs, our model and its constructor arguments, and the peer's own model."""

    folders: dict[str, Path]
    outputs: dict[str, str]
    model: ScaleShiftMACE
    arguments: dict[str, Any]
    peers: dict[str, np.ndarray]  # its predictions, constants and state
    ask_peer: Callable[..., dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, peer) -> Runs:
    folders = {side: tmp_path_factory.mktemp(side) for side in ("ours", "peer")}
    for folder in folders.values():
        make_tiny(folder / "train.xyz", 12, 1, cp=0)
        make_tiny(folder / "valid.xyz", 4, 2, cp=0)
    outputs = {
        "ours": run(COMMAND, folders["ours"], timeout=900).succeeded().output,
        "peer": peer(COMMAND, folders["peer"]),
    }
    model = load_model(folders["ours"] / "run.model")
    recorded = recorded_config(model)["arguments"]
    arguments = {key: value for key, value in recorded.items() if key not in OURS_ONLY}

    def ask_peer(**job: str) -> dict[str, np.ndarray]:
        folder = folders["peer"]
        job = {"model": arguments, "file": str(folder / "valid.xyz"), "index": ":2", **job}
        (folder / "job.json").write_text(json.dumps(job))
        peer([str(WORKER), "job.json", "answer.npz"], folder)
        with np.load(folder / "answer.npz", allow_pickle=False) as archive:
            return dict(archive)

    peers = ask_peer(saved=str(folders["peer"] / "run.model"))
    return Runs(folders, outputs, model, arguments, peers, ask_peer)


def our_predictions(model: ScaleShiftMACE, runs: Runs) -> dict[str, np.ndarray]:
    """Energies and forces of the frames that the peer is asked for."""
    with default_dtype("float64"):
        graphs = make_graphs(str(runs.folders["ours"] / "valid.xyz"), ":2", runs.arguments)
    output = model(next(iter(DataLoader(graphs, batch_size=2))).to_dict())
    return {key: output[key].detach().numpy() for key in ("energy", "forces")}


def assert_same_predictions(ours: dict[str, np.ndarray], peers: dict[str, np.ndarray]) -> None:
    for key, value in ours.items():
        worst = np.abs(value - peers[key]).max() / np.abs(peers[key]).max()
        print(f"{key}: largest deviation, relative to the largest value, {worst:.1e}")
        assert worst < relative("another program")


def test_logged_atomic_energies_and_neighbours_are_those_of_mace_torch(runs):
    energies = {side: ast.literal_eval(E0_LINE.search(text)[1]) for side, text in runs.outputs.items()}
    neighbours = {side: float(NEIGHBOURS_LINE.search(text)[1]) for side, text in runs.outputs.items()}
    print(energies, neighbours)
    assert energies["ours"] == pytest.approx(energies["peer"], rel=relative("statistics"))
    assert neighbours["ours"] == pytest.approx(neighbours["peer"], rel=relative("statistics"))


def test_statistics_in_the_model_are_those_of_mace_torch(runs):
    ours, peers = runs.model, runs.peers
    values = {
        "atomic_energies": ours.atomic_energies_fn.atomic_energies.numpy(),
        "scale": ours.scale_shift.scale.numpy(),
        "shift": ours.scale_shift.shift.numpy(),
        "avg_num_neighbors": np.array([runs.arguments["avg_num_neighbors"]] * 2),
    }
    for name, value in values.items():
        print(name, value, peers[name])
        assert value.ravel() == pytest.approx(peers[name].ravel(), rel=relative("statistics"))


def test_our_saved_model_is_the_same_in_mace_torch(runs):
    torch.save(runs.model.state_dict(), runs.folders["peer"] / "weights.pt")
    theirs = runs.ask_peer(weights=str(runs.folders["peer"] / "weights.pt"))
    assert_same_predictions(our_predictions(runs.model, runs), theirs)


def test_a_saved_model_of_mace_torch_is_the_same_here(runs):
    model = build_model(ScaleShiftMACE, runs.arguments, "float64")
    state = {
        key.removeprefix("state/"): value for key, value in runs.peers.items() if key.startswith("state/")
    }
    load_weights(model, {key: torch.from_numpy(value) for key, value in state.items()})
    assert_same_predictions(our_predictions(model, runs), runs.peers)
