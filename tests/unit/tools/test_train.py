"""The training loop: order of things, stage two, patience, restarts, and numbers that are not finite."""

import inspect
import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from mace.arguments.plans import StagePlan
from mace.exceptions import InputError, RunError
from mace.modules.loss import FermiWeightedEnergyForcesLoss, WeightedEnergyForcesLoss
from mace.tools import MetricsLogger
from mace.tools.train import take_step, train
from mace.tools.training_step import parameters_without_gradient
from tests.toy_training import (
    OUTPUTS,
    TAG,
    ToyModel,
    fit,
    frames,
    graphs,
    lines,
    loader,
    make_trainer,
    optim_plan,
)

CPU = torch.device("cpu")


def saved(folder):
    return sorted(path.name for path in folder.iterdir())


def epochs(records, mode="eval"):
    return [record["epoch"] for record in records if record["mode"] == mode]


class Scripted(nn.Module):
    """A loss that is real while training; in evaluations it is the next of given values, then the last."""

    def __init__(self, *values):
        super().__init__()
        self.values, self.real = list(values), FermiWeightedEnergyForcesLoss(1.0, 10.0, 1.0)

    def forward(self, ref, pred):
        if pred["forces"].requires_grad:
            return self.real(ref, pred)
        value = self.values.pop(0) if len(self.values) > 1 else self.values[0]
        return torch.tensor(value, dtype=torch.float64)


def scripted(folder, *values, **options):
    """A trainer whose validation losses are given, the first one for the evaluation before training."""
    return make_trainer(folder, loss_fn=Scripted(*values), **options)


def fit_scripted(trainer):
    return fit(trainer, train=4, valid=4)  # one batch an evaluation


# Steps


def test_a2_a_step_is_zero_grad_clip_step_and_average():
    model, twin = ToyModel(), ToyModel()
    plan = optim_plan(ema=True, weight_decay=0.0)
    trainer = make_trainer("unused", model=model, optim=plan)
    batch = next(iter(loader(frames(4))))
    loss_fn = trainer.loss_fn
    expected = twin.state_dict()
    reference = torch.optim.Adam(twin.parameters(), lr=0.01, amsgrad=True)
    for _ in range(3):
        loss, record = take_step(model, loss_fn, batch, trainer.optimizer, trainer.ema, OUTPUTS, 0.1, CPU)
        reference.zero_grad()
        expected_loss = loss_fn(ref=batch, pred=twin(batch.to_dict(), training=True))
        expected_loss.backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
        reference.step()
        assert loss.item() == record["loss"] == pytest.approx(expected_loss.item(), rel=1e-13)
        assert record["time"] > 0
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=0)
    assert trainer.ema.num_updates == 3


def test_parameters_without_gradient_are_found():
    model, batch = ToyModel(), next(iter(loader(frames(2))))
    model.idle = nn.Linear(1, 1)
    model.empty = nn.Parameter(torch.zeros(0))
    model.products.requires_grad_(False)
    fermi, plain = FermiWeightedEnergyForcesLoss(1.0, 1.0, 1.0), WeightedEnergyForcesLoss(1.0, 1.0)
    idle = ["idle.weight", "idle.bias"]
    readout = ["potential_output_layer.weight", "potential_output_layer.bias"]
    assert parameters_without_gradient(model, fermi, batch, OUTPUTS, CPU) == idle
    assert parameters_without_gradient(model, plain, batch, OUTPUTS, CPU) == readout + idle
    assert all(parameter.grad is None for parameter in model.parameters())


def test_report_11_parameters_that_the_loss_ignores_are_refused_at_the_start(tmp_path):
    trainer = make_trainer(tmp_path, loss_fn=WeightedEnergyForcesLoss(1.0, 1.0))
    with pytest.raises(InputError, match="loss does not depend on potential_output_layer.bias"):
        fit(trainer)
    assert trainer.metrics_logger == [] and saved(tmp_path) == []


@pytest.mark.parametrize(("recompute", "expected"), [(False, 1), (True, 3)])
def test_the_first_look_at_the_gradients_needs_no_more_memory_than_a_step(tmp_path, recompute, expected):
    trainer, calls = make_trainer(tmp_path), []
    trainer.steps = replace(trainer.steps, recompute=recompute)
    layer = trainer.model.products[0]
    plain = layer.forward
    layer.forward = lambda x: calls.append(1) or plain(x)
    trainer._check_start(loader(frames(4)))
    assert len(calls) == expected  # again for the forces, and for their gradients


