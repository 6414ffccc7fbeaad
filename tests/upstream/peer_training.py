"""Train with mace-torch for some steps and write down where it started and every loss.

usage: python peer_training.py CASE OUT.npz

Runs with mace-torch 0.3.16 through its public functions: its model, loss, parameter groups, optimiser and
training step. OUT.npz holds the case (JSON), the losses, and the initial parameters, which are rounded to
numbers that float32 can represent and stored as such.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

ARCHITECTURE = {
    "r_max": 4.5,
    "num_bessel": 8,
    "num_polynomial_cutoff": 5,
    "interaction_cls": "RealAgnosticResidualInteractionBlock",
    "interaction_cls_first": "RealAgnosticInteractionBlock",
    "num_interactions": 2,
    "hidden_irreps": "16x0e + 16x1o",
    "MLP_irreps": "16x0e",
    "gate": "silu",
    "correlation": 3,
    "atomic_numbers": [1, 8, 29],
    "atomic_energies": [[-15.3, -110.7, -131.1]],
    "avg_num_neighbors": 13.7,
    "atomic_inter_scale": 0.9,
    "atomic_inter_shift": 0.07,
}
CASES = {name: {**ARCHITECTURE, "max_ell": max_ell} for name, max_ell in (("ell2", 2), ("ell3", 3))}
SETTINGS = {
    "file": "tests/data/cu_water_train.xyz",
    "index": "::12",
    "batch_size": 4,
    "epochs": 5,
    "energy_weight": 1.0,
    "forces_weight": 100.0,
    "lr": 0.01,
    "beta": 0.9,
    "weight_decay": 5e-7,
    "amsgrad": True,
    "ema_decay": 0.99,
    "clip_grad": 10.0,
    "seed": 7,
}
OUTPUTS = {"energy": True, "forces": True, "virials": False, "stress": False, "dipoles": False}


def initial_model(architecture: dict, seed: int) -> torch.nn.Module:
    """A model as the package initialises it, rounded."""
    from benchmark_worker import build_model

    torch.manual_seed(seed)
    model = build_model(architecture)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.float())
    return model


def optimizer_of(model: torch.nn.Module, settings: dict) -> torch.optim.Optimizer:
    """What the package's training command makes of these settings."""
    from mace.tools import build_default_arg_parser
    from mace.tools.scripts_utils import get_optimizer, get_params_options

    flags = [f"--{name}={settings[name]}" for name in ("lr", "beta", "weight_decay")]
    args = build_default_arg_parser().parse_args(["--name=peer", "--optimizer=adam", "--amsgrad", *flags])
    return get_optimizer(args, get_params_options(args, model))


def losses_of(model: torch.nn.Module, architecture: dict, settings: dict) -> list[float]:
    """Train; the loss of every step."""
    from benchmark_worker import make_graphs
    from torch_ema import ExponentialMovingAverage

    from mace.modules import WeightedEnergyForcesLoss
    from mace.tools.torch_geometric.dataloader import DataLoader
    from mace.tools.train import take_step

    graphs = make_graphs(str(ROOT / settings["file"]), settings["index"], architecture)
    loader = DataLoader(graphs, batch_size=settings["batch_size"], shuffle=False)
    loss_fn = WeightedEnergyForcesLoss(settings["energy_weight"], settings["forces_weight"])
    optimizer = optimizer_of(model, settings)
    ema = ExponentialMovingAverage(model.parameters(), decay=settings["ema_decay"])
    rest = {
        "ema": ema,
        "output_args": OUTPUTS,
        "max_grad_norm": settings["clip_grad"],
        "device": torch.device("cpu"),
    }
    return [
        float(take_step(model=model, loss_fn=loss_fn, batch=batch, optimizer=optimizer, **rest)[0])
        for _ in range(settings["epochs"])
        for batch in loader
    ]


def main(case: str, path: str) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    architecture = CASES[case]
    model = initial_model(architecture, SETTINGS["seed"])
    parameters = {
        f"parameter/{name}": p.detach().numpy().astype(np.float32) for name, p in model.named_parameters()
    }
    losses = losses_of(model, architecture, SETTINGS)
    config = json.dumps({"model": architecture, **SETTINGS})
    np.savez_compressed(path, config=config, losses=np.array(losses), **parameters)


if __name__ == "__main__":
    main(*sys.argv[1:])
