"""Checkpoint files: names, content, deletion, reading back, and what happens to files that do not fit."""

import math
import pickle

import pytest
import torch

from mace.arguments.plans import StagePlan
from mace.exceptions import InputError
from mace.tools import checkpoint as checkpoint_module
from mace.tools.checkpoint import CheckpointHandler, CheckpointIO, CheckpointState
from mace.tools.checkpoint_state import Progress, load_model_state
from mace.tools.optimization import LRScheduler, build_ema, build_optimizer, build_stage_two
from mace.tools.restart import continue_from, find_newest
from tests.toy_training import TAG, ToyModel, lines, optim_plan


def make_state(seed=0, stages=None, width=4, **optim):
    model, plan = ToyModel(width=width, seed=seed), optim_plan(**optim)
    optimizer = build_optimizer(model, plan)
    swa = build_stage_two(optimizer, torch.nn.Identity(), stages)
    return CheckpointState(
        model=model,
        optimizer=optimizer,
        lr_scheduler=LRScheduler(optimizer, plan),
        ema=build_ema(model, plan),
        swa_scheduler=None if swa is None else swa.scheduler,
        progress=Progress(),
    )


def train(state, steps=3):
    """Some steps downhill, so that weights, moments and average all differ."""
    for _ in range(steps):
        state.optimizer.zero_grad()
        sum(parameter.square().sum() for parameter in state.model.parameters()).backward()
        state.optimizer.step()
        if state.ema is not None:
            state.ema.update()
    state.lr_scheduler.step(metrics=1.0)
    return state


