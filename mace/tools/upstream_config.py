"""What MACE and CP-MACE mean by a model: constructor keywords from its parts, their choices in our terms."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from e3nn import o3

from mace.tools.pickled_models import PickledModule

Keywords = dict[str, Any]

_RADIAL_TYPES = {"BesselBasis": "bessel", "GaussianBasis": "gaussian", "ChebychevBasis": "chebyshev"}
_TRANSFORMS = {"AgnesiTransform": "Agnesi", "SoftTransform": "Soft"}
_GATES = {
    "torch.nn.functional.silu": "silu",
    "torch._C._VariableFunctionsClass.tanh": "tanh",
    "torch._C._VariableFunctionsClass.abs": "abs",
}
FERMI_OPTIONS = (
    "electron_input",
    "use_global_state",
    "potential_output",
    "pred_uncertainty",
    "pred_evidential",
)
# Attributes of newer models, and the value at which our classes compute the same.
_NEUTRAL = {
    "apply_cutoff": True,
    "use_agnostic_product": False,
    "use_so3": False,
    "use_last_readout_only": False,
    "use_embedding_readout": False,
    "edge_irreps": None,
    "use_edge_irreps_first": False,
}
_PARTS = frozenset(
    [
        "node_embedding",
        "radial_embedding",
        "pair_repulsion_fn",
        "spherical_harmonics",
        "atomic_energies_fn",
        "interactions",
        "products",
        "readouts",
        "scale_shift",
        "node_updates",
        "state_updates",
        "global_state_embedding",
        "potential_output_layer",
        "potential_logvar_output_layer",
        "energy_logvar_output_layer",
        "potential_evidential_output_layer",
        "energy_evidential_output_layer",
    ]
)
# What the constructors take: all of them, those of energies, those of dipoles.
_COMMON = frozenset(
    [
        "r_max",
        "num_bessel",
        "num_polynomial_cutoff",
        "max_ell",
        "interaction_cls",
        "interaction_cls_first",
        "num_interactions",
        "num_elements",
        "hidden_irreps",
        "MLP_irreps",
        "avg_num_neighbors",
        "atomic_numbers",
        "correlation",
        "gate",
        "radial_MLP",
    ]
)
_ENERGY = frozenset(["atomic_energies", "radial_type", "distance_transform", "pair_repulsion", "heads"])
_DIPOLES: dict[str, frozenset[str]] = {
    "AtomicDipolesMACE": frozenset(["atomic_energies", "radial_type"]),
    "EnergyDipolesMACE": frozenset(["atomic_energies"]),
}


def constructor_keywords(model: PickledModule) -> Keywords:
    """The keywords with which upstream's class of a pickled model makes such a model; plain values.

    Classes and gates are named, irreps are text. Raises pickle.UnpicklingError for what our classes do not
    have.
    """
    _require_known(model)
    blocks, products = _ordered(model["interactions"]), _ordered(model["products"])
    readout = _ordered(model["readouts"])[-1]
    numbers = [int(z) for z in model.tensor("atomic_numbers")]
    keywords: Keywords = {
        "r_max": float(model.tensor("r_max")),
        "num_polynomial_cutoff": int(model["radial_embedding.cutoff_fn"].tensor("p")),
        "max_ell": o3.Irreps(blocks[0].attribute("edge_attrs_irreps")).lmax,
        "interaction_cls": blocks[-1].class_name,
        "interaction_cls_first": blocks[0].class_name,
        "num_interactions": len(blocks),
        "num_elements": len(numbers),
        "hidden_irreps": products[0]["linear"].attribute("irreps_out"),
        "avg_num_neighbors": _same([float(block.attribute("avg_num_neighbors")) for block in blocks]),
        "atomic_numbers": numbers,
        "correlation": [
            product["symmetric_contractions.contractions.0"].attribute("correlation") for product in products
        ],
        "radial_MLP": _radial_widths(blocks[0]),
        "heads": list(model.attribute("heads", None) or ["default"]),
        "pair_repulsion": "pair_repulsion_fn" in model,
        **_radial(model["radial_embedding"]),
        **_energies(model),
        **_fermi(model),
    }
    keywords.update(_readout(readout, len(keywords["heads"])))
    known = keywords_of(model.class_name, with_electrons=True)
    return {name: value for name, value in keywords.items() if name in known}


def keywords_of(class_name: str, with_electrons: bool) -> frozenset[str]:
    """The keywords that upstream's class takes, of CP-MACE or (without electrons) of MACE."""
    if class_name in _DIPOLES:
        return _COMMON | _DIPOLES[class_name]
    known = _COMMON | _ENERGY
    if class_name == "ScaleShiftMACE":
        known |= {"atomic_inter_scale", "atomic_inter_shift"}
        if with_electrons:
            known |= {*FERMI_OPTIONS, "mean_potential", "mean_electron"}
    return known if with_electrons else known | {"use_reduced_cg"}


def _require_known(model: PickledModule) -> None:
    foreign = sorted(set(model.children()) - _PARTS)
    if foreign:
        raise pickle.UnpicklingError(f"it has a part {foreign[0]}, which the models of this package lack")
    for name, neutral in _NEUTRAL.items():
        value = model.attribute(name, neutral)
        if value != neutral:
            raise pickle.UnpicklingError(
                f"it was built with {name}={value!r}, and the models of this package know {neutral!r} only"
            )


def _ordered(modules: PickledModule) -> list[PickledModule]:
    return [modules[str(index)] for index in range(len(modules.children()))]


def _same(values: list[float]) -> float:
    if len(set(values)) != 1:
        raise pickle.UnpicklingError(f"its layers have different numbers of neighbours: {values}")
    return values[0]