def test_a1_every_parameter_moves(tmp_path):
    before = ToyModel().state_dict()
    trainer = make_trainer(tmp_path)
    fit(trainer)
    for name, parameter in trainer.model.named_parameters():
        assert not torch.equal(before[name], parameter), name


class NanGradient(nn.Module):
    """Finite, but the derivative of a square root at 0 times 0 is nan."""

    def forward(self, ref, pred):
        return pred["energy"].square().mean() + (0 * pred["potential"] * pred["forces"].sum()).sum().sqrt()


def test_d2_a_loss_that_is_not_finite_stops_with_one_clear_error(tmp_path):
    data = frames(12)
    data[9].energy = math.nan
    trainer = make_trainer(tmp_path)
    with pytest.raises(InputError, match="the training loss is nan in epoch 0, step 2"):
        trainer.fit(loader(data), {"Default": loader(frames(4, 2))})
    assert all(parameter.isfinite().all() for parameter in trainer.model.parameters())


def test_d2_a_gradient_that_is_not_finite_stops_too(tmp_path):
    trainer = make_trainer(tmp_path, loss_fn=NanGradient())
    with pytest.raises(InputError, match="the training gradient norm is nan in epoch 0, step 0"):
        fit(trainer)
    assert all(parameter.isfinite().all() for parameter in trainer.model.parameters())


# Evaluations, records, the log


def test_records_and_lines_of_a_run(tmp_path, caplog):
    trainer = make_trainer(tmp_path)
    with caplog.at_level("INFO"):
        records = fit(trainer, train=12, batch_size=4)
    assert epochs(records) == [None, 0, 1, 2]
    assert epochs(records, "opt") == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    step, evaluation = records[1], records[4]
    assert list(step) == ["loss", "time", "mode", "epoch"]
    assert evaluation["head"] == "Default" and {"loss", "rmse_f", "rmse_p", "time"} < set(evaluation)
    texts = lines(caplog)
    assert texts[:5] == [
        "Using gradient clipping with tolerance=10.000",
        "",
        "===========TRAINING===========",
        "Started training, reporting errors on validation set",
        "Loss metrics on validation set",
    ]
    assert texts[5].startswith("Initial: head: Default, loss=") and texts[6].startswith("Epoch 0: head:")
    assert texts[-1] == "Training complete"


def test_records_are_json(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.metrics_logger = MetricsLogger(tmp_path, "toy_run-1_train")
    fit(trainer)
    rows = [json.loads(line) for line in (tmp_path / "toy_run-1_train.txt").read_text().splitlines()]
    assert [row["mode"] for row in rows].count("eval") == 4


def test_a_record_that_cannot_be_written_ends_the_run_after_the_epoch(tmp_path):
    trainer = make_trainer(tmp_path)

    class Full:
        def log(self, d):
            if d["mode"] == "opt":
                raise RunError("cannot write results.txt: No space left on device")

    trainer.metrics_logger = Full()
    with pytest.raises(RunError, match="^cannot write results.txt"):
        trainer.fit(loader(frames(4)), {"Default": loader(frames(2))})
    assert trainer.progress.next_epoch == 1 and trainer.checkpoints.io.files()


def test_every_head_is_evaluated_and_the_last_decides(tmp_path, caplog):
    trainer = make_trainer(tmp_path)
    seen = []
    trainer.on_evaluation = seen.append
    heads = {"a": loader(frames(2, 3)), "b": loader(frames(3, 4))}
    with caplog.at_level("INFO"):
        trainer.fit(loader(frames(4)), heads)
    assert [list(metrics) for metrics in seen] == [["a", "b"]] * 4
    assert [metrics["b"]["epoch"] for metrics in seen] == [None, 0, 1, 2]
    assert trainer.progress.last_loss == seen[-1]["b"]["loss"]
    assert sum("head: a" in text for text in lines(caplog)) == 4


def test_evaluations_use_the_averaged_weights(tmp_path):
    trainer = make_trainer(tmp_path, optim=optim_plan(ema=True, ema_decay=0.999))
    raw = make_trainer(tmp_path)
    averaged, plain = fit(trainer).losses("eval"), fit(raw).losses("eval")
    assert averaged[0] == plain[0] and averaged[1] != plain[1]
    assert trainer.metrics_logger.losses() == raw.metrics_logger.losses()


def test_d7_the_last_epoch_is_always_evaluated(tmp_path):
    records = fit(make_trainer(tmp_path, eval_interval=3, max_num_epochs=6))
    assert epochs(records) == [None, 0, 3, 5]


def test_d7_the_plateau_schedule_sees_each_evaluation_once(tmp_path):
    trainer = make_trainer(tmp_path, eval_interval=3, max_num_epochs=7)
    seen = []
    trainer.lr_scheduler.step = lambda metrics, epoch=None: seen.append(metrics)
    losses = fit(trainer).losses("eval")
    assert seen == [losses[1], losses[2]]  # after epochs 0 and 3; nothing is trained after the last one


def test_other_schedules_step_every_epoch(tmp_path):
    plan = optim_plan(scheduler="ExponentialLR", lr_scheduler_gamma=0.5)
    trainer = make_trainer(tmp_path, optim=plan, eval_interval=3, max_num_epochs=4)
    fit(trainer)
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * 0.5**3)


