"""What mace-torch makes of many small models.

usage: python peer_variants.py JOBS.pt OUT.pt

Runs with mace-torch 0.3.16 through its public classes. A job is a dictionary: ``class``, the constructor's
``args`` as plain values, ``data``, a batch as a dictionary of tensors, and ``flags`` of forward. The answer
is a list of dictionaries: ``state`` with random weights, and ``output``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

from mace import modules  # isort: skip - it makes torch 2.6 and e3nn 0.4.4 get along: first
from e3nn import o3


def built(job: dict[str, Any]) -> torch.nn.Module:
    args = dict(job["args"])
    for name in ("hidden_irreps", "MLP_irreps"):
        args[name] = o3.Irreps(args[name])
    for name in ("interaction_cls", "interaction_cls_first"):
        args[name] = modules.interaction_classes[args[name]]
    args["gate"] = modules.gate_dict[args["gate"]]
    if args["atomic_energies"] is not None:
        args["atomic_energies"] = np.array(args["atomic_energies"])
    if "Dipole" not in job["class"]:
        args["use_reduced_cg"] = False
    return getattr(modules, job["class"])(**args)


def answer(job: dict[str, Any]) -> dict[str, dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    model = built(job)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    output = model(job["data"], **job["flags"])
    kept = {name: value.detach() for name, value in output.items() if isinstance(value, torch.Tensor)}
    return {"state": state, "output": kept}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    jobs, path = sys.argv[1:]
    torch.save([answer(job) for job in torch.load(jobs, weights_only=True)], path)