def _radial_widths(block: PickledModule) -> list[int]:
    given = block.attribute("radial_MLP", None)
    return list(given or block["conv_tp_weights"].attribute("hs")[1:-1])


def _radial(embedding: PickledModule) -> Keywords:
    basis = embedding["bessel_fn"]
    name = {"bessel": "bessel_weights", "gaussian": "gaussian_weights", "chebyshev": "n"}
    radial_type = _RADIAL_TYPES[basis.class_name]
    transform = "None"
    if "distance_transform" in embedding:
        transform = _TRANSFORMS[embedding["distance_transform"].class_name]
    return {
        "radial_type": radial_type,
        "num_bessel": basis.tensor(name[radial_type]).numel(),
        "distance_transform": transform,
    }


def _energies(model: PickledModule) -> Keywords:
    found: Keywords = {"atomic_energies": None}
    if "atomic_energies_fn" in model:
        found["atomic_energies"] = model["atomic_energies_fn"].tensor("atomic_energies").tolist()
    if "scale_shift" in model:
        found["atomic_inter_scale"] = model["scale_shift"].tensor("scale").tolist()
        found["atomic_inter_shift"] = model["scale_shift"].tensor("shift").tolist()
    return found


def _fermi(model: PickledModule) -> Keywords:
    chosen = {name: True for name in FERMI_OPTIONS if model.attribute(name, False)}
    if chosen:
        for name in ("mean_potential", "mean_electron"):
            chosen[name] = float(model.tensor(name))
    return chosen


def _readout(readout: PickledModule, num_heads: int) -> Keywords:
    """Hidden irreps per head and activation of the last readout; a linear one has neither."""
    if "linear_2" not in readout:
        return {"MLP_irreps": "1x0e", "gate": "None"}
    hidden = o3.Irreps(readout["linear_2"].attribute("irreps_in"))
    if "equivariant_nonlin" in readout:
        given = o3.Irreps(readout.attribute("hidden_irreps"))  # more than what can reach the output
        return {"MLP_irreps": str(given), "gate": _gate_called(_gating(readout["equivariant_nonlin"]))}
    return {
        "MLP_irreps": str(o3.Irreps([(mul // num_heads, ir) for mul, ir in hidden])),
        "gate": _gate_called(_activation(readout["non_linearity"])),
    }


def _gating(nonlinear: PickledModule) -> str | None:
    """The activation of the gates, or of the scalars where nothing is gated."""
    if "act_gates" in nonlinear:  # e3nn's; mace-torch 0.3.16 has one of its own
        return _activation(nonlinear["act_gates"]) or _activation(nonlinear["act_scalars"])
    return nonlinear.attribute("_act_gate") or nonlinear.attribute("_act_scalar")


def _activation(activation: PickledModule) -> str | None:
    """The full name of the function; None if there is none, or nothing to act on."""
    acts = activation["acts"].children()
    return acts["0"].attribute("f") if "0" in acts else None


def _gate_called(function: str | None) -> str:
    if function is None:
        return "None"
    if function not in _GATES:
        raise pickle.UnpicklingError(f"the activation {function} of its readout is not one of this package")
    return _GATES[function]


def in_our_terms(class_name: str, keywords: Mapping[str, Any], state: Mapping[str, torch.Tensor]) -> Keywords:
    """Upstream's keywords as ours, so that energies and forces stay what they were.

    Args:
        class_name: upstream's class.
        keywords: of its constructor.
        state: the weights that go with them; they tell which of upstream's versions it was.
    """
    ours = dict(keywords)
    if ours.get("radial_type") == "chebyshev":
        ours["radial_type"] = "chebyshev_raw"
    if ours.get("distance_transform") == "Soft" and "radial_embedding.distance_transform.b" in state:
        ours["distance_transform"] = "SoftLegacy"
    ours.pop("use_reduced_cg", None)
    if class_name not in _DIPOLES and has_reduced_couplings(ours, state):
        ours["use_reduced_cg"] = True
    if class_name in _DIPOLES:
        ours["upstream_readout"] = True
    return ours


def has_reduced_couplings(keywords: Keywords, state: Mapping[str, torch.Tensor]) -> bool:
    """Whether the highest couplings of the first product are fewer than there are ways to couple."""
    prefix = "products.0.symmetric_contractions.contractions."
    orders, max_ell = keywords["correlation"], keywords["max_ell"]
    order = orders if isinstance(orders, int) else orders[0]
    for index, (_, ir) in enumerate(o3.Irreps(keywords["hidden_irreps"])):
        couplings = state.get(f"{prefix}{index}.U_matrix_{order}")
        if couplings is None or couplings.ndim < 2 or couplings.shape[-2] != (max_ell + 1) ** 2:
            continue  # the weights of another model, which loading them will say
        if couplings.shape[-1] < _ways_to_couple(max_ell, ir, order):
            return True
    return False


def _ways_to_couple(max_ell: int, ir_out: o3.Irrep, order: int) -> int:
    """Number of sequences of intermediate irreps that lead from ``order`` features to an output."""
    blocks = list(o3.Irreps.spherical_harmonics(max_ell))
    ways = Counter({ir: 1 for _, ir in blocks})
    for _ in range(order - 1):
        further: Counter[o3.Irrep] = Counter()
        for left, count in ways.items():
            for _, ir in blocks:
                for ir_mid in left * ir:
                    if order != 4 or ir_mid.p == (-1) ** ir_mid.l:
                        further[ir_mid] += count
        ways = further
    return ways[ir_out]