def test_the_sampler_is_told_the_epoch(tmp_path):
    class Sampler:
        epochs = []

        def set_epoch(self, epoch):
            self.epochs.append(epoch)

    trainer = make_trainer(tmp_path)
    trainer.fit(loader(frames(4)), {"Default": loader(frames(2, 2))}, Sampler())
    assert Sampler.epochs == [0, 1, 2]


def test_no_progress_bar_in_a_file(tmp_path, capsys):
    fit(make_trainer(tmp_path, progress=None))
    assert capsys.readouterr().err == ""
    fit(make_trainer(tmp_path, progress=True))
    assert "Epoch 0" in capsys.readouterr().err


def test_d10_a_training_set_without_a_batch_is_refused(tmp_path):
    trainer = make_trainer(tmp_path)
    data = loader(frames(3), batch_size=10)
    empty = type(data)(data.dataset, batch_size=10, drop_last=True)
    with pytest.raises(InputError, match="3 configurations do not fill one batch of 10"):
        trainer.fit(empty, {"Default": data})


# Checkpoints


def test_the_best_of_the_run_is_loaded_at_the_end(tmp_path):
    trainer = scripted(tmp_path, 9.0, 3.0, 1.0, 2.0, max_num_epochs=3)
    fit_scripted(trainer)
    last = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    assert trainer.load_best() == 1
    assert any(not torch.equal(value, last[name]) for name, value in trainer.model.state_dict().items())
    assert saved(tmp_path) == [f"{TAG}_epoch-1.pt", f"{TAG}_latest.pt"]


def test_d3_with_all_checkpoints_kept_the_best_is_loaded_not_the_last(tmp_path):
    trainer = scripted(tmp_path, 9.0, 3.0, 1.0, 2.0, max_num_epochs=3, save_all_checkpoints=True)
    fit_scripted(trainer)
    assert saved(tmp_path) == [f"{TAG}_epoch-{epoch}.pt" for epoch in range(3)]
    assert trainer.load_best() == 1


def test_d2_a_validation_loss_that_is_nan_is_no_improvement(tmp_path):
    trainer = scripted(tmp_path, 9.0, 3.0, math.nan, 4.0, 2.0, max_num_epochs=4)
    fit_scripted(trainer)
    assert trainer.progress.lowest_loss == 2.0 and trainer.load_best() == 3
    trainer = scripted(tmp_path / "n", math.nan, max_num_epochs=4, patience=2)
    records = fit_scripted(trainer)
    assert epochs(records) == [None, 0, 1]  # counted by patience
    assert trainer.load_best() is None


def test_report_1_patience_counts_evaluations_without_improvement(tmp_path, caplog):
    trainer = scripted(tmp_path, 9.0, 5.0, 5.0, 5.0, 4.0, max_num_epochs=9, patience=2)
    with caplog.at_level("INFO"):
        records = fit_scripted(trainer)
    assert epochs(records) == [None, 0, 1, 2]
    assert "Stopping optimization after 2 epochs without improvement" in lines(caplog)


