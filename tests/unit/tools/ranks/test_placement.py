"""Which device and which back end a process gets, on machines with GPUs that this one does not have."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from mace.exceptions import InputError
from mace.tools.ranks.launchers import find_launch
from mace.tools.ranks.placement import Placement, place
from tests.launcher_environments import srun, torchrun


@pytest.fixture
def gpus(monkeypatch):
    """A function that pretends that this process sees some GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def pretend(kind, count, visible=None):
        monkeypatch.setattr(getattr(torch, kind), "is_available", lambda: count > 0)
        monkeypatch.setattr(getattr(torch, kind), "device_count", lambda: count)
        monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
        monkeypatch.setattr(dist, "is_xccl_available", lambda: True, raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return pretend


def refused(environment, device="cuda"):
    with pytest.raises(InputError) as refusal:
        place(find_launch(environment), device)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize(("kind", "backend"), [("cuda", "nccl"), ("xpu", "xccl")])
def test_e1_each_process_gets_the_gpu_of_its_local_rank(gpus, kind, backend):
    gpus(kind, 2)
    assert place(find_launch(torchrun(3, 4)), kind) == Placement(torch.device(kind, 1), backend)
    assert place(find_launch(torchrun(2, 4)), kind) == Placement(torch.device(kind, 0), backend)
    assert place(None, kind) == Placement(torch.device(kind, 0))
    assert place(None, f"{kind}:1") == Placement(torch.device(kind, 1))


def test_e1_processors_talk_over_gloo():
    assert place(find_launch(torchrun()), "cpu") == Placement(torch.device("cpu"), "gloo")
    assert place(None, "cpu") == Placement(torch.device("cpu"))


def test_a_process_that_is_shown_one_gpu_takes_it(gpus):
    gpus("cuda", 1, "3")
    for rank in range(4):
        launch = find_launch(srun(rank, 4, nodes="node7", count=1))
        assert place(launch, "cuda").device == torch.device("cuda", 0)


def test_more_processes_than_gpus_are_refused(gpus):
    gpus("cuda", 2, "0,1")
    message = refused(torchrun(1, 4, per_node=4))
    assert message == (
        "4 processes were started on this host, but torch sees 2 GPUs (CUDA_VISIBLE_DEVICES is '0,1'): start "
        "one process a GPU"
    )
    assert "wants GPU 2, but torch sees 2" in refused(torchrun(2, 4, per_node=4, elastic=False))


def test_gpus_that_are_hidden_are_named(gpus):
    gpus("cuda", 0, "")
    assert "finds none (CUDA_VISIBLE_DEVICES is ''); use cpu" in refused(torchrun())
    gpus("cuda", 2)
    assert "device 'cuda:2' was asked for, but there are only 2" in refused({}, "cuda:2")
    assert "names one GPU, but 2 processes were started: use --device cuda" in refused(torchrun(), "cuda:0")


def test_an_apple_gpu_serves_one_process(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert "one process only" in refused(torchrun(), "mps")
    assert place(find_launch(torchrun(0, 1, per_node=1)), "mps") == Placement(torch.device("mps"))
    assert place(None, "mps") == Placement(torch.device("mps"))


@pytest.mark.parametrize(
    ("kind", "question", "backend"),
    [("cpu", "is_gloo_available", "gloo")]
    + [("cuda", "is_nccl_available", "nccl"), ("xpu", "is_xccl_available", "xccl")],
)
def test_a_back_end_that_torch_lacks_is_named(gpus, monkeypatch, kind, question, backend):
    if kind != "cpu":
        gpus(kind, 2)
    monkeypatch.setattr(dist, question, lambda: False, raising=False)
    assert f"need the back end {backend}, which torch" in refused(torchrun(), kind)
    assert place(None, kind).device.type == kind  # one process needs none
    monkeypatch.delattr(dist, question)  # old torch and torch without torch.distributed
    assert f"need the back end {backend}, which torch" in refused(torchrun(), kind)


def test_pinning_and_identity_ask_the_right_kind_of_gpu(monkeypatch):
    pinned = []
    for kind in ("cuda", "xpu"):
        monkeypatch.setattr(getattr(torch, kind), "set_device", pinned.append)
        monkeypatch.setattr(
            getattr(torch, kind),
            "get_device_properties",
            lambda device: SimpleNamespace(uuid=f"GPU-{device}"),
        )
    for device in ("cuda:1", "xpu:0", "cpu", "mps"):
        Placement(torch.device(device)).pin()
    assert pinned == [torch.device("cuda:1"), torch.device("xpu:0")]
    assert Placement(torch.device("cuda:1")).identity() == "GPU-cuda:1"
    assert Placement(torch.device("cpu")).identity() is None
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
    assert Placement(torch.device("cuda:1")).identity() is None  # an older torch
