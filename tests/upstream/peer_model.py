"""What mace-torch makes of a model: energies and forces of some frames, constants and state.

usage: python peer_model.py JOB.json OUT.npz

Runs with mace-torch 0.3.16 through its public functions. The job names the model by ``saved``, a .model file
of mace-torch, or by ``weights``, a state dict of either package; ``model`` holds the constructor arguments as
plain values, ``file`` and ``index`` choose the frames.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))


def the_model(job: dict) -> torch.nn.Module:
    from benchmark_worker import build_model, load_weights

    if "saved" in job:
        return torch.load(job["saved"], weights_only=False)
    model = build_model(job["model"])
    load_weights(model, torch.load(job["weights"], weights_only=True))
    return model


def predictions(model: torch.nn.Module, job: dict) -> dict[str, np.ndarray]:
    """Energies and forces of all frames."""
    from benchmark_worker import make_graphs

    from mace.tools.torch_geometric.dataloader import DataLoader

    graphs = make_graphs(job["file"], job["index"], job["model"])
    batch = next(iter(DataLoader(graphs, batch_size=len(graphs), shuffle=False)))
    output = model(batch.to_dict())
    return {key: output[key].detach().numpy() for key in ("energy", "forces")}


def constants(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """The statistics of the training set that the model carries."""
    return {
        "atomic_energies": model.atomic_energies_fn.atomic_energies.numpy(),
        "scale": model.scale_shift.scale.numpy(),
        "shift": model.scale_shift.shift.numpy(),
        "avg_num_neighbors": np.array([float(block.avg_num_neighbors) for block in model.interactions]),
    }


def main(job_file: str, path: str) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    job = json.loads(Path(job_file).read_text())
    model = the_model(job)
    state = {f"state/{name}": value.numpy() for name, value in model.state_dict().items()}
    np.savez(path, **predictions(model, job), **constants(model), **state)


if __name__ == "__main__":
    main(*sys.argv[1:])
