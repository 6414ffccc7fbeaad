"""The loss of each stage and the outputs that are asked for."""

import logging

import pytest

from mace.modules import loss as losses
from mace.tools.losses import build_loss, requested_outputs, stage_two_text
from tests.tiny_run import FERMI, make_plan, write_frames

WEIGHTS = {
    "energy_weight": 2.0,
    "forces_weight": 3.0,
    "potential_weight": 4.0,
    "stress_weight": 5.0,
    "virials_weight": 6.0,
    "swa_energy_weight": 20.0,
    "swa_forces_weight": 30.0,
    "swa_potential_weight": 40.0,
    "swa_stress_weight": 50.0,
    "swa_virials_weight": 60.0,
    "huber_delta": 0.5,
}
STRESS_TABLE = {"error_table": "PerAtomRMSEstressvirials"}

# loss: class and terms in stage one, in stage two.
STAGES = {
    "weighted": ((losses.WeightedEnergyForcesLoss, "ef"), (losses.WeightedEnergyForcesLoss, "ef")),
    "stress": (
        (losses.WeightedEnergyForcesStressLoss, "efs"),
        (losses.WeightedEnergyForcesStressLoss, "efs"),
    ),
    "virials": (
        (losses.WeightedEnergyForcesVirialsLoss, "efv"),
        (losses.WeightedEnergyForcesVirialsLoss, "efv"),
    ),
    "huber": ((losses.WeightedHuberEnergyForcesStressLoss, "efs"), (losses.WeightedEnergyForcesLoss, "ef")),
    "universal": ((losses.UniversalLoss, "efs"), (losses.UniversalLoss, "efs")),
    "fermi_weighted": (
        (losses.FermiWeightedEnergyForcesLoss, "efp"),
        (losses.FermiWeightedEnergyForcesLoss, "efp"),
    ),
}
TERMS = {"e": "energy", "f": "forces", "s": "stress", "v": "virials", "p": "potential"}


@pytest.fixture
def folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 1)
    return tmp_path


def plan_of(folder, name, **flags):
    model = FERMI if name == "fermi_weighted" else {}
    return make_plan(folder, **{**model, **WEIGHTS, "loss": name, **flags})


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("stage_two", [False, True])
def test_class_and_weights_of_every_loss(folder, name, stage_two):
    plan = plan_of(folder, name, swa=True).loss
    cls, terms = STAGES[name][stage_two]
    loss = build_loss(plan, stage_two=stage_two)
    assert type(loss) is cls
    prefix = "swa_" if stage_two else ""
    for term in terms:
        weight = f"{TERMS[term]}_weight"
        assert getattr(loss, weight).item() == WEIGHTS[prefix + weight]
    if cls in (losses.UniversalLoss, losses.WeightedHuberEnergyForcesStressLoss):
        assert loss.huber_delta == 0.5


def test_forces_only(folder):
    loss = build_loss(plan_of(folder, "forces_only").loss)
    assert type(loss) is losses.WeightedForcesLoss and loss.forces_weight.item() == 3.0


def test_a3_stage_two_keeps_the_fermi_level(folder):
    loss = build_loss(plan_of(folder, "fermi_weighted", swa=True).loss, stage_two=True)
    assert loss.potential_weight.item() == 40.0


def test_loss_ef_has_weights_one_in_stage_one(folder):
    plan = make_plan(folder, loss="ef", swa=True, swa_energy_weight=20.0).loss
    first, second = (build_loss(plan, stage_two=stage_two) for stage_two in (False, True))
    assert type(first) is type(second) is losses.WeightedEnergyForcesLoss
    assert (first.energy_weight.item(), first.forces_weight.item()) == (1.0, 1.0)
    assert second.energy_weight.item() == 20.0


def test_the_text_of_stage_two(folder):
    plan = plan_of(folder, "fermi_weighted", swa=True, start_swa=2, swa_lr=0.001)
    assert stage_two_text(plan) == (
        "Stage Two (after 2 epochs) with loss function: FermiWeightedEnergyForcesLoss(energy_weight=20.000, "
        "forces_weight=30.000,potential_weight=40.000), with energy weight : 20.0, forces weight : 30.0, "
        "potential weight : 40.0 and learning rate : 0.001"
    )


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ({}, ["energy", "forces"]),
        (FERMI, ["energy", "potential", "forces"]),
        ({"loss": "stress"}, ["energy", "forces", "virials", "stress"]),
    ],
)
def test_requested_outputs(folder, caplog, flags, asked):
    caplog.set_level(logging.INFO)
    outputs = requested_outputs(make_plan(folder, **flags))
    assert list(outputs) == ["energy", "potential", "forces", "virials", "stress", "dipoles"]
    assert [name for name, wanted in outputs.items() if wanted] == asked
    text = f"During training the following quantities will be reported: {', '.join(asked)}"
    assert caplog.messages[-1] == text
