"""One measured process of scripts/benchmark: runs with this package and mace-torch 0.3.16 alike (public API).

usage: python benchmark_worker.py JOB.json    prints one JSON object

The job names a data file, a number of frames, the model's constructor arguments, a state dict (written by the
first worker that finds none), dtype, threads, and how many evaluations and training steps to time.
"""

import inspect
import json
import os
import resource
import sys
import time

import torch
from ase.io import read

from mace import data, modules, tools
from mace.tools import torch_geometric

IMPORTED = time.time()


def make_graphs(file: str, index: str, model: dict) -> list:
    """The labelled frames that ``index`` picks, as graphs for a model with these constructor arguments."""
    table = tools.AtomicNumberTable(model["atomic_numbers"])
    frames = read(file, index)
    if hasattr(data, "KeySpecification"):  # mace-torch >= 0.3.13 names the labels in one object
        keys = data.KeySpecification(info_keys={"energy": "REF_energy"}, arrays_keys={"forces": "REF_forces"})
        configs = [data.config_from_atoms(frame, key_specification=keys) for frame in frames]
    else:
        configs = [data.config_from_atoms(frame) for frame in frames]
    return [data.AtomicData.from_config(config, z_table=table, cutoff=model["r_max"]) for config in configs]


def make_batch(job: dict):
    """All frames of the job as one batch (labels included)."""
    graphs = make_graphs(job["file"], f":{job['frames']}", job["model"])
    return next(iter(torch_geometric.dataloader.DataLoader(graphs, batch_size=len(graphs), shuffle=False)))


def build_model(arguments: dict) -> torch.nn.Module:
    """ScaleShiftMACE from constructor arguments that are plain values."""
    from e3nn import o3

    arguments = dict(arguments)
    accepted = inspect.signature(modules.MACE.__init__).parameters
    if "use_reduced_cg" in accepted:
        arguments["use_reduced_cg"] = False  # the same couplings and weights on both sides
    for key in ("hidden_irreps", "MLP_irreps"):
        arguments[key] = o3.Irreps(arguments[key])
    for key in ("interaction_cls", "interaction_cls_first"):
        arguments[key] = modules.interaction_classes[arguments[key]]
    arguments["gate"] = modules.gate_dict[arguments["gate"]]
    arguments["atomic_energies"] = torch.tensor(arguments["atomic_energies"]).numpy()
    arguments["num_elements"] = len(arguments["atomic_numbers"])
    return modules.ScaleShiftMACE(**arguments)


def make_model(job: dict) -> torch.nn.Module:
    """ScaleShiftMACE with the job's weights."""
    model = build_model(job["model"])
    if os.path.exists(job["weights"]):
        load_weights(model, torch.load(job["weights"], weights_only=True))
    else:
        torch.save(model.state_dict(), job["weights"])
    return model


def load_weights(model: torch.nn.Module, stored: dict) -> None:
    """Load a state dict of either package: all but flags and means that only one of the two knows."""
    own = model.state_dict()
    different = [
        key
        for key in own.keys() ^ stored.keys()
        if not key.endswith("_zeroed") and key not in ("mean_potential", "mean_electron")
    ]
    assert not different, different
    model.load_state_dict({key: stored.get(key, value) for key, value in own.items()})


def timed(action, repetitions: int) -> list[float]:
    """Seconds of each repetition; two are run before and not counted (TorchScript specialises on them)."""
    for _ in range(2):
        action()
    seconds = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return seconds


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(job: dict) -> dict:
    started = float(os.environ["BENCHMARK_STARTED"])  # in the epoch, just before this process was made
    torch.set_num_threads(job["threads"])
    torch.set_default_dtype(getattr(torch, job["dtype"]))
    model = make_model(job)
    batch = make_batch(job)
    first = model(batch.to_dict(), training=False)
    ready = time.time()
    loss_fn = modules.WeightedEnergyForcesLoss(energy_weight=1.0, forces_weight=100.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)

    def evaluation() -> None:
        model(batch.to_dict(), training=False)

    def training_step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_fn(pred=model(batch.to_dict(), training=True), ref=batch).backward()
        optimizer.step()

    result = {"start_up": ready - started, "import": IMPORTED - started}
    if job["measure"] == "evaluation":
        result["seconds"] = timed(evaluation, job["repetitions"])
    else:
        result["seconds"] = timed(training_step, job["repetitions"])
    return result | {
        "peak_mb": peak_mb(),
        "energy": first["energy"].tolist(),
        "forces_norm": float(first["forces"].norm()),
    }


if __name__ == "__main__":
    with open(sys.argv[1]) as handle:
        print(json.dumps(main(json.load(handle))))
