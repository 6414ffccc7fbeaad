"""Parameter groups, optimisers, schedules, averages and stage two."""

import copy
import pickle
from argparse import Namespace

import pytest
import torch
from torch import nn

from mace.arguments.plans import StagePlan
from mace.exceptions import InputError
from mace.tools.optimization import (
    LRScheduler,
    build_ema,
    build_optimizer,
    build_stage_two,
    check_all_trained,
    parameter_groups,
)
from tests.toy_training import ToyModel, lines, optim_plan


def names_of(model, group):
    by_id = {id(parameter): name for name, parameter in model.named_parameters()}
    return [by_id[id(parameter)] for parameter in group["params"]]


def test_groups_have_upstreams_names_and_order():
    model = ToyModel()
    groups = {group["name"]: names_of(model, group) for group in parameter_groups(model, 1e-3)}
    assert list(groups) == [
        "embedding",
        "interactions_decay",
        "interactions_no_decay",
        "products",
        "readouts",
        "potential_output_layer",
    ]
    assert groups["interactions_decay"] == ["interactions.0.linear.weight"]
    assert "interactions.0.linear_up.weight" in groups["interactions_no_decay"]


def test_only_messages_and_products_decay():
    decays = {group["name"]: group["weight_decay"] for group in parameter_groups(ToyModel(), 1e-3)}
    assert {name for name, decay in decays.items() if decay} == {"interactions_decay", "products"}


def test_a1_every_trainable_parameter_is_in_exactly_one_group():
    model = ToyModel()
    model.extra = nn.ModuleDict({"deep": nn.Linear(2, 2)})
    model.scalar = nn.Parameter(torch.zeros(()))
    groups = parameter_groups(model, 0.0)
    held = [name for group in groups for name in names_of(model, group)]
    assert sorted(held) == sorted(name for name, _ in model.named_parameters())
    assert {"extra", "scalar"} <= {group["name"] for group in groups}


def test_report_10_frozen_parameters_are_listed_and_left_out(caplog):
    model = ToyModel()
    model.readouts.requires_grad_(False)
    with caplog.at_level("INFO"):
        groups = {group["name"]: group["params"] for group in parameter_groups(model, 0.0)}
    assert groups["readouts"] == []
    assert lines(caplog) == ["Frozen parameters, not trained: readouts.0.weight, readouts.0.bias"]


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(InputError, match="no trainable parameter"):
        parameter_groups(ToyModel().requires_grad_(False), 0.0)


def test_a1_an_optimizer_that_misses_or_doubles_a_parameter_is_refused():
    model = ToyModel()
    check_all_trained(model, build_optimizer(model, optim_plan()))
    with pytest.raises(InputError, match="potential_output_layer.weight"):
        check_all_trained(model, torch.optim.Adam(model.products.parameters()))


@pytest.mark.parametrize(("name", "cls"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_d19_adam_and_adamw_take_their_settings(name, cls):
    optimizer = build_optimizer(ToyModel(), optim_plan(optimizer=name, lr=0.02, beta=0.8, amsgrad=False))
    assert type(optimizer) is cls
    for group in optimizer.param_groups:
        assert (group["lr"], group["betas"], group["amsgrad"]) == (0.02, (0.8, 0.999), False)


def test_schedule_free_takes_its_own_betas():
    pytest.importorskip("schedulefree")
    plan = optim_plan(optimizer="schedulefree", beta1_schedulefree=0.95)
    optimizer = build_optimizer(ToyModel(), plan)
    assert optimizer.param_groups[0]["betas"] == (0.95, 0.98)


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(InputError, match="sgd"):
        build_optimizer(ToyModel(), optim_plan(optimizer="sgd"))


def test_plateau_schedule_steps_on_losses():
    optimizer = build_optimizer(ToyModel(), optim_plan())
    schedule = LRScheduler(optimizer, optim_plan(scheduler_patience=1))
    assert schedule.needs_metrics
    for loss in (1.0, 2.0, 2.0):
        schedule.step(metrics=loss)
    assert {group["lr"] for group in optimizer.param_groups} == {0.005}


def test_exponential_schedule_and_upstreams_arguments():
    optimizer = build_optimizer(ToyModel(), optim_plan())
    args = Namespace(
        optimizer="adam",
        scheduler="ExponentialLR",
        lr_factor=0.5,
        scheduler_patience=1,
        lr_scheduler_gamma=0.5,
    )
    schedule = LRScheduler(optimizer, args)
    optimizer.step()
    schedule.step(metrics=3.0)
    assert not schedule.needs_metrics
    assert schedule.get_last_lr() == [0.005] * 6  # forwarded to torch's schedule


def test_a_schedule_free_optimizer_has_no_schedule():
    optimizer = build_optimizer(ToyModel(), optim_plan())
    schedule = LRScheduler(optimizer, optim_plan(optimizer="schedulefree", scheduler_patience=0))
    for _ in range(5):
        schedule.step(metrics=1.0)
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_an_unknown_schedule_is_refused():
    with pytest.raises(InputError, match="StepLR"):
        LRScheduler(build_optimizer(ToyModel(), optim_plan()), optim_plan(scheduler="StepLR"))


def test_a_schedule_can_be_copied_and_pickled():
    schedule = LRScheduler(build_optimizer(ToyModel(), optim_plan()), optim_plan())
    schedule.step(metrics=1.0)
    for twin in (copy.deepcopy(schedule), pickle.loads(pickle.dumps(schedule))):
        assert twin.state_dict()["best"] == 1.0


def test_average_only_if_asked_for():
    model = ToyModel()
    assert build_ema(model, optim_plan()) is None
    ema = build_ema(model, optim_plan(ema=True, ema_decay=0.7))
    assert ema.decay == 0.7 and len(ema.shadow_params) == len(list(model.parameters()))


def test_d9_stage_two_has_no_averaged_copy_and_takes_its_learning_rate_at_once():
    optimizer = build_optimizer(ToyModel(), optim_plan())
    loss_fn = nn.Identity()
    assert build_stage_two(optimizer, loss_fn, None) is None
    stage = build_stage_two(optimizer, loss_fn, StagePlan(start=2, lr=1e-4))
    assert (stage.model, stage.start, stage.loss_fn) == (None, 2, loss_fn)
    assert optimizer.param_groups[0]["lr"] == 0.01
    optimizer.step()
    for _ in range(2):
        stage.scheduler.step()
        assert [group["lr"] for group in optimizer.param_groups] == [1e-4] * 6
