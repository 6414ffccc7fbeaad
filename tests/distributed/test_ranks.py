"""The rank object on real gloo processes."""

import os
import socket
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

from mace.exceptions import InputError
from mace.tools.distributed import Ranks
from mace.tools.ranks.launchers import find_launch
from tests.distributed.processes import free_port, on_one_process, run_ranks
from tests.launcher_environments import srun

pytestmark = pytest.mark.multirank


def _collectives(ranks: Ranks):
    ranks.barrier()
    return {
        "sum": ranks.sum(torch.tensor([1.0, ranks.rank])).tolist(),
        "gather": ranks.gather({"rank": ranks.rank}),
        "broadcast": ranks.broadcast(ranks.rank, source=ranks.world_size - 1),
        "from_main": ranks.from_main(lambda: os.getpid()),
        "main": ranks.is_main,
        "group": (ranks.world_size, ranks.backend, ranks.started),
    }


@pytest.mark.parametrize("world_size", [1, 2])
def test_collectives(world_size):
    answers = run_ranks(world_size, _collectives)
    for rank, answer in enumerate(answers):
        assert answer["sum"] == [world_size, sum(range(world_size))]
        assert answer["gather"] == [{"rank": other} for other in range(world_size)]
        assert answer["broadcast"] == world_size - 1
        assert answer["from_main"] == answers[0]["from_main"]
        assert answer["main"] == (rank == 0)
        assert answer["group"][:2] == (world_size, "gloo")
        assert "launched by torchrun, back end gloo" in answer["group"][2]


def _refused_on_main(ranks: Ranks):
    def action():
        raise InputError("the file is empty")

    try:
        ranks.from_main(action)
    except InputError as error:
        return str(error)
    return "nothing raised"


def test_an_input_error_of_the_main_process_reaches_every_rank():
    assert run_ranks(2, _refused_on_main) == ["the file is empty"] * 2


def _fails_on_rank_one(ranks: Ranks):
    started = time.monotonic()
    try:
        if ranks.rank == 1:
            raise KeyError("only here")
        ranks.sum(torch.ones(1))
    finally:
        assert time.monotonic() - started < 30


def test_an_exception_on_one_rank_does_not_hang_the_others():
    first, second = run_ranks(2, _fails_on_rank_one)
    assert "KeyError: 'only here'" in second
    assert "ranks.sum" in first and "RuntimeError" in first


class _WithEmptyParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1, dtype=torch.float64)
        self.nothing = nn.Parameter(torch.zeros(0, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).reshape(2, 2).T)

    def forward(self, x):
        return self.layer(x @ self.scale)


def _gradients_with_an_empty_parameter(ranks: Ranks):
    torch.manual_seed(ranks.rank)
    model = _WithEmptyParameter()
    if ranks.rank == 1:
        model.scale.zero_()
    attributes = set(vars(model))
    wrapped = ranks.wrap(model)
    assert set(vars(model)) == attributes
    for _ in range(2):
        model.zero_grad()
        share = slice(ranks.rank, None, ranks.world_size)
        wrapped(torch.arange(8.0, dtype=torch.float64).reshape(4, 2)[share]).mean().backward()
    return model.layer.weight.grad.tolist(), model.layer.weight.tolist(), model.scale.tolist()


def test_report_11_empty_parameters_take_no_part_in_the_exchange():
    one = on_one_process(_gradients_with_an_empty_parameter)
    for other in run_ranks(2, _gradients_with_an_empty_parameter):
        assert other == one


@pytest.mark.parametrize("rank", [0, 1])
def test_a_port_in_use_is_an_input_error(rank):
    with socket.socket() as listener:
        listener.bind(("localhost", free_port()))
        listener.listen()
        environment = dict(
            os.environ,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(rank + 1),
            MASTER_ADDR="localhost",
            MASTER_PORT=str(listener.getsockname()[1]),
        )
        script = (
            "from mace.tools import distributed\n"
            "from mace.tools.ranks import meeting_store\n"
            "meeting_store._STORE_PATIENCE = 2.0\n"
            "with distributed.open_ranks('cpu', True): pass"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 1
    assert f"port {environment['MASTER_PORT']} on localhost is in use" in done.stderr


def test_a_job_whose_first_port_is_in_use_has_another_one():
    """The program that has it listens as long as the run lasts, and never says anything."""
    job = {"SLURM_JOB_ID": str(os.getpid())}
    tasks = [srun(rank, 2, nodes="node7", count=1) | job for rank in (0, 1)]
    script = (
        "import torch\n"
        "from mace.tools import distributed\n"
        "with distributed.open_ranks('cpu', True) as ranks: print(ranks.sum(torch.ones(1)).item())"
    )
    with socket.socket() as listener:
        listener.bind(("localhost", find_launch(tasks[0]).port))
        listener.listen()
        running = [
            subprocess.Popen([sys.executable, "-c", script], env=os.environ | task, stdout=subprocess.PIPE)
            for task in tasks
        ]
        answers = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert answers == [b"2.0\n"] * 2
