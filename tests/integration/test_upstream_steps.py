"""The first training steps of a plain model are those of mace-torch: same weights, batches and settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mace.data import AtomicData, load_from_xyz
from mace.modules.loss import WeightedEnergyForcesLoss
from mace.modules.models import ScaleShiftMACE
from mace.tools import AtomicNumberTable, default_dtype
from mace.tools.optimization import build_ema, build_optimizer
from mace.tools.torch_geometric import DataLoader
from mace.tools.train import take_step
from tests.data import gen_upstream_steps as settings
from tests.data.make_tiny import main as make_tiny
from tests.tolerances import relative
from tests.toy_training import optim_plan

REFERENCE = Path(settings.__file__).with_name("upstream_steps.json")


def build_model():
    with default_dtype("float64"):
        model = ScaleShiftMACE(
            **settings.MODEL,
            hidden_irreps=settings.HIDDEN_IRREPS,
            MLP_irreps=settings.MLP_IRREPS,
            interaction_cls=settings.INTERACTION,
            interaction_cls_first=settings.INTERACTION,
            gate=torch.nn.functional.silu,
        )
    settings.fill(model)
    return model


@pytest.mark.upstream
def test_the_first_fifty_step_losses_are_upstreams(tmp_path):
    expected = json.loads(REFERENCE.read_text())["losses"]
    options = dict(settings.FRAMES)
    make_tiny(tmp_path / "frames.xyz", options.pop("count"), options.pop("seed"), **options)
    _, configurations = load_from_xyz(tmp_path / "frames.xyz", None)
    table = AtomicNumberTable(settings.MODEL["atomic_numbers"])
    graphs = [
        AtomicData.from_config(each, table, settings.MODEL["r_max"], dtype=torch.float64)
        for each in configurations
    ]
    model = build_model()
    plan = optim_plan(
        lr=settings.LEARNING_RATE,
        weight_decay=settings.WEIGHT_DECAY,
        ema=True,
        ema_decay=settings.EMA_DECAY,
    )
    optimizer, ema = build_optimizer(model, plan), build_ema(model, plan)
    loss_fn = WeightedEnergyForcesLoss(settings.ENERGY_WEIGHT, settings.FORCES_WEIGHT)
    losses = []
    while len(losses) < settings.STEPS:
        for batch in DataLoader(graphs, batch_size=settings.BATCH_SIZE):
            loss, _ = take_step(
                model,
                loss_fn,
                batch,
                optimizer,
                ema,
                settings.OUTPUTS,
                settings.MAX_GRADIENT,
                torch.device("cpu"),
            )
            losses.append(loss.item())
    assert losses[: settings.STEPS] == pytest.approx(expected, rel=relative("training steps"))
