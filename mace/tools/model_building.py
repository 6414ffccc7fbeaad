"""From the plan and the statistics to a model."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from torch import nn

from mace.arguments.plans import ModelPlan
from mace.modules import AtomicDipolesMACE, BOTNet, EnergyDipolesMACE, ScaleShiftBOTNet, ScaleShiftMACE
from mace.tools.statistics import Statistics
from mace.tools.torch_tools import default_dtype

# Gain of the first layer of the readouts of graphs: of the Fermi level and of uncertainties. Their input, the
# mean over atoms of a new trunk's scalars, is small (root mean square 0.005 on tests/data): with torch's
# start the layer's biases drown it. The global state, where there is one, is of order 1 and needs no gain.
READOUT_GAIN = 100.0
_READOUTS = (
    "potential_output_layer",
    "potential_logvar_output_layer",
    "energy_logvar_output_layer",
    "potential_evidential_output_layer",
    "energy_evidential_output_layer",
)
_FERMI_OPTIONS: dict[str, dict[str, bool]] = {
    "FermiMACE": {"electron_input": True},
    "FermiMACE_2": {"use_global_state": True},
    "FermiMACE_uncertainty": {"electron_input": True, "pred_uncertainty": True},
    "FermiMACE_evidential": {"electron_input": True, "pred_evidential": True},
}
# Models that are not ScaleShiftMACE: their class, and which keywords of that one it lacks.
_DIPOLES_LACK = ("pair_repulsion", "distance_transform", "use_reduced_cg", "heads")
_BOTNET_LACKS = ("correlation", "radial_type", *_DIPOLES_LACK)
_OTHER_CLASSES: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "BOTNet": (BOTNet, _BOTNET_LACKS),
    "ScaleShiftBOTNet": (ScaleShiftBOTNet, _BOTNET_LACKS),
    "AtomicDipolesMACE": (AtomicDipolesMACE, _DIPOLES_LACK),
    "EnergyDipolesMACE": (EnergyDipolesMACE, (*_DIPOLES_LACK, "radial_type")),
}


def model_class_and_config(plan: ModelPlan, statistics: Statistics) -> tuple[type[nn.Module], dict[str, Any]]:
    """The class behind a model name and the keywords of its constructor, all of them plain JSON values.

    ``MACE``, ``ScaleShiftMACE`` and the Fermi models are one class: ``MACE`` has no shift, ``ScaleShiftMACE``
    shifts by the mean interaction energy per atom, the Fermi models have the electron number as input and the
    Fermi level as output. The others are classes of their own.
    """
    cls, lacking = _OTHER_CLASSES.get(plan.model, (ScaleShiftMACE, ()))
    config = {key: value for key, value in _architecture(plan, statistics).items() if key not in lacking}
    if not plan.kind.has_energy:
        config.update(atomic_energies=None)
    if plan.kind.has_scale:
        shift = statistics.mean if plan.kind.has_shift else np.zeros_like(statistics.mean)
        config.update(atomic_inter_scale=statistics.std.tolist(), atomic_inter_shift=shift.tolist())
    if plan.has_potential:
        config.update(potential_output=True, **_FERMI_OPTIONS[plan.model])
        config.update(mean_electron=statistics.mean_electron, mean_potential=statistics.mean_potential)
    return cls, config


def build_model(cls: type[nn.Module], config: dict[str, Any], dtype: torch.dtype | str) -> nn.Module:
    """Build a model to train, floating-point tensors of ``dtype``; torch's default dtype is restored."""
    with default_dtype(dtype):
        model = cls(**config)
    for name, layers in model.named_children():
        if name in _READOUTS:
            _start_readout(layers, 1.0 if config.get("use_global_state") else READOUT_GAIN)
    return model


@torch.no_grad()
def _start_readout(layers: nn.Sequential, gain: float) -> None:
    """Start at exactly the last bias, for the Fermi level its mean, with a first layer that sees its input.

    The random last layer of torch's start would send the large error of the first steps into the trunk.
    """
    layers[0].weight.mul_(gain)
    layers[-1].weight.zero_()


def _architecture(plan: ModelPlan, statistics: Statistics) -> dict[str, Any]:
    """The arguments that every model of the MACE family takes."""
    return {
        "r_max": plan.r_max,
        "num_bessel": plan.num_radial_basis,
        "num_polynomial_cutoff": plan.num_cutoff_basis,
        "max_ell": plan.max_ell,
        "interaction_cls": plan.interaction,
        "interaction_cls_first": plan.interaction_first,
        "num_interactions": plan.num_interactions,
        "num_elements": len(statistics.z_table),
        "hidden_irreps": plan.hidden_irreps,
        "MLP_irreps": plan.MLP_irreps,
        "atomic_energies": statistics.atomic_energies.tolist(),
        "avg_num_neighbors": statistics.avg_num_neighbors,
        "atomic_numbers": list(statistics.z_table.zs),
        "correlation": plan.correlation,
        "gate": plan.gate,
        "use_reduced_cg": plan.use_reduced_cg,
        "pair_repulsion": plan.pair_repulsion,
        "distance_transform": plan.distance_transform,
        "radial_MLP": list(plan.radial_MLP),
        "radial_type": plan.radial_type,
        "heads": list(statistics.heads),
    }


def log_model(plan: ModelPlan) -> None:
    """Say in the log what is built."""
    logging.info("===========MODEL DETAILS===========")
    if plan.scaling == "no_scaling":
        logging.info("No scaling selected")
    logging.info("Building model")
    logging.info(
        f"Message passing with {plan.num_channels} channels and max_L={plan.max_L} ({plan.hidden_irreps})"
    )
    logging.info(
        f"{plan.num_interactions} layers, each with correlation order: {plan.correlation} (body order: "
        f"{plan.correlation + 1}) and "
        f"spherical harmonics up to: l={plan.max_ell}"
    )
    logging.info(f"{plan.num_radial_basis} radial and {plan.num_cutoff_basis} basis functions")
    logging.info(
        f"Radial cutoff: {plan.r_max} A (total receptive field for each atom: "
        f"{plan.r_max * plan.num_interactions} A)"
    )
    logging.info(f"Distance transform for radial basis functions: {plan.distance_transform}")
    logging.info(f"Hidden irreps: {plan.hidden_irreps}")
