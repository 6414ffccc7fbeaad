"""What one process without a group answers, and what is refused before there is one."""

import pytest
import torch
from torch import nn

from mace.exceptions import InputError
from mace.tools.distributed import Ranks, open_ranks
from mace.tools.ranks.failures import report_once
from tests.launcher_environments import hydra, open_mpi_4, pals, srun, torchrun


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in [*torchrun(), *srun(), *hydra(), *open_mpi_4(), *pals()]:
        monkeypatch.delenv(name, raising=False)


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


@pytest.mark.parametrize("launched_by", [torchrun, srun, open_mpi_4, hydra, pals])
@pytest.mark.parametrize(("rank", "expected"), [(0, "bad\n"), (1, "")])
def test_a_report_is_printed_by_the_first_process_only(launched_by, rank, expected, monkeypatch, capsys):
    for name, value in launched_by(rank).items():
        monkeypatch.setenv(name, value)
    report_once("bad")
    assert capsys.readouterr().err == expected
