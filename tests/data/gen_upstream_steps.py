"""Losses of the first training steps of mace-torch, for a comparison with ours.

Run with the Python of an environment that has mace-torch 0.3.16:

    python make_tiny.py frames.xyz 12 1 cp=0
    python gen_upstream_steps.py frames.xyz upstream_steps.json
"""

from __future__ import annotations

import json
import sys
import zlib

import numpy as np
import torch

STEPS = 50
BATCH_SIZE = 3
FRAMES = {"count": 12, "seed": 1, "cp": 0}
MODEL = {
    "r_max": 4.0,
    "num_bessel": 4,
    "num_polynomial_cutoff": 5,
    "max_ell": 2,
    "num_interactions": 2,
    "num_elements": 2,
    "atomic_energies": np.array([-1.0, -2.0]),
    "avg_num_neighbors": 3.1,
    "atomic_numbers": [1, 8],
    "correlation": 3,
    "heads": ["Default"],
    "atomic_inter_scale": 0.7,
    "atomic_inter_shift": 0.1,
}
HIDDEN_IRREPS, MLP_IRREPS = "8x0e + 8x1o", "4x0e"
INTERACTION = "RealAgnosticResidualInteractionBlock"
ENERGY_WEIGHT, FORCES_WEIGHT = 1.0, 100.0
LEARNING_RATE, WEIGHT_DECAY, MAX_GRADIENT, EMA_DECAY = 0.01, 5e-7, 10.0, 0.99
OUTPUTS = {"energy": True, "forces": True, "virials": False, "stress": False, "dipoles": False}


def fill(model: torch.nn.Module) -> None:
    """Give every parameter values that depend on its name only."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            random = np.random.default_rng(zlib.crc32(name.encode()))
            parameter.copy_(torch.from_numpy(0.5 * random.normal(size=tuple(parameter.shape))))


def main(frames: str, output: str) -> None:
    from e3nn import o3
    from torch_ema import ExponentialMovingAverage

    from mace import data, modules, tools
    from mace.tools import scripts_utils, torch_geometric
    from mace.tools.train import take_step

    torch.set_default_dtype(torch.float64)
    info = {key: f"REF_{key}" for key in ("energy", "stress", "virials", "dipole")}
    keys = data.KeySpecification(
        info_keys={**info, "head": "head"}, arrays_keys={"forces": "REF_forces", "charges": "REF_charges"}
    )
    _, configurations = data.load_from_xyz(frames, key_specification=keys)
    table = tools.AtomicNumberTable(MODEL["atomic_numbers"])
    graphs = [
        data.AtomicData.from_config(each, z_table=table, cutoff=MODEL["r_max"], heads=MODEL["heads"])
        for each in configurations
    ]
    interaction = modules.interaction_classes[INTERACTION]
    model = modules.ScaleShiftMACE(
        **MODEL,
        hidden_irreps=o3.Irreps(HIDDEN_IRREPS),
        MLP_irreps=o3.Irreps(MLP_IRREPS),
        interaction_cls=interaction,
        interaction_cls_first=interaction,
        gate=torch.nn.functional.silu,
        use_reduced_cg=False,
    )
    fill(model)
    args = tools.build_default_arg_parser().parse_args(["--name=steps"])
    args.lr, args.weight_decay, args.amsgrad = LEARNING_RATE, WEIGHT_DECAY, True
    optimizer = scripts_utils.get_optimizer(args, scripts_utils.get_params_options(args, model))
    ema = ExponentialMovingAverage(model.parameters(), decay=EMA_DECAY)
    loader = torch_geometric.dataloader.DataLoader(graphs, batch_size=BATCH_SIZE)
    losses: list[float] = []
    while len(losses) < STEPS:
        for batch in loader:
            _, record = take_step(
                model=model,
                loss_fn=modules.WeightedEnergyForcesLoss(ENERGY_WEIGHT, FORCES_WEIGHT),
                batch=batch,
                optimizer=optimizer,
                ema=ema,
                output_args=OUTPUTS,
                max_grad_norm=MAX_GRADIENT,
                device=torch.device("cpu"),
            )
            losses.append(float(record["loss"]))
    with open(output, "w", encoding="utf-8") as file:
        json.dump({"program": "mace-torch 0.3.16, float64", "losses": losses[:STEPS]}, file, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
