"""Training on two real processes: the same numbers as one, and the same decisions on both."""

import math

import pytest
import torch
from torch.utils.data import DistributedSampler

from mace.arguments.plans import StagePlan
from mace.exceptions import InputError
from mace.modules.loss import WeightedEnergyForcesLoss
from mace.tools.distributed import Ranks
from mace.tools.torch_geometric import DataLoader
from mace.tools.train import train as upstream_train
from tests.distributed.processes import on_one_process, run_ranks
from tests.tolerances import relative
from tests.toy_training import OUTPUTS, ToyModel, frames, graphs, loader, make_trainer, optim_plan

pytestmark = pytest.mark.multirank

EQUAL = (4, 4)  # frames of one size: the mean over atoms of a batch is then the mean over its halves


def train(ranks, folder, configurations=None, restart=False, **options):
    """Train with a global batch of 8 and give back losses, epochs and weights."""
    trainer = make_trainer(folder, ranks=ranks, **options)
    data = graphs(frames(19, 1, EQUAL) if configurations is None else configurations)
    sampler = DistributedSampler(data, ranks.world_size, ranks.rank, shuffle=True, seed=5, drop_last=True)
    batches = DataLoader(data, batch_size=8 // ranks.world_size, sampler=sampler, drop_last=True)
    if restart:
        trainer.restart()
    trainer.fit(batches, {"Default": loader(frames(5, 2, EQUAL), 2, ranks)}, sampler)
    best = {stage: trainer.load_best(stage_two=stage) for stage in (False, True)}
    return {
        "steps": trainer.metrics_logger.losses(),
        "evaluations": trainer.metrics_logger.losses("eval"),
        "best": best,
        "next epoch": trainer.progress.next_epoch,
        "weights": [parameter.detach().tolist() for parameter in trainer.model.parameters()],
    }


def complaint(action):
    try:
        action()
    except InputError as error:
        return str(error)
    return "nothing"


def same_numbers(ranks, folder):
    return train(ranks, folder / "same", optim=optim_plan(ema=True), stages=StagePlan(start=2, lr=1e-3))


def stops_by_patience(ranks, folder):
    return train(ranks, folder / "patience", optim=optim_plan(lr=0.0), patience=2, max_num_epochs=50)


def jumps_to_stage_two(ranks, folder):
    return train(
        ranks,
        folder / "jump",
        optim=optim_plan(lr=0.0),
        stages=StagePlan(start=40, lr=1e-3),
        patience=2,
        max_num_epochs=42,
    )


def goes_on(ranks, folder):
    train(ranks, folder / "restart", max_num_epochs=2)
    return train(
        ranks, folder / "restart", max_num_epochs=4, restart=True, model=ToyModel(seed=ranks.rank + 7)
    )


def refuses_nan_of_one_rank(ranks, folder):
    configurations = frames(16, 1, EQUAL)
    if ranks.rank == ranks.world_size - 1:
        for configuration in configurations:
            configuration.energy = math.nan
    return complaint(lambda: train(ranks, folder / "nan", configurations))


def refuses_idle_parameters(ranks, folder):
    return complaint(lambda: train(ranks, folder / "idle", loss_fn=WeightedEnergyForcesLoss(1.0, 1.0)))


def refuses_another_architecture(ranks, folder):
    train(ranks, folder / "architecture", max_num_epochs=1)
    return complaint(
        lambda: train(ranks, folder / "architecture", model=ToyModel(width=6), restart=True, max_num_epochs=2)
    )


def upstreams_function(ranks, folder):
    """The caller has made the process group and the wrapper."""
    template = make_trainer(folder / "function", ranks=ranks)
    data = graphs(frames(16, 1, EQUAL))[ranks.rank :: ranks.world_size]
    upstream_train(
        model=template.model,
        loss_fn=template.loss_fn,
        train_loader=DataLoader(data, batch_size=8 // ranks.world_size),
        valid_loaders={"Default": loader(frames(5, 2, EQUAL), 2, ranks)},
        optimizer=template.optimizer,
        lr_scheduler=template.lr_scheduler,
        start_epoch=0,
        max_num_epochs=2,
        patience=9,
        checkpoint_handler=template.checkpoints,
        logger=template.metrics_logger,
        eval_interval=1,
        output_args=OUTPUTS,
        device=ranks.device,
        log_errors="PerAtomRMSE",
        distributed=ranks.backend is not None,
        distributed_model=ranks.wrap(template.model),
        rank=ranks.rank,
    )
    return template.metrics_logger.losses(), template.metrics_logger.losses("eval")


SCENARIOS = [
    upstreams_function,
    same_numbers,
    stops_by_patience,
    jumps_to_stage_two,
    goes_on,
    refuses_nan_of_one_rank,
    refuses_idle_parameters,
    refuses_another_architecture,
]


def play_all(ranks, folder):
    """Every scenario; processes take seconds to start, so they start once."""
    return {scenario.__name__: scenario(ranks, folder) for scenario in SCENARIOS}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def one(folders):
    return on_one_process(play_all, folders[0])


@pytest.fixture(scope="module")
def two(folders):
    answers = run_ranks(2, play_all, folders[1])
    for answer in answers:
        assert isinstance(answer, dict), answer
    return answers


def equal(expected):
    return pytest.approx(expected, rel=relative("training over ranks"))


@pytest.mark.parametrize("scenario", ["same_numbers", "stops_by_patience", "jumps_to_stage_two", "goes_on"])
def test_two_ranks_and_one_with_the_same_global_batch_agree(one, two, scenario):
    single, (main, other) = one[scenario], (answer[scenario] for answer in two)
    assert main["steps"] == equal(single["steps"]) and main["evaluations"] == equal(single["evaluations"])
    assert main["best"] == other["best"] == single["best"]
    assert main["next epoch"] == other["next epoch"] == single["next epoch"]
    assert main["weights"] == other["weights"]


def test_e2_report_1_patience_stops_every_rank_at_the_same_epoch(one, two):
    for answer in (one, *two):
        assert answer["stops_by_patience"]["next epoch"] == 3


def test_e2_the_jump_to_stage_two_is_everybodys(one, two):
    for answer in (one, *two):
        assert answer["jumps_to_stage_two"]["best"] == {
            False: 0,
            True: answer["jumps_to_stage_two"]["best"][True],
        }
        assert answer["jumps_to_stage_two"]["next epoch"] == 42
    assert len(one["jumps_to_stage_two"]["evaluations"]) == 1 + 3 + 2


def test_upstreams_function_trains_on_two_ranks(one, two):
    for mine, expected in zip(two[0]["upstreams_function"], one["upstreams_function"], strict=True):
        assert mine == equal(expected) and mine
    assert two[1]["upstreams_function"] == ([], [])


def test_only_the_main_rank_keeps_records(two):
    assert two[0]["same_numbers"]["steps"] and not two[1]["same_numbers"]["steps"]


def test_d2_nan_on_one_rank_stops_both_with_the_same_error(two):
    main, other = (answer["refuses_nan_of_one_rank"] for answer in two)
    assert main == other and "the training loss is nan in epoch 0, step 0" in main


def test_report_11_idle_parameters_stop_both(two):
    main, other = (answer["refuses_idle_parameters"] for answer in two)
    assert main == other and "potential_output_layer.weight" in main


def test_d4_another_architecture_stops_both(two):
    main, other = (answer["refuses_another_architecture"] for answer in two)
    assert main == other and "different shapes" in main


def test_the_number_of_ranks_may_change_at_a_restart(one, folders):
    """A run of two ranks, continued by one."""
    continued = train(Ranks.single(), folders[1] / "restart", max_num_epochs=6, restart=True)
    whole = train(Ranks.single(), folders[0] / "whole", max_num_epochs=6)
    assert continued["steps"] == equal(whole["steps"][8:])
    assert torch.allclose(
        *(torch.cat([torch.tensor(part).flatten() for part in run["weights"]]) for run in (continued, whole)),
        rtol=1e-9,
    )
