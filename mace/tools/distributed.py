"""The one room that knows ranks: who started this process, how many there are, and how they talk.

Everything else is handed a :class:`Ranks` and asks it; with one process the same methods do the obvious.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.constants import default_pg_timeout

from mace.exceptions import InputError, StopRequested
from mace.tools.ranks.failures import Board, claim_word, hang_up
from mace.tools.ranks.peers import Peer
from mace.tools.ranks.stopping import StopWish, stop_wishes
from mace.tools.torch_tools import available_device, frozen

T = TypeVar("T")

# Back end by device type. More than one process on any other device is refused.
_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_STORE_PATIENCE = 30.0  # seconds within which the store of process 0 answers, once something listens


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among the processes of the run.

    ``backend`` is None exactly when there is no process group (one process that no launcher started).
    ``stop`` says whether somebody has asked this process to stop; that of the others is theirs to tell.
    """

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    device: torch.device
    backend: str | None = None
    launcher: str = "none"
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
            local_rank=int(os.environ.get("LOCAL_RANK", dist.get_rank())),
            world_size=dist.get_world_size(),
            device=torch.device(device),
            backend=dist.get_backend(),
            launcher="the caller",
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
            raise self.stop_requested()

    def stop_requested(self) -> StopRequested:
        """The exception for a stop that all processes know of."""
        return StopRequested(f"stopped by {self.stop.signal or 'a signal to another process of the run'}")

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

    def wrap(self, model: nn.Module, find_unused_parameters: bool = False) -> nn.Module:
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
                device_ids=[self.device] if self.device.type == "cuda" else None,
                find_unused_parameters=find_unused_parameters,
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


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a launcher told this process."""

    launcher: str
    rank: int
    local_rank: int
    world_size: int
    address: str
    port: int


def _torchrun_launch(environment: Mapping[str, str]) -> Launch | None:
    """The variables of torchrun (torch elastic), or None if it did not start this process."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    missing = [name for name in names if name not in environment]
    if missing:
        raise InputError(
            f"RANK and WORLD_SIZE are set as torchrun does, but not {', '.join(missing)}: start them with "
            "torchrun, or unset RANK and WORLD_SIZE to train in one process"
        )
    numbers = {name: _whole_number(environment, name) for name in names if name != "MASTER_ADDR"}
    return Launch(
        launcher="torchrun",
        rank=numbers["RANK"],
        local_rank=numbers["LOCAL_RANK"],
        world_size=numbers["WORLD_SIZE"],
        address=environment["MASTER_ADDR"],
        port=numbers["MASTER_PORT"],
    )


def _whole_number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise InputError(
            f"environment variable {name} is '{environment[name]}', not a whole number"
        ) from None


# Asked in this order; the first that recognises its variables wins.
_LAUNCHERS: dict[str, Callable[[Mapping[str, str]], Launch | None]] = {"torchrun": _torchrun_launch}


def find_launch(environment: Mapping[str, str], launcher: str | None = None) -> Launch | None:
    """The launcher that started this process, or None for a plain process.

    Args:
        environment: environment variables of the process.
        launcher: name of the launcher to ask, "none" to ask nobody, None to ask all.

    Raises:
        InputError: the launcher is unknown, its variables are missing or make no sense.
    """
    if launcher == "none":
        return None
    if launcher is None:
        return next((found for ask in _LAUNCHERS.values() if (found := ask(environment)) is not None), None)
    if launcher not in _LAUNCHERS:
        raise InputError(f"launcher '{launcher}' is not known; choose one of {', '.join(_LAUNCHERS)}, none")
    found = _LAUNCHERS[launcher](environment)
    if found is None:
        raise InputError(
            f"--launcher {launcher} was given, but {launcher} did not start this process: its environment "
            "variables are missing"
        )
    return found


def _place(launch: Launch | None, device: str) -> Ranks:
    """Choose device and back end of this process.

    Raises:
        InputError: the device does not exist here, or it cannot be used by several processes.
    """
    chosen = available_device(device)
    if launch is None:
        return Ranks.single(torch.device("cuda", chosen.index or 0) if chosen.type == "cuda" else chosen)
    if chosen.type not in _BACKENDS:
        raise InputError(
            f"--device {device} works in one process only; several can train on {' or '.join(_BACKENDS)}"
        )
    if chosen.type == "cuda":
        chosen = _local_gpu(launch, chosen)
    return Ranks(
        rank=launch.rank,
        local_rank=launch.local_rank,
        world_size=launch.world_size,
        device=chosen,
        backend=_BACKENDS[chosen.type],
        launcher=launch.launcher,
    )


