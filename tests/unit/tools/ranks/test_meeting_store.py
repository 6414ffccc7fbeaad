"""Where the processes of a run meet when programs and other jobs have some of its ports."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta

import pytest

from mace.exceptions import InputError
from mace.tools.ranks import meeting_store
from mace.tools.ranks.launchers import Launch
from mace.tools.ranks.meeting_store import open_store
from tests.system_tools import leave_out

LIMIT = timedelta(seconds=20)


@pytest.fixture
def launch():
    """Process 0 of 2 on this host, with three ports that nobody has."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(3)]
        for listener in listeners:
            listener.bind(("localhost", 0))
        ports = tuple(listener.getsockname()[1] for listener in listeners)
    numbers = {"rank": 0, "local_rank": 0, "world_size": 2, "local_world_size": 2}
    return Launch(
        launcher="slurm", program="srun", **numbers, address="localhost", ports=ports, job="slurm 1.0"
    )


@pytest.fixture
def hold():
    """Have a program listen at a port, at all addresses or at one, and say nothing."""
    with ExitStack() as stack:

        def hold(port, address=""):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = stack.enter_context(socket.socket(family))
            listener.bind((address, port))
            listener.listen()

        yield hold


def meet(*processes):
    """The ports at which processes that come at the same time find their stores; all have a word there."""
    seconds = [0.0] * len(processes)
    here = threading.Barrier(len(processes))

    def come(number):
        here.wait()
        begin = time.monotonic()
        store = open_store(processes[number], LIMIT)
        seconds[number] = time.monotonic() - begin
        store.set(f"{processes[number].job} {processes[number].rank}", "came")
        for rank in range(2):
            assert store.get(f"{processes[number].job} {rank}") == b"came"
        here.wait()  # process 0 stays till all have heard
        return store.port

    with ThreadPoolExecutor(len(processes)) as pool:
        ports = list(pool.map(come, range(len(processes))))
    assert max(seconds) < 10, seconds
    return ports


def both(launch):
    return launch, replace(launch, rank=1, local_rank=1)


def test_the_first_port_if_it_is_free(launch):
    assert meet(*both(launch)) == [launch.port] * 2


def test_a_port_of_a_silent_program_is_passed_over_and_not_waited_for(launch, hold, monkeypatch):
    monkeypatch.setattr(meeting_store, "_OWN_PATIENCE", 0.5)
    hold(launch.ports[0])
    assert meet(*both(launch)) == [launch.ports[1]] * 2


def test_a_program_that_only_process_0_sees_is_passed_over(launch, hold):
    """As on two hosts: it listens at one address of the host, and the others come to another one."""
    hold(launch.ports[0], "127.0.0.1")
    assert meet(*both(replace(launch, address="127.0.0.2"))) == [launch.ports[1]] * 2


@pytest.mark.slow
def test_a_program_beside_which_torch_could_serve_is_passed_over(launch, hold, monkeypatch):
    """Torch would serve at IPv4, and all would look for it at IPv6."""
    monkeypatch.setattr(meeting_store, "_OWN_PATIENCE", 0.5)
    try:
        hold(launch.ports[0], "::1")
    except OSError as error:
        leave_out(f"needs IPv6: {error}")
    assert meet(*both(replace(launch, address="::1"))) == [launch.ports[1]] * 2


def test_the_store_of_another_job_is_passed_over(launch):
    other = open_store(replace(launch, job="slurm 2.0"), LIMIT)
    assert meet(*both(launch)) == [launch.ports[1]] * 2
    assert other.port == launch.port


def test_a_store_that_belongs_to_no_job_is_passed_over(launch, monkeypatch):
    """Another program that uses torch's stores."""
    monkeypatch.setattr(meeting_store, "_OWN_PATIENCE", 0.5)
    foreign = meeting_store.dist.TCPStore("localhost", launch.port, is_master=True, wait_for_workers=False)
    assert meet(*both(launch)) == [launch.ports[1]] * 2
    assert foreign.num_keys() == 0


def test_two_jobs_with_the_same_ports_do_not_meet(launch):
    other = replace(launch, job="slurm 2.0", ports=(launch.ports[0], launch.ports[2]))
    first, first_too, second, second_too = meet(*both(launch), *both(other))
    assert first == first_too and second == second_too and first != second
    assert launch.port in (first, second)


def test_a_port_that_becomes_free_before_process_0_comes(launch):
    """The others have passed it over, and look again."""
    other = open_store(replace(launch, job="slurm 2.0"), LIMIT)
    me, late = both(launch)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(open_store, late, LIMIT)
        time.sleep(2.0)
        assert not found.done()
        del other
        served = open_store(me, LIMIT)
        assert served.port == found.result(timeout=10).port == launch.port


def test_a_run_that_nothing_tells_from_this_one_is_refused(launch):
    """Two mpiexec in one job of a queue: with a store each, processes of one could join the other."""
    served = open_store(launch, LIMIT)
    with pytest.raises(InputError) as refusal:
        open_store(launch, LIMIT)
    advice = "set MASTER_PORT to another one"
    assert str(refusal.value) == f"port {served.port} on localhost is in use by another program: {advice}"


@pytest.mark.parametrize("rank", [0, 1])
def test_all_ports_in_use_are_named(launch, hold, rank, monkeypatch):
    monkeypatch.setattr(meeting_store, "_STORE_PATIENCE", 1.0)
    monkeypatch.setattr(meeting_store, "_OWN_PATIENCE", 0.5)
    first, second, third = launch.ports
    hold(first)
    other = open_store(replace(launch, job="slurm 2.0", ports=(second,)), LIMIT)
    hold(third)
    begin = time.monotonic()
    with pytest.raises(InputError) as refusal:
        open_store(both(launch)[rank], LIMIT)
    assert time.monotonic() - begin < 10 and other.port == second
    assert str(refusal.value) == (
        f"ports {first}, {second} and {third} on localhost are in use by other programs: set MASTER_PORT to "
        "another one"
    )


def test_nobody_comes_to_any_port(launch, hold):
    hold(launch.ports[1])
    with pytest.raises(InputError) as refusal:
        open_store(both(launch)[1], timedelta(seconds=1))
    ports = ", ".join(map(str, launch.ports))
    assert f"the 2 processes could not find each other at localhost:{ports}: process 0" in str(refusal.value)


def test_a_found_store_waits_as_long_as_it_is_told(launch, monkeypatch):
    """Not as long as an answer may take while it is looked for."""
    monkeypatch.setattr(meeting_store, "_STORE_PATIENCE", 1.0)
    served = open_store(launch, LIMIT)
    found = open_store(both(launch)[1], LIMIT)
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(found.get, "late")
        time.sleep(2.0)
        served.set("late", "came")
        assert heard.result(timeout=10) == b"came"