def handler(folder, **options):
    return CheckpointHandler(directory=folder, tag=TAG, **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def same_tensors(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


# Files


def test_names_are_upstreams(tmp_path):
    files = CheckpointIO(tmp_path, TAG, swa_start=3)
    assert files.path(2) == tmp_path / f"{TAG}_epoch-2.pt"
    assert files.path(3) == tmp_path / f"{TAG}_epoch-3_swa.pt"


def test_only_files_of_the_tag_count(tmp_path):
    for name in (f"{TAG}_epoch-2.pt", f"{TAG}_epoch-10_swa.pt", "x_run-1_epoch-3.pt", f"{TAG}.model", "y.pt"):
        (tmp_path / name).touch()
    files = CheckpointIO(tmp_path, TAG)
    assert [(info.epochs, info.swa) for info in files.files()] == [(2, False), (10, True)]
    assert [path.name for path in files.of_other_runs()] == ["x_run-1_epoch-3.pt"]


def test_report_5_the_old_file_goes_only_after_the_new_one_is_whole(tmp_path, monkeypatch):
    saver, state = handler(tmp_path), make_state()
    saver.save(state, 0)

    def disk_full(obj, path):
        assert names(tmp_path) == [f"{TAG}_epoch-0.pt"]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_module, "write_checkpoint", disk_full)
    with pytest.raises(OSError, match="No space"):
        saver.save(state, 1)
    assert names(tmp_path) == [f"{TAG}_epoch-0.pt"]


def test_an_improvement_replaces_the_one_before(tmp_path):
    saver, state = handler(tmp_path, swa_start=3), make_state()
    for epoch in range(3):
        saver.save(state, epoch)
    assert names(tmp_path) == [f"{TAG}_epoch-1.pt", f"{TAG}_epoch-2.pt"]  # should the newest be damaged
    saver.save(state, 3, keep_last=True)
    assert names(tmp_path) == [f"{TAG}_epoch-2.pt", f"{TAG}_epoch-3_swa.pt"]
    saver.save(state, 4)
    saver.io.drop_spare()
    assert names(tmp_path) == [f"{TAG}_epoch-2.pt", f"{TAG}_epoch-4_swa.pt"]


def test_a_state_that_is_no_improvement_takes_the_place_of_the_spare_one(tmp_path):
    saver, state = handler(tmp_path), make_state()
    for epoch in range(2):
        saver.save(state, epoch)
    saver.save_latest(state, 2)
    assert names(tmp_path) == [f"{TAG}_epoch-1.pt", f"{TAG}_latest.pt"]


def test_a_spare_file_that_cannot_be_deleted_is_a_warning(tmp_path, caplog):
    saver, state = handler(tmp_path), make_state()
    for epoch in range(2):
        saver.save(state, epoch)
    saver.io.path(0).unlink()
    saver.io.path(0).mkdir()  # root may delete files whatever their mode
    saver.save(state, 2)
    (warning,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert warning.startswith("An old checkpoint was not deleted") and "epoch-0.pt" in warning


def test_keep_deletes_nothing(tmp_path):
    saver, state = handler(tmp_path, keep=True), make_state()
    for epoch in range(3):
        saver.save(state, epoch)
    assert len(names(tmp_path)) == 3


def test_saving_an_epoch_again_keeps_its_file(tmp_path):
    saver, state = handler(tmp_path), make_state()
    for _ in range(2):
        saver.save(state, 0)
    assert names(tmp_path) == [f"{TAG}_epoch-0.pt"]


def test_the_folder_is_made_on_demand(tmp_path):
    handler(tmp_path / "a" / "b").save(make_state(), 0)
    assert names(tmp_path / "a" / "b") == [f"{TAG}_epoch-0.pt"]


# Content


def test_report_22_checkpoints_are_plain_and_have_upstreams_keys(tmp_path):
    state = train(make_state(ema=True, stages=StagePlan(start=1, lr=1e-4)))
    state.description = {"r_max": 4.0}
    path = handler(tmp_path).save(state, 0)
    content = torch.load(path, weights_only=True)
    assert {"model", "optimizer", "lr_scheduler"} < set(content)
    assert content["format_version"] == 2 and content["epoch"] == 0
    assert content["description"] == {"r_max": 4.0} and content["optimizer_class"] == "Adam"
    assert [group["name"] for group in content["optimizer"]["param_groups"]][0] == "embedding"


def test_report_17_both_sets_of_weights_are_saved_and_come_back(tmp_path):
    state = train(make_state(ema=True))
    raw = [parameter.detach().clone() for parameter in state.model.parameters()]
    average = [parameter.clone() for parameter in state.ema.shadow_params]
    assert not same_tensors(raw, average)
    saver = handler(tmp_path)
    path = saver.save(state, 0)
    assert same_tensors(raw, state.model.parameters())

    content = torch.load(path, weights_only=True)
    assert same_tensors(average, [content["model"][name] for name, _ in state.model.named_parameters()])
    fresh = make_state(seed=1, ema=True)
    assert saver.load(fresh, path) == 0
    assert same_tensors(raw, fresh.model.parameters())
    assert same_tensors(average, fresh.ema.shadow_params)
    assert fresh.ema.num_updates == state.ema.num_updates


def test_d4_everything_comes_back(tmp_path):
    stages = StagePlan(start=1, lr=1e-4)
    state = train(make_state(ema=True, stages=stages))
    state.swa_scheduler.step()
    state.progress = Progress(
        next_epoch=5, stage_two=True, lowest_loss=0.5, last_loss=0.6, num_unimproved=3, best={"one": "x"}
    )
    saver = handler(tmp_path)
    path = saver.save(state, 4)
    fresh = make_state(seed=1, ema=True, stages=stages)
    assert saver.load(fresh, path) == 4
    assert fresh.progress == state.progress
    assert fresh.lr_scheduler.state_dict() == state.lr_scheduler.state_dict()
    assert fresh.swa_scheduler._step_count == state.swa_scheduler._step_count
    for one, two in zip(
        state.optimizer.state_dict()["state"].values(),
        fresh.optimizer.state_dict()["state"].values(),
        strict=True,
    ):
        assert same_tensors(one.values(), two.values())
    # One more step of both gives the same weights.
    assert same_tensors(train(state, 1).model.parameters(), train(fresh, 1).model.parameters())


def test_d6_the_learning_rate_is_that_of_the_schedule(tmp_path):
    state = train(make_state())
    for group in state.optimizer.param_groups:
        group["lr"] = 1e-5
    saver = handler(tmp_path)
    fresh = make_state()
    saver.load(fresh, saver.save(state, 0))
    assert {group["lr"] for group in fresh.optimizer.param_groups} == {1e-5}


def test_stage_two_can_be_added_at_a_restart(tmp_path):
    saver = handler(tmp_path)
    path = saver.save(train(make_state()), 0)
    fresh = make_state(stages=StagePlan(start=1, lr=1e-4))
    saver.load(fresh, path)
    train(fresh, 1)
    fresh.swa_scheduler.step()
    assert {group["lr"] for group in fresh.optimizer.param_groups} == {1e-4}


# What does not fit


def test_d4_another_architecture_is_named(tmp_path):
    saver = handler(tmp_path)
    path = saver.save(make_state(width=4), 0)
    with pytest.raises(
        InputError, match=r"different shapes: .*\(4,\) in the checkpoint, \(6,\) in the model"
    ):
        saver.load(make_state(width=6), path)
    fresh = make_state()
    del fresh.model.potential_output_layer
    with pytest.raises(InputError, match="only in the checkpoint: potential_output_layer.bias"):
        load_model_state(fresh.model, torch.load(path, weights_only=True)["model"])
    fresh.model.extra = torch.nn.Linear(1, 1)
    with pytest.raises(InputError, match="only in the model: extra.bias, extra.weight"):
        load_model_state(fresh.model, torch.load(path, weights_only=True)["model"])


def test_another_schedule_is_named(tmp_path):
    saver = handler(tmp_path)
    path = saver.save(make_state(), 0)
    with pytest.raises(InputError, match="--scheduler=ReduceLROnPlateau"):
        saver.load(make_state(scheduler="ExponentialLR"), path)


@pytest.mark.parametrize("description", [{"r_max": 4.0}, None])
def test_a_restart_from_another_model_of_the_same_shapes_is_refused(tmp_path, description):
    state, saver = make_state(), handler(tmp_path)
    state.description = description
    saver.save(state, 0)
    other = make_state()
    other.model.r_max.fill_(5.0)
    other.description = {"r_max": 5.0}
    with pytest.raises(InputError, match=r"another model: r_max 4.0 in the checkpoint, 5.0 in this run"):
        continue_from(find_newest(saver.io), other, saver)


@pytest.mark.parametrize("saved", ["adam", "schedulefree"])
def test_another_optimiser_is_named(tmp_path, saved):
    saver = handler(tmp_path)
    path = saver.save(make_state(optimizer=saved), 0)
    with pytest.raises(InputError, match=f"this run has AdamW: restart with --optimizer={saved},"):
        saver.load(make_state(optimizer="adamw"), path)


IGNORED = {
    "lr": ({"lr": 0.02}, "lr 0.01 (not 0.02)"),
    "weight decay": ({"weight_decay": 1e-3}, "weight_decay 5e-07 (not 0.001)"),
    "plateau": (
        {"lr_factor": 0.9, "scheduler_patience": 5},
        "lr_factor 0.5 (not 0.9), scheduler_patience 50 (not 5)",
    ),
    "average": ({"ema_decay": 0.5}, "ema_decay 0.9 (not 0.5)"),
    "nothing": ({}, None),
}


@pytest.mark.parametrize("case", IGNORED)
def test_settings_that_a_restart_does_not_use_are_named_in_one_line(tmp_path, caplog, case):
    changes, text = IGNORED[case]
    saver = handler(tmp_path)
    path = saver.save(train(make_state(ema=True)), 0)
    fresh = make_state(ema=True, **changes)
    saver.load(fresh, path)
    expected = [f"The restart goes on with the settings of the checkpoint: {text}"]
    assert lines(caplog, 30) == (expected if text else [])
    assert fresh.ema.decay == 0.9 and fresh.lr_scheduler.factor == 0.5


def test_a_gamma_that_a_restart_does_not_use_is_named(tmp_path, caplog):
    saver = handler(tmp_path)
    path = saver.save(train(make_state(scheduler="ExponentialLR")), 0)
    saver.load(make_state(scheduler="ExponentialLR", lr_scheduler_gamma=0.5), path)
    assert "lr_scheduler_gamma 0.9 (not 0.5)" in lines(caplog, 30)[0]


def test_optimiser_groups_that_do_not_fit_are_named(tmp_path):
    saver = handler(tmp_path)
    path = saver.save(train(make_state()), 0)
    fresh = make_state()
    fresh.optimizer.param_groups[0]["params"].pop()
    with pytest.raises(InputError, match="optimiser groups embedding"):
        saver.load(fresh, path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not an archive", b"no archive at all", None])
def test_report_5_an_unreadable_checkpoint_is_skipped_with_a_warning(tmp_path, content, caplog):
    saver, state = handler(tmp_path, keep=True), make_state()
    saver.save(state, 0)
    newest = saver.save(state, 1)
    whole = newest.read_bytes()
    newest.write_bytes(whole[: len(whole) // 2] if content is None else content)
    found = find_newest(saver.io)
    assert (found.name, found.checkpoint["epoch"]) == (f"{TAG}_epoch-0.pt", 0)
    assert any(str(newest) in line for line in lines(caplog, 30))
    with pytest.raises(InputError, match=newest.name):
        saver.load(state, newest)


def test_damage_inside_a_whole_archive_is_noticed(tmp_path, caplog):
    saver, state = handler(tmp_path, keep=True), train(make_state())
    saver.save(state, 0)
    newest = saver.save(state, 1)
    content = bytearray(newest.read_bytes())
    weights = state.model.node_embedding.weight.detach().numpy().tobytes()
    content[content.index(weights) + 3] ^= 255
    newest.write_bytes(content)
    assert find_newest(saver.io).name == f"{TAG}_epoch-0.pt"


def test_files_of_which_none_can_be_read_are_an_error(tmp_path):
    (tmp_path / f"{TAG}_epoch-0.pt").write_bytes(b"")
    with pytest.raises(InputError, match=r"can be read \(toy_run-1_epoch-0.pt\)"):
        find_newest(handler(tmp_path).io)


def test_a_checkpoint_may_not_run_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return print, ("executed",)

    path = tmp_path / f"{TAG}_epoch-0.pt"
    torch.save({"model": Evil(), "optimizer": {}, "lr_scheduler": {}}, path, pickle_module=pickle)
    with pytest.raises(InputError, match="cannot be used: .* no file may run code"):
        handler(tmp_path).load(make_state(), path)


def test_something_else_is_not_a_checkpoint(tmp_path):
    torch.save({"weights": 1}, tmp_path / f"{TAG}_epoch-0.pt")
    with pytest.raises(InputError, match="does not hold model"):
        handler(tmp_path).load(make_state(), tmp_path / f"{TAG}_epoch-0.pt")


def test_a_newer_format_asks_for_an_upgrade(tmp_path, monkeypatch):
    saver = handler(tmp_path)
    path = saver.save(make_state(), 0)
    content = torch.load(path, weights_only=True)
    torch.save({**content, "format_version": 99}, path)
    with pytest.raises(InputError, match="upgrade"):
        find_newest(saver.io)


# Which one a restart uses


def test_report_8_the_latest_state_is_newer_than_the_best(tmp_path):
    saver, state = handler(tmp_path), make_state()
    saver.run_started = 100.0
    saver.save(state, 3)
    saver.save_latest(state, 7)
    saver.save_latest(state, 8)
    assert names(tmp_path) == [f"{TAG}_epoch-3.pt", f"{TAG}_latest.pt"]
    assert find_newest(saver.io).checkpoint["epoch"] == 8
    saver.save(state, 9)
    assert find_newest(saver.io).name == f"{TAG}_epoch-9.pt"


def test_report_7_a_later_run_counts_more_than_a_higher_epoch(tmp_path):
    old, new, state = handler(tmp_path, keep=True), handler(tmp_path, keep=True), make_state()
    old.run_started, new.run_started = 100.0, 200.0
    for epoch in range(8):
        old.save(state, epoch)
    new.save(state, 1)
    assert find_newest(new.io).name == f"{TAG}_epoch-1.pt"


@pytest.mark.parametrize("other", [None, "toy_run-2_epoch-4.pt", "toy_run-2_latest.pt"])
def test_report_6_without_a_checkpoint_the_log_says_so(tmp_path, other, caplog):
    if other is not None:
        (tmp_path / other).touch()
    with caplog.at_level("INFO"):
        assert find_newest(handler(tmp_path).io) is None
    (record,) = caplog.records
    assert record.levelname == ("INFO" if other is None else "WARNING")
    assert TAG in record.getMessage() and str(tmp_path) in record.getMessage()
    assert other is None or other in record.getMessage()


def test_a_restart_continues_after_the_epoch_of_the_file(tmp_path):
    saver, state = handler(tmp_path), make_state()
    saver.run_started = 100.0
    state.progress = Progress(next_epoch=4, lowest_loss=0.5, best={"one": f"{TAG}_epoch-2.pt"})
    saver.save(state, 2)
    saver.save_latest(state, 3)
    again, fresh = handler(tmp_path), make_state(seed=1)
    continue_from(find_newest(again.io), fresh, again)
    assert fresh.progress.next_epoch == 4
    assert again.run_started == 100.0
    assert again.io.old_path == tmp_path / f"{TAG}_epoch-2.pt"  # replaced by the next improvement


@pytest.mark.parametrize("ema", [False, True])
def test_a_checkpoint_of_upstream_with_three_keys_can_be_continued(tmp_path, ema, caplog):
    state = train(make_state())
    content = {
        "model": state.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "lr_scheduler": state.lr_scheduler.state_dict(),
    }
    fermi = [
        i for i, group in enumerate(content["optimizer"]["param_groups"]) if "potential" in group["name"]
    ]
    for i in fermi:  # upstream does not train it
        content["optimizer"]["param_groups"].pop(i)
    torch.save(content, tmp_path / f"{TAG}_epoch-6.pt")
    saver, fresh = handler(tmp_path), make_state(seed=1, ema=ema)
    continue_from(find_newest(saver.io), fresh, saver)
    assert fresh.progress.next_epoch == 7 and math.isinf(fresh.progress.lowest_loss)
    assert fresh.progress.best == {"one": f"{TAG}_epoch-6.pt"}
    assert saver.io.old_path is None  # somebody else's file is not replaced
    warnings = lines(caplog, 30)
    assert any("potential_output_layer" in line for line in warnings)
    assert any("no count of evaluations" in line for line in warnings)
    if ema:
        assert same_tensors(fresh.ema.shadow_params, state.model.parameters())
    train(fresh, 1)


def test_stage_two_needs_its_flag_at_a_restart(tmp_path):
    state = make_state(stages=StagePlan(start=1, lr=1e-4))
    state.progress.stage_two = True
    saver = handler(tmp_path, swa_start=1)
    saver.save(state, 2)
    with pytest.raises(InputError, match="--swa"):
        continue_from(find_newest(saver.io), make_state(), handler(tmp_path))


# Upstream's methods


def test_load_latest_takes_the_highest_epoch_of_the_stage(tmp_path, caplog):
    saver = handler(tmp_path, swa_start=3, keep=True)
    for epoch in range(3):
        saver.save(make_state(seed=epoch), epoch)
    fresh = make_state(seed=9)
    assert saver.load_latest(fresh) == 2
    assert same_tensors(fresh.model.parameters(), ToyModel(seed=2).parameters())
    assert saver.load_latest(fresh, swa=True) is None
    assert "No SWA checkpoint found" in lines(caplog, 30)[0]


def test_a_checkpoint_that_may_not_be_read_is_an_error_and_not_passed_over(tmp_path, monkeypatch):
    saver = handler(tmp_path)
    saver.save(make_state(), 0)

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(checkpoint_module, "is_zipfile", refused)  # root may read all, whatever the mode
    with pytest.raises(InputError, match=r"epoch-0.pt cannot be read: Permission denied"):
        find_newest(saver.io)
