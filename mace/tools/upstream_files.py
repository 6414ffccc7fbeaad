"""A state dict and a JSON file, NAME.pt and NAME.json, from which MACE or CP-MACE builds the same model.

The JSON names upstream's class and the keywords of its constructor in plain words; docs/interchange.md shows
the few lines that read the pair there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from e3nn import o3

from mace.exceptions import InputError
from mace.tools.plain import RebuildError, dtype_name, model_class_called, readable
from mace.tools.rebuild import adopt, rebuild, recorded_config
from mace.tools.upstream_config import (
    FERMI_OPTIONS,
    Keywords,
    has_reduced_couplings,
    in_our_terms,
    keywords_of,
)

PEERS = ("mace-torch", "cp-mace")
_FORMAT = 1
_STATE_WIDTH = 64  # of CP-MACE's global state


def for_upstream(model: torch.nn.Module, peer: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The contents of the two files.

    Args:
        model: a model of ours on e3nn.
        peer: "mace-torch" (0.3.16) or "cp-mace".

    Raises:
        InputError: the peer has no model that computes the same.
    """
    copy = rebuild(model).to("cpu")
    name, state = type(copy).__name__, copy.state_dict()
    keywords = _their_keywords(name, readable(recorded_config(copy)["arguments"]), state)
    reason = _obstacle(name, keywords, peer)
    if reason is not None:
        raise InputError(f"this {name} has no counterpart in {peer}: {reason}")
    keywords["radial_type"] = keywords["radial_type"].removesuffix("_raw")
    known = keywords_of(name, with_electrons=peer == "cp-mace")
    configuration = {
        "format": _FORMAT,
        "peer": peer,
        "class": name,
        "dtype": dtype_name(next(copy.parameters()).dtype),
        "arguments": {key: value for key, value in keywords.items() if key in known},
    }
    return configuration, _their_state(name, keywords, state, peer)


def _their_keywords(name: str, recorded: Keywords, state: Mapping[str, torch.Tensor]) -> Keywords:
    """Recorded arguments by the names of the command line; statistics from the state, which counts."""
    keywords = {"radial_type": "bessel", "distance_transform": "None", "heads": None, **recorded}
    for key in ("interaction_cls", "interaction_cls_first"):
        keywords[key] = keywords[key].rpartition(".")[2]
    keywords["gate"] = (keywords["gate"] or "None").rpartition(".")[2]
    orders = keywords.get("correlation")  # BOTNet has none
    if isinstance(orders, list) and len(set(orders)) == 1:
        keywords["correlation"] = orders[0]
    for key, tensor in (
        ("atomic_energies", "atomic_energies_fn.atomic_energies"),
        ("atomic_inter_scale", "scale_shift.scale"),
        ("atomic_inter_shift", "scale_shift.shift"),
    ):
        if tensor in state:
            keywords[key] = state[tensor].tolist()
    for key in ("mean_potential", "mean_electron"):
        if key in state:
            keywords[key] = float(state[key])
    if keywords.get("keep_last_layer_irreps") is False and keywords["num_interactions"] == 1:
        keywords["hidden_irreps"] = str(o3.Irreps(keywords["hidden_irreps"])[:1])
    if "products.0.linear.weight" in state:
        keywords["use_reduced_cg"] = has_reduced_couplings(keywords, state)
    return keywords


