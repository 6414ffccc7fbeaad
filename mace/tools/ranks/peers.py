"""The processes of a run as the operating system sees them: which one has ended, or is stopped."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# What the kernel's letter for the state of a process means to those that wait for it.
_TROUBLES = {"": "has ended", "Z": "has ended", "X": "has ended", "T": "is stopped", "t": "is stopped"}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One process of the run."""

    rank: int
    host: str
    pid: int
    place: str  # where its number means this process

    @classmethod
    def myself(cls, rank: int) -> Peer:
        """This process."""
        return cls(rank=rank, host=socket.gethostname(), pid=os.getpid(), place=_place())

    @property
    def trouble(self) -> str | None:
        """What this host knows to be wrong with the process; None if it runs, or runs elsewhere."""
        if self.place != _place():
            return None
        return _TROUBLES.get(_process_state(self.pid))

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


class PeerLost(BaseException):
    """Another process of the run has ended, so that there is nobody left to be in step with.

    No kind of Exception: it is raised wherever a signal finds the process, and nothing there is to catch it.
    """


def troubles(peers: Iterable[Peer]) -> list[str]:
    """One text for each process in trouble."""
    return [f"{peer} {trouble}" for peer in peers if (trouble := peer.trouble) is not None]


def ended(peers: Iterable[Peer]) -> list[Peer]:
    """Those processes of this host that are not there any more."""
    return [peer for peer in peers if peer.trouble == "has ended"]


def _place() -> str:
    """What tells hosts, and containers of one host, apart: names of hosts may be the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # no Linux
        return socket.gethostname()


def _process_state(pid: int) -> str:
    """The kernel's letter for the state of a process, "" if there is none, "?" where it cannot be known."""
    if not Path("/proc/self/stat").exists():
        return "?"
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text.rpartition(")")[2].split()[0]
