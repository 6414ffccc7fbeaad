"""What every launcher tells a process, and the reading of environment variables that tell it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mace.exceptions import InputError

_DEFAULT_PORT = 33333  # upstream's
# Below the ports that Linux gives to outgoing connections (32768 and up), above those of services.
_JOB_PORTS = range(15000, 30000)
_PORTS_OF_A_JOB = 4


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a launcher told this process.

    Attributes:
        launcher: "torchrun", "slurm" or "mpi", as ``--launcher`` names them.
        program: the program that started the processes, for messages.
        rank: number of this process among all, from 0.
        local_rank: its number among those of its host.
        world_size: number of processes.
        local_world_size: those on this host, None where the launcher does not say.
        address: host where process 0 keeps the store in which all meet.
        ports: ports of the store: process 0 takes the first that is free. One, unless they are derived from
            the job; 0 where one process is alone and takes any.
        restarts: how often an elastic launcher has started the processes anew.
        job: text that is the same for all processes of this run and for no other run; empty if unknown.
        has_store: the launcher itself keeps the store at address and port.
    """

    launcher: str
    program: str
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int | None = None
    address: str
    ports: tuple[int, ...]
    restarts: int = 0
    job: str = ""
    has_store: bool = False

    @property
    def port(self) -> int:
        """The first of the ports."""
        return self.ports[0]


class Told(NamedTuple):
    """The four numbers of a launch, and the variables that they came from."""

    rank: int
    size: int
    local_rank: int
    local_size: int | None
    names: tuple[str, str, str, str]

    def checked(self) -> Told:
        """This, if the numbers go together.

        Raises:
            InputError: a rank beyond the number of processes, or more processes here than there are.
        """
        rank, size, local_rank, local_size = self.names
        if self.rank >= self.size:
            raise InputError(f"{rank} is {self.rank}, but {size} is {self.size}: ranks count from 0")
        if self.local_size is None:
            return self
        if self.local_size > self.size:
            raise InputError(
                f"{local_size} is {self.local_size}, but {size} is {self.size}: more processes on this host "
                "than there are in all"
            )
        if self.local_rank >= self.local_size:
            raise InputError(
                f"{local_rank} is {self.local_rank}, but {local_size} is {self.local_size}: local ranks "
                "count from 0"
            )
        return self


def whole_number(environment: Mapping[str, str], name: str) -> int:
    """The number, 0 or more, that an environment variable holds.

    Raises:
        InputError: it holds something else.
    """
    text = environment[name].strip()
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"environment variable {name} is '{text}', not a whole number")
    return int(text)


def port_number(environment: Mapping[str, str], name: str) -> int:
    """The port that an environment variable holds.

    Raises:
        InputError: it holds no number from 1 to 65535.
    """
    port = whole_number(environment, name)
    if not 1 <= port <= 65535:
        raise InputError(f"environment variable {name} is '{port}', not a port: give one from 1 to 65535")
    return port


def chosen_ports(environment: Mapping[str, str], job: str, world_size: int) -> tuple[int, ...]:
    """The ports where the processes of a job may meet, if nobody but us fixes one; ``MASTER_PORT`` wins.

    All processes must know them before they can talk. So they follow from what names the job in the
    environment of each: two jobs on a host then have different ones, and a job has another one where a port
    is in use. A process that is alone takes a free one.
    """
    if "MASTER_PORT" in environment:
        return (port_number(environment, "MASTER_PORT"),)
    if world_size == 1:
        return (0,)
    if not job:
        return (_DEFAULT_PORT,)
    return tuple(random.Random(job).sample(_JOB_PORTS, _PORTS_OF_A_JOB))