def _local_gpu(launch: Launch, device: torch.device) -> torch.device:
    """The GPU that belongs to this process: the one with the number of its local rank."""
    if device.index is not None and launch.world_size > 1:
        raise InputError(
            f"--device {device} names one GPU, but {launch.world_size} processes were started: use "
            "--device cuda"
        )
    index = launch.local_rank if device.index is None else device.index
    count = torch.cuda.device_count()
    if index >= count:
        raise InputError(
            f"process {launch.rank} wants GPU {index}, but torch sees {count} (CUDA_VISIBLE_DEVICES="
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', '<unset>')}): start one process a GPU"
        )
    return torch.device("cuda", index)


def _join_group(ranks: Ranks, launch: Launch) -> None:
    """Make the process group.

    Raises:
        InputError: the processes cannot find each other, for example because the port is in use.
    """
    try:
        if ranks.rank != 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            _require_store(launch)
        dist.init_process_group(ranks.backend, rank=ranks.rank, world_size=ranks.world_size)
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        if "EADDRINUSE" in str(error):
            raise _port_in_use(launch) from None
        raise InputError(
            f"the {ranks.world_size} processes could not find each other at {launch.address}:{launch.port}: "
            f"{str(error).splitlines()[0]}"
        ) from None


def _port_in_use(launch: Launch) -> InputError:
    return InputError(
        f"port {launch.port} on {launch.address} is in use by another program: choose another one with "
        "torchrun --master_port, or let torchrun --standalone find a free one"
    )


def _require_store(launch: Launch) -> None:
    """Wait for the store of process 0, where no agent of torchrun has one.

    If another program has taken the port, process 0 cannot serve there and ends. Torch would connect to that
    program and wait for its answer without end, so a thread does, and is left behind.

    Raises:
        InputError: something listens, and does not answer as a store in time.
        DistNetworkError: nobody listens within torch's time for it.
    """
    failures: list[Exception] = []
    waiting = threading.Thread(target=_connect, args=(launch, failures), daemon=True)
    waiting.start()
    listened_since = None
    while waiting.is_alive():
        waiting.join(timeout=0.5)
        if listened_since is None and _listens(launch):
            listened_since = time.monotonic()
        if listened_since is not None and time.monotonic() - listened_since > _STORE_PATIENCE:
            raise _port_in_use(launch)
    for failure in failures:
        raise failure


def _connect(launch: Launch, failures: list[Exception]) -> None:
    try:
        dist.TCPStore(
            launch.address,
            launch.port,
            is_master=False,
            wait_for_workers=False,
            timeout=default_pg_timeout,
        )
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        failures.append(error)


def _listens(launch: Launch) -> bool:
    try:
        with socket.create_connection((launch.address, launch.port), timeout=1.0):
            return True
    except OSError:
        return False


def _leave_group(ranks: Ranks, failed: bool) -> None:
    """Take the process group down without waiting for anybody.

    After an exception the others may be in the middle of a collective; closing our connections tells them.
    NCCL would first wait for its outstanding work, so then its group is left to the end of the process.
    """
    if failed and ranks.backend == "nccl":
        return
    dist.destroy_process_group()


@contextmanager
def open_ranks(device: str, distributed: bool, launcher: str | None = None) -> Iterator[Ranks]:
    """Find out how this process was started, pin its device, and join the others.

    Until the end a stop signal is noted in ``ranks.stop`` and does nothing else.

    Args:
        device: "cpu", "cuda" (each process gets the GPU of its local rank), "mps" or "xpu".
        distributed: the user asked for several processes. Implied when a launcher started the process.
        launcher: name of the launcher, "none", or None to recognise it.

    Raises:
        InputError: no launcher although ``distributed``; a device that does not exist; processes that cannot
            find each other.
    """
    hang_up(None)
    launch = find_launch(os.environ, launcher)
    if distributed and launch is None:
        raise InputError(
            "--distributed was given, but no launcher started this process: use torchrun --nproc_per_node=N "
            "--no-python mace_run_train ..., or leave --distributed out to train in one process"
        )
    ranks = _place(launch, device)
    if ranks.device.type == "cuda":
        # Before the group exists: a back end that starts on the wrong GPU keeps memory there.
        torch.cuda.set_device(ranks.device)
    if launch is None:
        with stop_wishes(()) as stop:
            yield replace(ranks, stop=stop)
        return
    _join_group(ranks, launch)
    failed = True
    try:
        peers = tuple(ranks.gather(Peer.myself(ranks.rank)))
        hang_up(_board(launch, peers))
        with stop_wishes(peers) as stop:
            yield replace(ranks, peers=peers, stop=stop)
        failed = False
    except BaseException as error:
        claim_word(error)
        raise
    finally:
        _leave_group(ranks, failed)


def _board(launch: Launch, peers: tuple[Peer, ...]) -> Board:
    """The board of this run, on a connection of its own to the store where the processes have met."""
    store = dist.TCPStore(launch.address, launch.port, is_master=False, wait_for_workers=False)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Board(store, launch.rank, peers, f"cp-mace/failed/{attempt}")
