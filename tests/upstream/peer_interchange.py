"""Models that mace-torch makes and reads, and what it computes with them.

usage: python peer_interchange.py pickle JOB.json     the job: a list of models (class, arguments), a folder
       python peer_interchange.py read CODE.py NAME   the code defines ``model`` in the folder it runs in

Both evaluate the batch in batch.npz and write the outputs to NAME.npz; `pickle` also writes NAME.model.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch


def built(name: str, arguments: dict[str, Any]) -> torch.nn.Module:
    modules = importlib.import_module("mace.modules")  # it makes torch 2.6 and e3nn 0.4.4 get along: first
    o3 = importlib.import_module("e3nn.o3")
    named = dict(arguments)
    for key in ("interaction_cls", "interaction_cls_first"):
        named[key] = modules.interaction_classes[named[key]]
    for key in ("hidden_irreps", "MLP_irreps"):
        named[key] = o3.Irreps(named[key])
    for key in ("atomic_energies", "atomic_inter_scale", "atomic_inter_shift"):
        if named.get(key) is not None:
            named[key] = np.array(named[key])
    named["gate"] = modules.gate_dict[named["gate"]]
    torch.manual_seed(7)
    return getattr(modules, name)(**named)


def evaluate(model: torch.nn.Module, name: str) -> None:
    with np.load("batch.npz") as stored:
        batch = {key: torch.from_numpy(stored[key]) for key in stored.files}
    output = model(batch)
    arrays = {key: value.detach().numpy() for key, value in output.items() if value is not None}
    np.savez(f"{name}.npz", **arrays)


def pickle_models(job: str) -> None:
    for name, model in json.loads(Path(job).read_text()).items():
        live = built(model["class"], model["arguments"])
        torch.save(live, f"{name}.model")
        evaluate(live, name)


def read(code: str, name: str) -> None:
    names: dict[str, Any] = {}
    exec(Path(code).read_text(), names)  # noqa: S102 - lines of docs/interchange.md
    evaluate(names["model"], name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    {"pickle": pickle_models, "read": read}[sys.argv[1]](*sys.argv[2:])