def test_report_8_the_state_is_renewed_every_epoch_without_improvement(tmp_path):
    trainer = scripted(tmp_path, 1.0, 1.0, 2.0, max_num_epochs=5, eval_interval=2)
    fit_scripted(trainer)
    assert saved(tmp_path) == [f"{TAG}_epoch-0.pt", f"{TAG}_latest.pt"]
    assert torch.load(tmp_path / f"{TAG}_latest.pt", weights_only=True)["epoch"] == 4


def test_report_7_files_of_an_earlier_run_are_ignored_with_one_warning(tmp_path, caplog):
    fit(make_trainer(tmp_path, max_num_epochs=8))
    caplog.clear()
    clean = make_trainer(tmp_path / "clean", model=ToyModel(seed=5), max_num_epochs=2)
    fit(clean)
    assert lines(caplog, 30) == []
    again = make_trainer(tmp_path, model=ToyModel(seed=5), max_num_epochs=2)
    fit(again)
    (warning,) = lines(caplog, 30)
    assert f"{TAG}_epoch-7.pt" in warning and "does not use them" in warning
    assert again.load_best() == clean.load_best() == 1
    for name, value in clean.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])
    assert f"{TAG}_epoch-7.pt" in saved(tmp_path)


# Stage two


def test_a3_d9_stage_two_has_its_loss_and_learning_rate(tmp_path, caplog):
    stages = StagePlan(start=2, lr=1e-4)
    trainer = make_trainer(tmp_path, stages=stages, max_num_epochs=4)
    with caplog.at_level("INFO"):
        records = fit(trainer)
    plain = fit(make_trainer(tmp_path / "one", max_num_epochs=4))
    assert records.losses()[:6] == plain.losses()[:6] != records.losses()[6:]
    assert lines(caplog).count("Changing loss based on Stage Two Weights") == 1
    assert {group["lr"] for group in trainer.optimizer.param_groups} == {1e-4}
    assert trainer.current_loss is trainer.swa.loss_fn
    assert [name for name in saved(tmp_path) if name.endswith("_swa.pt")] and f"{TAG}_epoch-1.pt" in saved(
        tmp_path
    )
    assert trainer.load_best(stage_two=False) == 1
    assert trainer.load_best(stage_two=True) in (2, 3)


@pytest.mark.parametrize("start", [7, 3])  # 3: the next epoch would have been the first of stage two anyway
def test_patience_jumps_to_stage_two(tmp_path, caplog, start):
    trainer = scripted(
        tmp_path, 1.0, 1.0, 2.0, stages=StagePlan(start=start, lr=1e-4), max_num_epochs=start + 2, patience=2
    )
    with caplog.at_level("INFO"):
        records = fit_scripted(trainer)
    assert epochs(records) == [None, 0, 1, 2, start, start + 1]
    assert "Stopping optimization after 2 epochs without improvement and starting Stage Two" in lines(caplog)


def test_d8_report_4_a_stage_without_checkpoint_is_skipped_with_one_line(tmp_path, caplog):
    trainer = make_trainer(tmp_path, stages=StagePlan(start=5, lr=1e-4), max_num_epochs=3)
    fit(trainer)
    assert trainer.load_best() == 2 and trainer.load_best(stage_two=True) is None
    assert lines(caplog, 30) == [
        "There is no checkpoint of stage two: it was to begin with epoch 5, but training ended after 3 epochs"
    ]


def test_report_4_stage_two_from_the_first_epoch(tmp_path, caplog):
    trainer = make_trainer(tmp_path, stages=StagePlan(start=0, lr=1e-4))
    fit(trainer)
    assert {group["lr"] for group in trainer.optimizer.param_groups} == {1e-4}
    assert trainer.load_best() is None and trainer.load_best(stage_two=True) is not None
    assert lines(caplog, 30) == ["There is no checkpoint of stage one: stage two began with epoch 0"]


def test_report_4_stage_two_with_rare_evaluations(tmp_path):
    trainer = make_trainer(tmp_path, stages=StagePlan(start=3, lr=1e-4), max_num_epochs=4, eval_interval=2)
    fit(trainer)
    assert trainer.load_best(stage_two=True) == 3


