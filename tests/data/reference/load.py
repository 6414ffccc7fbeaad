"""Loader of the reference data (numpy only); README.md in this folder says what they are.

    from data.reference.load import cases, load, max_rel_dev
    for name in cases():
        d = load(name)

    d["config"]       dict   class name, every constructor argument, seed, versions, notes
    d["state_dict"]   dict   parameter/buffer name -> numpy array
    d["structures"]   list of dicts: label, numbers, positions, cell, pbc, head [, electron, charges],
                      n_edges, graph_cell, out (outputs of a batch of one), labels (labels and weights)
    d["batch"]        dict   outputs of all structures collated into one batch, in order
    d["loss"]         dict   loss class -> value for that batch (with potential_flag if there is a potential)
    d["loss_noflag"]  dict   the same without potential_flag (Fermi losses only)
    d["grad"]         dict   parameter name -> (2-norm, dot with cos(0, 1, 2, ...)) of the derivative of
                             config["grad_loss"] by the parameter

`python load.py` checks every file in this folder.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
NEIGHBOURS = "neighbour_lists"


def cases(folder=HERE):
    """The names of all models."""
    return sorted(path.stem for path in Path(folder).glob("*.npz") if path.stem != NEIGHBOURS)


def load(name, folder=HERE):
    """One model with everything that belongs to it, as the dict described above."""
    with np.load(Path(folder) / f"{name}.npz", allow_pickle=False) as archive:
        raw = {key: archive[key] for key in archive.files}
    config = json.loads(str(raw.pop("config")))
    result = dict(config=config, state_dict={}, batch={}, loss={}, loss_noflag={}, grad={})
    result["structures"] = [dict(label=label, out={}, labels={}) for label in config["structures"]]
    for key, value in raw.items():
        kind, _, rest = key.partition("/")
        if kind in ("in", "out", "labels"):
            number, _, name = rest.partition("/")
            structure = result["structures"][int(number[1:])]
            (structure if kind == "in" else structure[kind])[name] = value
        elif kind == "grad":
            pairs = zip(config["parameters"], value, strict=True)
            result["grad"] = {name: (float(norm), float(dot)) for name, (norm, dot) in pairs}
        elif kind in ("loss", "loss_noflag"):
            result[kind][rest] = float(value)
        else:
            result[{"sd": "state_dict", "batch": "batch"}[kind]][rest] = value
    return result


def neighbours(folder=HERE):
    """Neighbour lists, sorted by i, j, S.

    List of dicts: label, positions, numbers, cell, pbc, cutoff, graph_cell, edge_index [2, E],
    unit_shifts [E, 3].
    """
    with np.load(Path(folder) / f"{NEIGHBOURS}.npz", allow_pickle=False) as archive:
        result = [dict(label=label) for label in json.loads(str(archive["labels"]))]
        for key in archive.files:
            number, _, name = key.partition("/")
            if name:
                result[int(number[1:])][name] = archive[key]
    return result


def max_rel_dev(a, b):
    """max |a - b| / max |b|; infinite for different shapes."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    if a.shape != b.shape:
        return np.inf
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-12)) if a.size else 0.0


def all_finite(data):
    """Whether every number of a loaded model is finite."""
    arrays = [*data["state_dict"].values(), *data["batch"].values(), *data["loss"].values()]
    for structure in data["structures"]:
        arrays += [value for value in structure.values() if isinstance(value, np.ndarray)]
        arrays += [*structure["out"].values(), *structure["labels"].values()]
    return all(np.isfinite(array).all() for array in arrays)


if __name__ == "__main__":
    for case in cases():
        data = load(case)
        sizes = ", ".join(f"{len(data[key])} {key}" for key in ("state_dict", "structures", "loss"))
        print(f"{case:32s} {data['config']['class']:18s} {sizes}, finite: {all_finite(data)}")
    print(f"{len(cases())} cases, {len(neighbours())} neighbour lists")
