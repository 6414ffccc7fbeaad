"""Signals with which a queue asks a run to stop: the end of its time, or somebody who needs the machine."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from mace.tools.ranks.peers import Peer, PeerLost, ended

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopWish:
    """Whether somebody has asked this process to stop; ``signal`` says how."""

    def __init__(self) -> None:
        self.signal: str | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def stop_wishes(peers: Sequence[Peer]) -> Iterator[StopWish]:
    """Within it a stop signal is noted, not obeyed; the caller looks at the wish where it can stop.

    A launcher sends the same signal to those that are left when a process of the run has died. Then there is
    nobody to be in step with, and the signal ends this process with :class:`PeerLost`. Signals reach the main
    thread only; in another thread the wish stays unspoken.
    """
    wish = StopWish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return

    def note(number: int, frame: FrameType | None) -> None:
        wish.signal = signal.Signals(number).name
        if dead := ended(peers):
            raise PeerLost(f"{dead[0]} has ended")

    before = {number: signal.signal(number, note) for number in STOP_SIGNALS}
    failed = True
    try:
        yield wish
        failed = False
    finally:
        # A process that fails among others is to end with its own status, not by the launcher's signal.
        if not (failed and peers):
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)  # None: it was not set from Python


def ignore_stop_signals() -> None:
    """Let stop signals pass: this process is about to end by itself."""
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def spare_worker(number: int) -> None:
    """Begin a worker of a data loader: signals to the whole group are its owner's to obey, who needs it."""
    ignore_stop_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
