"""Which launcher is recognised, which device is chosen, and what one process answers."""

import pytest
import torch
from torch import nn

from mace.exceptions import InputError
from mace.tools import distributed
from mace.tools.distributed import Ranks, find_launch, open_ranks
from mace.tools.ranks.failures import report_once

TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "node7",
    "MASTER_PORT": "29500",
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)


def test_torchrun_variables_are_recognised():
    launch = find_launch(TORCHRUN)
    assert (launch.launcher, launch.rank, launch.local_rank, launch.world_size) == ("torchrun", 3, 1, 4)
    assert (launch.address, launch.port) == ("node7", 29500)


def test_a_plain_process_has_no_launcher():
    assert find_launch({}) is None
    assert find_launch(TORCHRUN, "none") is None


@pytest.mark.parametrize("missing", ["LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_half_a_torchrun_environment_is_named(missing):
    environment = {name: value for name, value in TORCHRUN.items() if name != missing}
    with pytest.raises(InputError, match=missing):
        find_launch(environment)


def test_a_rank_that_is_no_number_is_named():
    with pytest.raises(InputError, match="LOCAL_RANK is 'zero'"):
        find_launch(TORCHRUN | {"LOCAL_RANK": "zero"})


@pytest.mark.parametrize(("launcher", "word"), [("torchrun", "did not start"), ("smoke", "not known")])
def test_a_launcher_that_is_not_there_is_refused(launcher, word):
    with pytest.raises(InputError, match=word):
        find_launch({}, launcher)


def test_e8_distributed_without_a_launcher_is_an_error():
    with pytest.raises(InputError, match="torchrun"), open_ranks("cpu", distributed=True):
        pass


def test_one_process_without_a_group_does_the_obvious():
    with open_ranks("cpu", distributed=False) as ranks:
        tensor = torch.ones(2)
        total = ranks.sum(tensor)
        assert total is not tensor and torch.equal(total, tensor)
        assert ranks.gather("a") == ["a"]
        assert ranks.broadcast("a") == "a"
        assert ranks.from_main(lambda: 5) == 5
        model = nn.Linear(1, 1)
        assert ranks.wrap(model) is model
        ranks.barrier()
    assert ranks.is_main and ranks.world_size == 1 and ranks.backend is None


def test_from_main_passes_its_errors_on():
    def refuse():
        raise InputError("no such file")

    with pytest.raises(InputError, match="no such file"):
        Ranks.single().from_main(refuse)


def test_e1_cuda_without_cuda_is_an_error_not_a_crash(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="device 'cuda'"), open_ranks("cuda", distributed=False):
        pass


@pytest.mark.parametrize("device", ["tpu9", "meta", "cpu:x"])
def test_a_device_that_cannot_train_is_refused(device):
    with pytest.raises(InputError, match=device), open_ranks(device, distributed=False):
        pass


def test_e1_each_process_gets_the_gpu_of_its_local_rank(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    ranks = distributed._place(find_launch(TORCHRUN), "cuda")
    assert ranks.device == torch.device("cuda", 1) and ranks.backend == "nccl"
    with pytest.raises(InputError, match="sees 2"):
        distributed._place(find_launch(TORCHRUN | {"LOCAL_RANK": "2"}), "cuda")
    with pytest.raises(InputError, match="use --device cuda"):
        distributed._place(find_launch(TORCHRUN), "cuda:0")


def test_several_processes_cannot_share_an_apple_gpu(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(InputError, match="one process only"):
        distributed._place(find_launch(TORCHRUN), "mps")


@pytest.mark.parametrize(("rank", "expected"), [("0", "bad\n"), ("1", "")])
def test_a_report_is_printed_by_the_first_process_only(rank, expected, monkeypatch, capsys):
    monkeypatch.setenv("RANK", rank)
    report_once("bad")
    assert capsys.readouterr().err == expected
