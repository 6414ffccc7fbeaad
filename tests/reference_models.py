"""The reference cases and golden models, built with this package, and the batches they were evaluated on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mace import modules
from mace.tools.torch_tools import default_dtype
from tests.graphs import Structure, batch_of
from tests.reference import case, cases, state_dict

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden.json").read_text(encoding="utf-8"))
MODEL_CASES = cases()

# What the constructors call the numeric choices of other versions, by the case that was made with them.
CHOICES: dict[str, dict[str, Any]] = {
    "ssm_chebyshev": {"radial_type": "chebyshev_raw"},  # B13: polynomials of the distance in Angstrom
    "ssm_soft_legacy": {"distance_transform": "SoftLegacy"},  # the Soft transform before 0.3.10
    "dip_atomic_mlp0e": {"upstream_readout": True},  # B10: the last readout gives nothing
}


def build(name: str, dtype: str = "float64", **changes: Any) -> torch.nn.Module:
    """The model of a reference case with its weights, loaded strictly."""
    config = case(name)["config"]
    arguments = {**config["args"], **CHOICES.get(name, {}), **changes}
    with default_dtype(dtype):
        model = getattr(modules, config["class"])(**arguments)
    model.load_state_dict(state_dict(name))
    return model


def structures(name: str) -> list[Structure]:
    """The structures of a case. F7: the stored cell of the original gives the volume of open systems."""
    return [
        Structure(
            numbers=structure["numbers"],
            positions=structure["positions"],
            cell=structure["cell"] if structure["cell"].any() else np.eye(3),
            pbc=tuple(bool(periodic) for periodic in structure["pbc"]),
            head=int(structure["head"]),
            electron=float(structure["electron"]) if "electron" in structure else None,
            charges=structure.get("charges"),
            volume_cell=structure["graph_cell"],
        )
        for structure in case(name)["structures"]
    ]


def batch(
    name: str, chosen: Sequence[int] | None = None, dtype: torch.dtype = torch.float64
) -> dict[str, torch.Tensor]:
    """All structures of a case, or the chosen ones, as one batch."""
    arguments = case(name)["config"]["args"]
    every = structures(name)
    picked = every if chosen is None else [every[index] for index in chosen]
    return batch_of(picked, arguments["atomic_numbers"], arguments["r_max"], dtype)


_GOLDEN_COMMON: dict[str, Any] = {
    "r_max": 5.0,
    "num_bessel": 8,
    "num_polynomial_cutoff": 5,
    "max_ell": 2,
    "num_interactions": 2,
    "num_elements": 2,
    "atomic_numbers": [1, 8],
    "hidden_irreps": "16x0e + 16x1o",
    "MLP_irreps": "16x0e",
    "gate": "silu",
    "correlation": 3,
    "avg_num_neighbors": 8.0,
    "atomic_energies": [[-1.0, -2.0]],
    "radial_MLP": [64, 64, 64],
    "interaction_cls_first": "RealAgnosticInteractionBlock",
    "interaction_cls": "RealAgnosticResidualInteractionBlock",
}
_SCALING = {"atomic_inter_scale": 0.8, "atomic_inter_shift": [0.1]}
_FERMI = {"electron_input": True, "potential_output": True, "mean_electron": 100.0, "mean_potential": -3.0}
_TWO_HEADS = {
    "interaction_cls_first": "RealAgnosticDensityInteractionBlock",
    "interaction_cls": "RealAgnosticDensityResidualInteractionBlock",
    "pair_repulsion": True,
    "distance_transform": "Agnesi",
    "heads": ["h0", "h1"],
    "atomic_energies": [[-1.0, -2.0], [-3.0, -4.0]],
    "atomic_inter_scale": [0.8, 1.7],
    "atomic_inter_shift": [0.1, -0.2],
}
_GOLDEN_CHANGES: dict[str, dict[str, Any]] = {
    "ScaleShiftMACE": {},
    "FermiMACE": _FERMI,
    "FermiMACE_2": {**_FERMI, "electron_input": False, "use_global_state": True},
    "FermiMACE_uncertainty": {**_FERMI, "pred_uncertainty": True},
    "density_zbl_agnesi_2heads": _TWO_HEADS,
    "soft_residual_first": {
        "distance_transform": "Soft",
        "interaction_cls_first": "RealAgnosticResidualInteractionBlock",
    },
    "att_block": {"interaction_cls": "RealAgnosticAttResidualInteractionBlock"},
    "ell3_hidden2e": {"max_ell": 3, "hidden_irreps": "8x0e + 8x1o + 8x2e", "MLP_irreps": "8x0e"},
    "three_layers": {**_FERMI, "num_interactions": 3},
    "corr2": {"correlation": 2},
    "gaussian": {"radial_type": "gaussian"},
    "chebyshev": {"radial_type": "chebyshev_raw", "distance_transform": "Agnesi"},
}
GOLDEN_MODELS = ["MACE", "EnergyDipolesMACE", *_GOLDEN_CHANGES]
_SMALL = (
    "potential_output_layer",
    "potential_logvar_output_layer",
    "energy_logvar_output_layer",
    "node_updates",
    "state_updates",
    "global_state_embedding",
)


def golden_model(name: str) -> torch.nn.Module:
    """A golden model; every parameter is a linear congruential stream started by its name."""
    with default_dtype("float64"):
        if name == "MACE":
            model = modules.MACE(**_GOLDEN_COMMON)
        elif name == "EnergyDipolesMACE":
            model = modules.EnergyDipolesMACE(**{**_GOLDEN_COMMON, "MLP_irreps": "16x0e + 16x1o"})
        else:
            model = modules.ScaleShiftMACE(**{**_GOLDEN_COMMON, **_SCALING, **_GOLDEN_CHANGES[name]})
    for key, parameter in model.named_parameters():
        factor, state, stream = 0.1 if key.split(".")[0] in _SMALL else 1.7, sum(key.encode()), []
        for _ in range(parameter.numel()):
            state = (1103515245 * state + 12345) % 2**31
            stream.append(factor * (2 * state / 2**31 - 1))
        with torch.no_grad():
            parameter.copy_(torch.tensor(stream, dtype=torch.float64).view_as(parameter))
    return model


def golden_batch(name: str) -> dict[str, torch.Tensor]:
    """The two golden graphs; the volume of the second, open in z, comes from the stored cell."""
    num_heads = len(_GOLDEN_CHANGES.get(name, {}).get("heads", ["default"]))
    volumes = np.array(GOLDEN["cell_after_neighbourlist"]).reshape(-1, 3, 3)
    graphs = [
        Structure(
            numbers=np.array(graph["numbers"]),
            positions=np.array(graph["positions"]),
            cell=np.array(graph["cell"]),
            pbc=tuple(graph["pbc"]),
            head=min(graph["head"], num_heads - 1),
            electron=graph["electron"],
            charges=0.1 * np.arange(len(graph["numbers"])),
            volume_cell=volume,
        )
        for graph, volume in zip(GOLDEN["graphs"], volumes, strict=True)
    ]
    return batch_of(graphs, [1, 8], 5.0)