def _obstacle(name: str, keywords: Keywords, peer: str) -> str | None:
    """Why ``peer`` cannot build this model, None if it can."""
    electrons = [option for option in FERMI_OPTIONS if keywords.get(option)]
    one_layer = keywords["num_interactions"] == 1 and o3.Irreps(keywords["hidden_irreps"]).lmax > 0
    if "BOTNet" in name:
        return "its BOTNet classes cannot be built"
    if keywords.get("cueq_config"):
        return "it runs on cuEquivariance, convert it with mace_cueq_to_e3nn first"
    if keywords["radial_type"] == "chebyshev":
        return "its 'chebyshev' is another basis (ours is 'chebyshev_raw')"
    if keywords["distance_transform"] == "SoftLegacy":
        return "it no longer has the Soft transform of versions before 0.3.10"
    if name == "AtomicDipolesMACE" and not _drops_scalars(keywords):
        return "its last layer keeps no scalars to gate the vectors with"
    if peer == "mace-torch":
        if electrons:
            return f"it knows no electron number or Fermi level ({electrons[0]})"
        if one_layer and "Dipoles" not in name:
            return "its models of one layer keep scalars only"
        return None
    if keywords.get("use_reduced_cg"):
        return "it has no reduced coupling basis (use_reduced_cg)"
    if keywords.get("pred_evidential"):
        return "its evidential heads have another width and fail"
    if keywords.get("potential_output") and one_layer:
        return "it reads the Fermi level of models of one layer from vectors"
    return None


def _drops_scalars(keywords: Keywords) -> bool:
    given = keywords.get("upstream_readout")
    return all(ir.l == 1 for _, ir in o3.Irreps(keywords["MLP_irreps"])) if given is None else bool(given)


def _their_state(
    name: str, keywords: Keywords, state: Mapping[str, torch.Tensor], peer: str
) -> dict[str, torch.Tensor]:
    """What the peer loads strictly: without the tensors it does not know, with the unused ones it has."""
    theirs = dict(state)
    if peer == "mace-torch":
        theirs = {key: tensor for key, tensor in state.items() if ".equivariant_nonlin." not in key}
        for key in ("mean_potential", "mean_electron"):
            theirs.pop(key, None)
        for key in state:
            prefix, _, weight = key.rpartition(".contractions.")
            index, _, weight = weight.partition(".")
            if prefix and weight.startswith("weights"):
                zeroed = weight.replace(".", "_") + "_zeroed"
                theirs[f"{prefix}.contractions.{index}.{zeroed}"] = torch.tensor(False)
    elif name == "ScaleShiftMACE" and not keywords.get("use_global_state"):
        theirs.update(_unused_updates(o3.Irreps(keywords["hidden_irreps"])[0].mul, state["r_max"].dtype))
    return theirs


def _unused_updates(channels: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The networks that every ScaleShiftMACE of CP-MACE carries, whether it has a global state or not."""
    widths = dict.fromkeys(("node_updates.mlp", "node_updates.gate"), channels)
    widths["state_updates.0.mlp"] = _STATE_WIDTH
    tensors = {}
    for prefix, width in widths.items():
        for layer, inputs in ((0, channels + _STATE_WIDTH), (2, width)):
            tensors[f"{prefix}.{layer}.weight"] = torch.zeros(width, inputs, dtype=dtype)
            tensors[f"{prefix}.{layer}.bias"] = torch.zeros(width, dtype=dtype)
    return tensors


def read_pair(configuration: Path, state: Mapping[str, Any]) -> torch.nn.Module:
    """The model of a configuration file and the state dict that goes with it.

    Raises `RebuildError` for a file that is no configuration, and for a state of another model.
    """
    try:
        plain = json.loads(configuration.read_text(encoding="utf-8"))
        version, name, keywords = plain["format"], str(plain["class"]), dict(plain["arguments"])
    except (ValueError, TypeError, KeyError, UnicodeDecodeError) as error:
        raise RebuildError(f"{configuration} is not the configuration of a state dict ({error})") from None
    if version != _FORMAT:
        raise RebuildError(
            f"{configuration} has format {version}, this version reads {_FORMAT}: please upgrade"
        )
    if not state or not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
        raise RebuildError("it is not a state dict: that is a dictionary of tensors")
    try:
        ours = in_our_terms(name, keywords, state)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RebuildError(f"the arguments in {configuration} are not those of a {name} ({error})") from None
    return adopt(model_class_called(name), ours, state)
