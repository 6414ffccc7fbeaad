"""From the plan to the loss of either stage, and to the outputs the model is asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable

from torch import nn

from mace.arguments.plans import LossPlan, TrainPlan
from mace.arguments.training_plan import LOSS_LABELS
from mace.modules.loss import (
    DipoleSingleLoss,
    FermiWeightedEnergyForcesLoss,
    FermiWeightedEnergyForcesLossEvidential,
    FermiWeightedEnergyForcesLossUncertainty,
    UniversalLoss,
    WeightedEnergyForcesDipoleLoss,
    WeightedEnergyForcesL1L2Loss,
    WeightedEnergyForcesLoss,
    WeightedEnergyForcesStressLoss,
    WeightedEnergyForcesVirialsLoss,
    WeightedForcesLoss,
    WeightedHuberEnergyForcesStressLoss,
)

_LOSSES: dict[str, Callable[..., nn.Module]] = {
    "ef": WeightedEnergyForcesLoss,
    "weighted": WeightedEnergyForcesLoss,
    "forces_only": WeightedForcesLoss,
    "l1l2energyforces": WeightedEnergyForcesL1L2Loss,
    "fermi_weighted": FermiWeightedEnergyForcesLoss,
    "fermi_weighted_uncertainty": FermiWeightedEnergyForcesLossUncertainty,
    "fermi_weighted_evidential": FermiWeightedEnergyForcesLossEvidential,
    "dipole": DipoleSingleLoss,
    "energy_forces_dipole": WeightedEnergyForcesDipoleLoss,
    "stress": WeightedEnergyForcesStressLoss,
    "virials": WeightedEnergyForcesVirialsLoss,
    "huber": WeightedHuberEnergyForcesStressLoss,
    "universal": UniversalLoss,
}
_HUBER_LOSSES = ("huber", "universal")


def build_loss(plan: LossPlan, *, stage_two: bool = False) -> nn.Module:
    """The loss of a stage.

    In stage two the Fermi, dipole, stress, virials and universal losses keep their form, every other one
    becomes the plain energy and force loss; the weights are those of stage two.
    """
    name = plan.stage_two_loss if stage_two else plan.loss
    arguments = {
        f"{label}_weight": weight for label, weight in _term_weights(plan, stage_two=stage_two).items()
    }
    if name in _HUBER_LOSSES:
        arguments["huber_delta"] = plan.huber_delta
    return _LOSSES[name](**arguments)


def stage_two_text(plan: TrainPlan) -> str:
    """What happens in stage two, for the log. The plan must have one."""
    assert plan.stages is not None
    weights = _term_weights(plan.loss, stage_two=True)
    return (
        f"Stage Two (after {plan.stages.start} epochs) with loss function: "
        f"{build_loss(plan.loss, stage_two=True)}, with "
        + ", ".join(f"{label} weight : {weight}" for label, weight in weights.items())
        + f" and learning rate : {plan.stages.lr}"
    )


def requested_outputs(plan: TrainPlan) -> dict[str, bool]:
    """Which outputs the model is asked for in training and evaluation; the log names them."""
    outputs = {
        "energy": plan.model.kind.has_energy,
        "potential": plan.model.compute_potential,
        "forces": plan.model.compute_forces,
        "virials": plan.model.compute_virials,
        "stress": plan.model.compute_stress,
        "dipoles": plan.model.kind.has_dipole,
    }
    asked = ", ".join(name for name, wanted in outputs.items() if wanted)
    logging.info(f"During training the following quantities will be reported: {asked}")
    return outputs


def _term_weights(plan: LossPlan, *, stage_two: bool) -> dict[str, float]:
    """The weights of the terms of a stage's loss, by label."""
    name, weights = (plan.stage_two_loss, plan.stage_two_weights) if stage_two else (plan.loss, plan.weights)
    return {label: getattr(weights, label) for label in LOSS_LABELS[name]}