# Restarts


SETTINGS = {
    "plain": {},
    "average": {"optim": optim_plan(ema=True)},
    "exponential": {"optim": optim_plan(scheduler="ExponentialLR")},
    "stage two": {"stages": StagePlan(start=2, lr=1e-3), "optim": optim_plan(ema=True)},
    "rare evaluations": {"eval_interval": 4, "optim": optim_plan(scheduler_patience=0)},
    "schedulefree": {"optim": optim_plan(optimizer="schedulefree")},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("stop", [1, 3])
def test_d4_reports_6_17_a_restart_goes_on_as_if_nothing_had_happened(tmp_path, setting, stop):
    options = SETTINGS[setting]
    whole = make_trainer(tmp_path / "whole", max_num_epochs=6, **options)
    expected = fit(whole)
    # The stop must not be a planned last epoch, which is evaluated in any case.
    first = make_trainer(tmp_path / "parts", max_num_epochs=6, **options)
    interrupt(first, after=stop)
    second = make_trainer(tmp_path / "parts", model=ToyModel(seed=9), max_num_epochs=6, **options)
    second.restart()
    records = fit(second)
    before = first.metrics_logger.losses()
    assert before + records.losses() == pytest.approx(expected.losses(), rel=1e-9)
    assert epochs(records, "opt")[0] == stop
    assert records.losses("eval")[1:] == pytest.approx(
        expected.losses("eval")[len(expected.losses("eval")) - len(records.losses("eval")) + 1 :], rel=1e-9
    )
    assert second.progress.lowest_loss == pytest.approx(whole.progress.lowest_loss, rel=1e-9)
    assert second.progress.best == whole.progress.best


def test_report_5_a_damaged_newest_improvement_is_passed_over(tmp_path, caplog):
    whole = make_trainer(tmp_path / "whole", max_num_epochs=6)
    expected = fit(whole)
    folder = tmp_path / "parts"
    interrupt(make_trainer(folder, max_num_epochs=6), after=3)
    assert saved(folder) == [f"{TAG}_epoch-1.pt", f"{TAG}_epoch-2.pt"]  # each epoch was an improvement
    newest = folder / f"{TAG}_epoch-2.pt"
    newest.write_bytes(newest.read_bytes()[:1000])
    second = make_trainer(folder, model=ToyModel(seed=9), max_num_epochs=6)
    second.restart()
    records = fit(second)
    assert epochs(records, "opt")[0] == 2
    assert records.losses() == pytest.approx(expected.losses()[-len(records.losses()) :], rel=1e-9)
    assert "A checkpoint is skipped" in lines(caplog, 30)[0]
    assert saved(folder) == saved(tmp_path / "whole") == [f"{TAG}_epoch-5.pt"]


def test_report_5_a_best_state_that_is_lost_is_replaced_by_the_next_one(tmp_path, caplog):
    fit_scripted(scripted(tmp_path, 9.0, 1.0, 2.0, max_num_epochs=2))
    assert saved(tmp_path) == [f"{TAG}_epoch-0.pt", f"{TAG}_latest.pt"]
    (tmp_path / f"{TAG}_epoch-0.pt").write_bytes(b"")
    again = scripted(tmp_path, 9.0, 3.0, 4.0, max_num_epochs=4)
    again.restart()
    assert "The best state of stage one was in toy_run-1_epoch-0.pt" in lines(caplog, 30)[-1]
    fit_scripted(again)
    assert again.load_best() == 2 and again.progress.lowest_loss == 3.0


class Interrupted(Exception):
    pass


def interrupt(trainer, after):
    """Train, and end with an exception once ``after`` epochs are complete."""
    begin = trainer._schedule

    def stop(epoch):
        if epoch == after:
            raise Interrupted
        begin(epoch)

    trainer._schedule = stop
    with pytest.raises(Interrupted):
        fit(trainer)


def test_report_6_a_restart_of_a_finished_run_with_more_epochs(tmp_path):
    fit(make_trainer(tmp_path, max_num_epochs=3))
    trainer = make_trainer(tmp_path, max_num_epochs=5)
    trainer.restart()
    assert epochs(fit(trainer), "opt")[::3] == [3, 4]


def test_a_restart_of_a_finished_run_says_that_nothing_is_left(tmp_path, caplog):
    fit(make_trainer(tmp_path, max_num_epochs=3))
    trainer = make_trainer(tmp_path, max_num_epochs=3)
    trainer.restart()
    with caplog.at_level("INFO"):
        assert epochs(fit(trainer), "opt") == []
    assert "Nothing left to train: 3 epochs are done; a larger --max_num_epochs goes on" in lines(caplog)


def test_a_restart_stays_in_stage_two_where_it_would_begin_later_now(tmp_path, caplog):
    fit(make_trainer(tmp_path / "parts", stages=StagePlan(start=2, lr=1e-4), max_num_epochs=3))
    # Where --start_swa is not given, it is a part of the number of epochs.
    again = make_trainer(tmp_path / "parts", stages=StagePlan(start=5, lr=1e-4), max_num_epochs=7)
    again.lr_scheduler.step = None  # the schedule of stage one is over
    with caplog.at_level("INFO"):
        again.restart()
        fit(again)
    assert "Stage Two has begun already, and does not wait for epoch 5" in lines(caplog)
    assert "Changing loss based on Stage Two Weights" not in lines(caplog)
    assert {group["lr"] for group in again.optimizer.param_groups} == {1e-4}
    whole = make_trainer(tmp_path / "whole", stages=StagePlan(start=2, lr=1e-4), max_num_epochs=7)
    fit(whole)
    assert again.progress.best == whole.progress.best
    assert saved(tmp_path / "parts") == saved(tmp_path / "whole")
    assert again.load_best(stage_two=True) == whole.load_best(stage_two=True)


def test_a_restart_without_a_checkpoint_starts_anew(tmp_path, caplog):
    trainer = make_trainer(tmp_path)
    with caplog.at_level("INFO"):
        trainer.restart()
    assert "starting anew" in lines(caplog)[0]
    assert epochs(fit(trainer), "opt")[0] == 0


def test_patience_is_kept_over_a_restart(tmp_path):
    first = scripted(tmp_path, 9.0, 5.0, 6.0, max_num_epochs=9, patience=4)
    interrupt(first, after=3)
    assert first.progress.num_unimproved == 2
    second = scripted(tmp_path, 6.0, max_num_epochs=9, patience=4)
    second.restart()
    assert epochs(fit(second)) == [None, 3, 4]


# Upstream's function


def test_a_restart_of_a_run_that_ended_by_patience_trains_no_further(tmp_path):
    fit_scripted(scripted(tmp_path, 9.0, 5.0, 6.0, 7.0, max_num_epochs=9, patience=2))
    again = scripted(tmp_path, 4.0, max_num_epochs=9, patience=2)
    again.restart()
    records = fit_scripted(again)
    assert [epoch for epoch in epochs(records) if epoch is not None] == []
    assert again.load_best() == 0


def test_upstreams_function_trains(tmp_path):
    template = make_trainer(tmp_path)
    train(
        model=template.model,
        loss_fn=template.loss_fn,
        train_loader=loader(frames(12, 1)),
        valid_loaders={"Default": loader(frames(5, 2))},
        optimizer=template.optimizer,
        lr_scheduler=template.lr_scheduler,
        start_epoch=0,
        max_num_epochs=3,
        patience=9,
        checkpoint_handler=template.checkpoints,
        logger=template.metrics_logger,
        eval_interval=1,
        output_args=OUTPUTS,
        device=CPU,
        log_errors="PerAtomRMSE",
    )
    assert template.metrics_logger.losses() == fit(make_trainer(tmp_path / "b")).losses()


def test_upstreams_argument_names_are_kept():
    assert list(inspect.signature(train).parameters) == [
        "model", "loss_fn", "train_loader", "valid_loaders", "optimizer", "lr_scheduler", "start_epoch",
        "max_num_epochs", "patience", "checkpoint_handler", "logger", "eval_interval", "output_args",
        "device", "log_errors", "swa", "ema", "max_grad_norm", "log_wandb", "distributed",
        "save_all_checkpoints", "distributed_model", "train_sampler", "rank",
    ]  # fmt: skip


def test_toy_frames_have_the_sizes_asked_for():
    assert {graph.num_nodes for graph in graphs(frames(5, sizes=(4, 4)))} == {4}
