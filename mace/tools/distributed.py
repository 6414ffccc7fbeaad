"""The one room that knows ranks: who started this process, how many there are, and how they talk.

Everything else is handed a :class:`Ranks` and asks it; with one process the same methods do the obvious.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from mace.exceptions import InputError, StopRequested
from mace.tools.ranks import host_memory
from mace.tools.ranks.debugging import gradients_group
from mace.tools.ranks.failures import Board, claim_word, hang_up
from mace.tools.ranks.launch import Launch
from mace.tools.ranks.launchers import find_launch
from mace.tools.ranks.peers import Peer
from mace.tools.ranks.placement import Placement, place
from mace.tools.ranks.rendezvous import describe, join_group
from mace.tools.ranks.stopping import StopWish, stop_wishes
from mace.tools.torch_tools import frozen

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among the processes of the run.

    ``backend`` is None exactly when there is no process group (one process that no launcher started).
    ``timeout`` is how many seconds they wait for each other, None for torch's time.
    ``stop`` says whether somebody has asked this process to stop; that of the others is theirs to tell.
    """

    rank: int = 0
    world_size: int = 1
    device: torch.device
    backend: str | None = None
    timeout: float | None = None
    started: str = ""  # how, in one line
    peers: tuple[Peer, ...] = ()
    stop: StopWish = field(default_factory=StopWish)

    @classmethod
    def single(cls, device: str | torch.device = "cpu") -> Ranks:
        """One process without a group."""
        return cls(device=torch.device(device))

    @classmethod
    def joined(cls, device: str | torch.device) -> Ranks:
        """This process in a process group that somebody else has made."""
        return cls(
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
            device=torch.device(device),
            backend=dist.get_backend(),
            started="Processes started by the caller",
        )

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until every process is here."""
        if self.backend is not None:
            dist.barrier()

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over the processes: a new tensor on the device of the given one, the same bits everywhere."""
        if self.backend is None:
            return tensor.clone()
        total = tensor.to(self.device, copy=True)
        dist.all_reduce(total)
        return total.to(tensor.device)

    def start_sum(self, tensor: torch.Tensor) -> PendingSum:
        """The same, to be waited for later; every process must start its sums in the same order."""
        if self.backend is None:
            return PendingSum(tensor, None)
        total = tensor.to(self.device, copy=True)
        return PendingSum(total, dist.all_reduce(total, async_op=True))

    def heed_stop(self) -> None:
        """Raise StopRequested on every process, if somebody has asked one of them to stop."""
        if self.sum(torch.tensor(float(bool(self.stop)))) > 0:
            raise StopRequested(
                f"{self.stop_reason}; --restart_latest goes on from the last checkpoint, if there is one"
            )

    @property
    def stop_reason(self) -> str:
        """What stops the run, once all processes know of it."""
        return f"stopped by {self.stop.signal or 'a signal to another process of the run'}"

    def gather(self, value: T) -> list[T]:
        """The picklable values of all processes, in the order of the ranks."""
        if self.backend is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: T, source: int = 0) -> T:
        """The picklable value of process ``source``; what the others pass is ignored."""
        if self.backend is None:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=source, device=self.device)
        return box[0]

    def from_main(self, action: Callable[[], T]) -> T:
        """Let the main process run ``action`` and give its (picklable) value to every process.

        An :class:`InputError` of the action is raised on every process alike, any other exception on the main
        process only.
        """
        outcome: tuple[T | None, str | None] = (None, None)
        if self.is_main:
            try:
                outcome = (action(), None)
            except InputError as error:
                outcome = (None, str(error))
        value, complaint = self.broadcast(outcome)
        if complaint is not None:
            raise InputError(complaint)
        return value  # type: ignore[return-value]

    def everywhere(self, action: Callable[[], T]) -> T:
        """Let every process run ``action`` and give each its own value.

        An :class:`InputError` of any process is raised on every process alike (that of the lowest rank);
        other exceptions pass on the process that met them.
        """
        value, complaint = None, None
        try:
            value = action()
        except InputError as error:
            complaint = str(error)
        for said in self.gather(complaint):
            if said is not None:
                raise InputError(said)
        return value  # type: ignore[return-value]

    @property
    def host_mates(self) -> tuple[int, ...]:
        """The ranks of this host in order, this one among them, if they can map each other's files."""
        myself = next((peer for peer in self.peers if peer.rank == self.rank), None)
        if myself is None or not host_memory.is_possible():
            return (self.rank,)
        return tuple(peer.rank for peer in self.peers if peer.place == myself.place)

    def shared_on_host(self, make: Callable[[], T]) -> list[T] | None:
        """Values of the processes of this host, in the order of ``host_mates``, in memory that they share.

        None where no host has two processes, and where memory cannot be shared: the log says why. An
        :class:`InputError` of ``make`` is raised on every process alike.
        """
        if len({peer.place for peer in self.peers}) == len(self.peers) or not host_memory.is_possible():
            return None
        values, trouble = host_memory.map_all(self.everywhere(make), self.host_mates, self.gather)
        if values is None:
            logging.warning(
                f"The processes of a host cannot share the memory of the data ({trouble}), each holds all of "
                "it: set TMPDIR to a folder with room"
            )
        return values

    def once_a_host(self, action: Callable[[], T]) -> T:
        """Let one process of each host run ``action``, and give the others its value, if they can share it.

        An :class:`InputError` is raised on every process alike.
        """
        is_first = self.rank == self.host_mates[0]
        values = self.shared_on_host(lambda: action() if is_first else None)
        return self.everywhere(action) if values is None else values[0]  # type: ignore[return-value]

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model with gradients averaged over the processes, or the model itself without a process group.

        Weights and buffers of process 0 replace those of the others. Buffers are constants here, so they are
        not sent again in every step. Parameters without elements have no gradient and are left out.
        """
        if self.backend is None:
            return model
        for buffer in model.buffers():
            # A broadcast writes into contiguous memory; some buffers are views of it.
            sent = buffer.detach().contiguous()
            dist.broadcast(sent, src=0)
            buffer.data.copy_(sent)
        # It looks for trainable parameters once, when it is made.
        with frozen(parameter for parameter in model.parameters() if parameter.numel() == 0):
            return nn.parallel.DistributedDataParallel(
                model,
                device_ids=[self.device] if self.device.type in ("cuda", "xpu") else None,
                process_group=gradients_group(self.timeout),
                **{_SYNCHRONISE_BUFFERS: False},  # type: ignore[arg-type]
            )


@dataclass(frozen=True)
class PendingSum:
    """A sum over the processes that is under way."""

    total: torch.Tensor
    work: dist.Work | None

    def wait(self) -> torch.Tensor:
        """The sum."""
        if self.work is not None:
            self.work.wait()
        return self.total


# The switch has another name in new versions of torch, which warn about the old one.
_SYNCHRONISE_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in signature(nn.parallel.DistributedDataParallel.__init__).parameters
)


def _leave_group(ranks: Ranks, failed: bool) -> None:
    """Take the process group down without waiting for anybody.

    After an exception the others may be in the middle of a collective; closing our connections tells them.
    NCCL would first wait for its outstanding work, so then its group is left to the end of the process.
    """
    if failed and ranks.backend == "nccl":
        return
    dist.destroy_process_group()


@contextmanager
def open_ranks(
    device: str, distributed: bool, launcher: str | None = None, timeout: float | None = None
) -> Iterator[Ranks]:
    """Find out how this process was started, pin its device, and join the others.

    Until the end a stop signal is noted in ``ranks.stop`` and does nothing else.

    Args:
        device: "cpu", "cuda" (each process gets the GPU of its local rank), "mps" or "xpu".
        distributed: the user asked for several processes. Implied when a launcher started the process.
        launcher: name of the launcher, "none", or None to recognise it.
        timeout: seconds that processes wait for each other, None for torch's.

    Raises:
        InputError: no launcher although ``distributed``; a device that does not exist; processes that cannot
            find each other.
    """
    hang_up(None)
    launch = find_launch(os.environ, launcher)
    if distributed and launch is None:
        raise InputError(
            "--distributed was given, but no launcher started this process: use torchrun --nproc_per_node=N "
            "--no-python mace_run_train ..., srun or mpirun, or leave --distributed out to train in one "
            "process"
        )
    placement = place(launch, device)
    placement.pin()
    if launch is None or placement.backend is None:
        with stop_wishes(()) as stop:
            yield Ranks(device=placement.device, started=describe(None, placement, ()), stop=stop)
        return
    with _joined(launch, placement, timeout) as ranks, stop_wishes(ranks.peers) as stop:
        yield replace(ranks, stop=stop)


@contextmanager
def _joined(launch: Launch, placement: Placement, timeout: float | None) -> Iterator[Ranks]:
    """The processes of the run; the group is left at the end."""
    store, members = join_group(launch, placement, timeout)
    ranks = Ranks(
        rank=launch.rank,
        world_size=launch.world_size,
        device=placement.device,
        backend=placement.backend,
        timeout=timeout,
        started=describe(launch, placement, members),
    )
    failed = True
    try:
        peers = tuple(ranks.gather(Peer.myself(ranks.rank)))
        hang_up(Board(store, ranks.rank, peers, is_keeper=launch.rank == 0 and not launch.has_store))
        yield replace(ranks, peers=peers)
        failed = False
    except BaseException as error:
        claim_word(error)
        raise
    finally:
        _leave_group(ranks, failed)
