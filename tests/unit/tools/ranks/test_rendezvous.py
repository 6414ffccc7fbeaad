"""How processes fail to meet, and what is told about those that met. Whole groups: tests/distributed."""

import socket
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from mace.exceptions import InputError
from mace.tools.ranks import meeting_store, rendezvous
from mace.tools.ranks.launchers import Launch
from mace.tools.ranks.meeting_store import open_store
from mace.tools.ranks.placement import Placement
from mace.tools.ranks.rendezvous import Member, describe, join_group

CPU = Placement(torch.device("cpu"), "gloo")


@pytest.fixture
def launch():
    """Process 0 of 2 on this host, with a port that nobody has."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
    return Launch(
        launcher="slurm",
        program="srun",
        rank=0,
        local_rank=0,
        world_size=2,
        local_world_size=2,
        address="localhost",
        ports=(port,),
        job="slurm 1.0",
    )


def refused(launch, timeout):
    begin = time.monotonic()
    with pytest.raises(InputError) as refusal:
        join_group(launch, CPU, timeout)
    assert time.monotonic() - begin < timeout + 20
    assert "\n" not in str(refusal.value) and not dist.is_initialized()
    return str(refusal.value)


def test_a_process_that_does_not_come_is_named(launch):
    message = refused(launch, 1.0)
    assert f"process 1 of 2 did not come to localhost:{launch.port} in time" in message
    assert "--dist_timeout" in message


def test_nobody_listens(launch):
    assert "could not find each other" in refused(replace(launch, rank=1, local_rank=1), 1.0)


def test_a_port_in_use_is_named_with_what_to_do(launch):
    with socket.socket() as listener:
        listener.bind(("", launch.port))
        listener.listen()
        message = refused(launch, 5.0)
        assert f"port {launch.port} on localhost is in use by another program: set MASTER_PORT" in message
        assert "torchrun --standalone" in refused(replace(launch, launcher="torchrun"), 5.0)


def test_a_program_that_listens_and_does_not_answer(launch, monkeypatch):
    monkeypatch.setattr(meeting_store, "_STORE_PATIENCE", 1.0)
    with socket.socket() as listener:
        listener.bind(("", launch.port))
        listener.listen()
        assert "is in use" in refused(replace(launch, rank=1), 60.0)


def test_the_store_of_another_run_is_not_joined(launch):
    other = open_store(replace(launch, job="slurm 2.0"), timedelta(seconds=5))
    assert "is in use" in refused(replace(launch, rank=1), 5.0)
    assert other.get(meeting_store._JOB) == b"slurm 2.0, 2 processes"


def test_a_second_process_of_the_same_rank_is_refused(launch):
    """Two runs on one host that nothing tells apart, and that both want the usual port."""
    store = dist.PrefixStore("ranks/attempt_0", open_store(launch, timedelta(seconds=5)))
    store.set("member_0", "{}")
    store.add("arrivals_1", 1)
    assert "is in use" in refused(replace(launch, rank=1), 5.0)


def test_members_are_known_to_all_before_there_is_a_group(launch):
    found = {}

    def meet(rank):
        me = replace(launch, rank=rank)
        store = open_store(me, timedelta(seconds=20))
        found[rank] = store, rendezvous._introduce(store, me, CPU)  # the store of process 0 has to stay

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [members for _, members in found.values()] == [(Member(socket.gethostname(), "cpu"),) * 2] * 2


def test_two_processes_on_one_gpu_are_refused():
    members = [Member("node7", "cuda:0", "GPU-1"), Member("node8", "cuda:0", "GPU-2")]
    rendezvous._refuse_shared_gpus([*members, Member("node7", "cpu"), Member("node7", "cpu")])
    with pytest.raises(InputError, match="processes 0, 2 on node7 all have GPU GPU-1"):
        rendezvous._refuse_shared_gpus([*members, Member("node7", "cuda:0", "GPU-1")])


def test_one_line_says_how_the_run_was_started(launch):
    here = [Member("node7", "cpu")] * 2
    assert describe(launch, CPU, here) == (
        "2 processes on 1 host (node7), launched by srun, back end gloo, device cpu"
    )
    gpus = [Member(f"node{host}", f"cuda:{gpu}") for host in range(10) for gpu in range(2)]
    line = describe(replace(launch, world_size=20), Placement(torch.device("cuda:0"), "nccl"), gpus)
    assert line == (
        "20 processes on 10 hosts (node0, node1, node2, node3, node4, node5, node6, node7, ...), launched by "
        "srun, back end nccl, devices cuda:0, cuda:1"
    )
    assert describe(None, Placement(torch.device("cuda:1")), ()) == (
        "One process, without a launcher, device cuda:1"
    )
