"""How the processes of a run meet: a store, what they tell each other there, the process group."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import NamedTuple

import torch.distributed as dist

from mace.exceptions import InputError
from mace.tools.ranks.launch import Launch
from mace.tools.ranks.meeting_store import in_use, not_found, open_store
from mace.tools.ranks.placement import Placement


@dataclass(frozen=True)
class Member:
    """What a process tells the others: host, device, and what identifies its GPU, if it has one."""

    host: str
    device: str
    gpu: str | None = None


class Meeting(NamedTuple):
    """Where the processes have met, and who came, in the order of the ranks."""

    store: dist.Store
    members: tuple[Member, ...]


def join_group(launch: Launch, placement: Placement, timeout: float | None = None) -> Meeting:
    """Make the process group.

    Args:
        launch: what the launcher told.
        placement: device and back end; there must be one.
        timeout: seconds that processes wait for each other, here and in every collective; None for torch's.

    Raises:
        InputError: the processes cannot find each other, for example because the port is in use, or two of
            them have the same GPU.
    """
    limit = None if timeout is None else timedelta(seconds=timeout)
    try:
        found = open_store(launch, limit)
        launch = replace(launch, ports=(found.port,))
        store = dist.PrefixStore(f"ranks/attempt_{launch.restarts}", found)
        members = _introduce(store, launch, placement)
        _refuse_shared_gpus(members)
        dist.init_process_group(
            placement.backend, store=store, rank=launch.rank, world_size=launch.world_size, timeout=limit
        )
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        raise not_found(launch, str(error).splitlines()[0]) from None
    return Meeting(store, members)


def describe(launch: Launch | None, placement: Placement, members: Sequence[Member]) -> str:
    """How the run was started, in one line: processes, hosts, launcher, back end, devices."""
    if launch is None or placement.backend is None:
        return f"One process, without a launcher, device {placement.device}"
    hosts = list(dict.fromkeys(member.host for member in members))
    devices = list(dict.fromkeys(member.device for member in members))
    return (
        f"{_counted(launch.world_size, 'process', 'processes')} on {_counted(len(hosts), 'host', 'hosts')} "
        f"({_listed(hosts)}), launched by {launch.program}, back end {placement.backend}, "
        f"{'device' if len(devices) == 1 else 'devices'} {_listed(devices)}"
    )


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _listed(names: Sequence[str], most: int = 8) -> str:
    return ", ".join([*names[:most], "..."] if len(names) > most else names)


def _introduce(store: dist.Store, launch: Launch, placement: Placement) -> tuple[Member, ...]:
    """Tell the others about this process, and hear from each.

    Raises:
        InputError: a process of this rank has come already, of a run that nothing tells from this one; a
            process does not come in time.
    """
    # The store of a launcher outlives the processes: it may bring others under the same rank.
    if not launch.has_store and store.add(f"arrivals_{launch.rank}", 1) > 1:
        raise in_use(launch)
    me = Member(socket.gethostname(), str(placement.device), placement.identity())
    store.set(f"member_{launch.rank}", json.dumps(asdict(me)))
    return tuple(_heard(store, launch, rank) for rank in range(launch.world_size))


def _heard(store: dist.Store, launch: Launch, rank: int) -> Member:
    try:
        return Member(**json.loads(store.get(f"member_{rank}")))
    except dist.DistStoreError:
        raise InputError(
            f"process {rank} of {launch.world_size} did not come to {launch.address}:{launch.port} in time: "
            "see whether it has ended, or give more seconds with --dist_timeout"
        ) from None


def _refuse_shared_gpus(members: Sequence[Member]) -> None:
    counts = Counter(member.gpu for member in members if member.gpu is not None)
    for gpu, count in counts.items():
        if count > 1:
            sharing = [rank for rank, member in enumerate(members) if member.gpu == gpu]
            raise InputError(
                f"processes {', '.join(map(str, sharing))} on {members[sharing[0]].host} all have GPU {gpu}: "
                "start one process a GPU, and let each see its own (CUDA_VISIBLE_DEVICES)"
            )
