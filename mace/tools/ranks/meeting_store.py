"""The store in which the processes of a run meet: where process 0 serves it, and how the others find it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from mace.exceptions import InputError
from mace.tools.ranks.launch import Launch

_STORE_PATIENCE = 30.0  # seconds within which the store of process 0 answers, once something listens
_OWN_PATIENCE = 3.0  # the same where process 0 asks: at its own host, and after another run like this one
_PAUSE = 0.5  # seconds from one look at the ports to the next
_JOB = "ranks/job"  # the key under which process 0 says which job the store belongs to


def open_store(launch: Launch, limit: timedelta | None) -> dist.TCPStore:
    """The store in which all processes meet: the launcher's, else that of process 0.

    Where there are several ports, process 0 serves at the first that is free. The others cannot tell which
    that is: they may come before it, programs come and go meanwhile, and one that listens for its own host
    only is not seen from another. So they look at all ports, until a store says that it is this run's.

    Args:
        launch: what the launcher told.
        limit: how long to wait, here and for everything in the store; None for torch's.

    Raises:
        InputError: other programs have all ports; process 0 does not come in time.
        DistNetworkError, DistStoreError: the address is not this host's, the launcher's store is not there.
    """
    limit = limit or default_pg_timeout
    if launch.has_store:
        return dist.TCPStore(
            launch.address, launch.port, is_master=False, wait_for_workers=False, timeout=limit
        )
    return _serve(launch, limit) if launch.rank == 0 else _find(launch, limit)


def not_found(launch: Launch, why: str) -> InputError:
    """The error of processes that do not meet at the ports."""
    ports = ", ".join(map(str, launch.ports))
    return InputError(
        f"the {launch.world_size} processes could not find each other at {launch.address}:{ports}: {why}"
    )


def in_use(launch: Launch) -> InputError:
    """The error where others have the ports."""
    advice = "set MASTER_PORT to another one"
    if launch.launcher == "torchrun":
        advice = (
            "choose another one with torchrun --master_port, or let torchrun --standalone find a free one"
        )
    *ports, last = map(str, launch.ports)
    which, by = f"port {last} on {launch.address} is", "another program"
    if ports:
        which, by = f"ports {', '.join(ports)} and {last} on {launch.address} are", "other programs"
    return InputError(f"{which} in use by {by}: {advice}")


def _serve(launch: Launch, limit: timedelta) -> dist.TCPStore:
    """The store of process 0.

    Raises:
        InputError: no port is free, or a run that nothing tells from this one has a store at one. Were there
            a second store, processes of both runs could meet.
    """
    for port in launch.ports:
        store = _served_at(launch, port, limit)
        if store is not None:
            return store
        if port != launch.ports[-1] and _Port(launch, port, limit).store(_OWN_PATIENCE) is not None:
            raise in_use(replace(launch, ports=(port,)))
    raise in_use(launch)


def _served_at(launch: Launch, port: int, limit: timedelta) -> dist.TCPStore | None:
    """A store of this process, or None if another program has the port."""
    # Torch could serve beside a program that has one of this host's addresses, the one where all will look.
    if _listens(launch.address, port):
        return None
    try:
        store = dist.TCPStore(
            launch.address, port, launch.world_size, is_master=True, wait_for_workers=False, timeout=limit
        )
    except dist.DistNetworkError as error:
        if "EADDRINUSE" in str(error):
            return None
        raise
    store.set(_JOB, _job_tag(launch))
    return store


def _find(launch: Launch, limit: timedelta) -> dist.TCPStore:
    """Wait for the store of process 0.

    Raises:
        InputError: others have all ports; the store does not come in time.
    """
    end = time.monotonic() + limit.total_seconds()
    ports = [_Port(launch, port, limit) for port in launch.ports]
    while time.monotonic() < end:
        for port in ports:
            store = port.store(_PAUSE)
            if store is not None:
                return store
        if all(port.of_others() for port in ports):
            raise in_use(launch)
        time.sleep(_PAUSE)
    raise not_found(
        launch,
        "process 0 does not answer there; see whether it has ended, or give more seconds with --dist_timeout",
    )


class _Port:
    """One port at which the store of this run may be.

    Torch waits without end for the answer of a program that says nothing. So a thread does, and is left
    behind.
    """

    def __init__(self, launch: Launch, number: int, limit: timedelta):
        self._address, self._number, self._limit = launch.address, number, limit
        self._wanted = _job_tag(launch)
        self._thread: threading.Thread | None = None
        self._answer: tuple[dist.TCPStore, str] | None = None  # a store, and the job that it belongs to
        self._since: float | None = None  # when it was first seen that somebody listens

    def store(self, patience: float) -> dist.TCPStore | None:
        """The store of this run, if it is here and says so within some seconds."""
        if self._thread is None or not self._thread.is_alive():
            self._answer = None
            if not _listens(self._address, self._number):
                self._since = None
                return None
            self._since = self._since or time.monotonic()
            self._thread = threading.Thread(target=self._ask, daemon=True)
            self._thread.start()
        self._thread.join(patience)
        if self._answer is None or self._answer[1] != self._wanted:
            return None
        return self._answer[0]

    def of_others(self) -> bool:
        """Whether another job has the port, or somebody who has listened for long and says nothing."""
        if self._answer is not None:
            return self._answer[1] != self._wanted
        return self._since is not None and time.monotonic() - self._since > _STORE_PATIENCE

    def _ask(self) -> None:
        soon = min(self._limit, timedelta(seconds=_STORE_PATIENCE))
        with suppress(dist.DistNetworkError, dist.DistStoreError):  # what listens is no store of ours
            store = dist.TCPStore(
                self._address, self._number, is_master=False, wait_for_workers=False, timeout=soon
            )
            job = store.get(_JOB).decode(errors="replace")
            store.set_timeout(self._limit)
            self._answer = store, job


def _job_tag(launch: Launch) -> str:
    return f"{launch.job}, {launch.world_size} processes"


def _listens(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=1.0):
            return True
    except OSError:
        return False
