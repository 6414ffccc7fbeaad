"""The last words of a process: told once for the whole run, by the process that failed first.

A process that fails takes the others with it: they lose contact in the middle of something, and what they
could say would only hide the cause. So the first to fail claims the word, on a board that all can reach, and
tells everything; the others end quietly. What was told also goes to the launcher, as torchrun wants it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch.distributed as dist

from mace.exceptions import InputError, RunError, StopRequested
from mace.tools.ranks.launchers import rank_and_size
from mace.tools.ranks.peers import Peer, PeerLost, troubles
from mace.tools.ranks.stopping import ignore_stop_signals

_KEY = "failed"  # in the store: how many processes have
_PATIENCE = 3.0  # seconds that a process that lost contact leaves to the one that failed
_GRACE = 2.0  # seconds that rank 0 stays after it has spoken, before there is a board
# What torch's back ends say when another process is gone or does not answer.
_LOST_CONTACT = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "gloo/transport",
    "Timed out waiting",
    "Timeout waiting",
    "NCCL communicator was aborted",
    "ncclRemoteError",
    "ncclSystemError",
    "Watchdog caught collective operation timeout",
)


@dataclass
class Board:
    """Where the processes of a run leave word that one of them has failed."""

    store: dist.Store
    rank: int
    peers: Sequence[Peer]
    is_keeper: bool  # whether the store is in this process
    is_first: bool | None = None  # None until this process has failed

    def claim(self) -> bool:
        """Whether this process is the first that failed; if the store does not answer, nobody can tell."""
        if self.is_first is None:
            answers: list[bool] = []
            asking = threading.Thread(target=self._ask, args=(answers,), daemon=True)
            asking.start()
            asking.join(_PATIENCE)
            self.is_first = answers[0] if answers else True
        return self.is_first

    def _ask(self, answers: list[bool]) -> None:
        """In a thread: torch waits without end for a store whose process is stopped."""
        with contextlib.suppress(RuntimeError):  # the store is gone with its process
            answers.append(self.store.add(_KEY, 1) == 1)


_board: Board | None = None


def hang_up(board: Board | None) -> None:
    """Make a board the one of this process; None takes it down."""
    global _board
    _board = board


def claim_word(error: BaseException) -> None:
    """Claim the word for this process as soon as it fails, before others notice that it does not answer."""
    if _board is not None and not is_lost_contact(error):
        _board.claim()


def end(program: str, error: BaseException) -> NoReturn:
    """Say why this process ends, once for all processes that end for the same reason, and exit.

    Call it in the main thread, where ``error`` is being handled. Stop signals pass from now on: a launcher
    sends them to the others as soon as one process has ended, and each is to end with its own status.

    Args:
        program: name of the command.
        error: what ended it. Errors of the user and of the run are one line, others a traceback.
    """
    if _board is not None:
        ignore_stop_signals()
    own = not is_lost_contact(error)
    if not own and _board is not None:
        # Launchers take the process that ends first for the cause; and a process that is being killed closes
        # its connections before the system says that it has ended.
        time.sleep(_PATIENCE)
    message = _message(program, error) if own else _lost_contact_message(program, error)
    if own:
        _record_for_launcher(error, message)
    if _board is not None:
        if _board.claim():
            _speak(message)
        if _board.is_keeper:
            time.sleep(_PATIENCE + 1.0)  # with this process goes the board that the others have to read
        _exit_at_once(_status(error))
    report_failure(message)
    sys.exit(_status(error))


def is_lost_contact(error: BaseException) -> bool:
    """Whether an error only says that another process is gone or does not answer."""
    if isinstance(error, (PeerLost, dist.DistNetworkError, dist.DistStoreError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _LOST_CONTACT)


def report_once(message: str) -> None:
    """Print a message on stderr from the first process only; needs no process group."""
    if rank_and_size(os.environ)[0] == 0:
        _speak(message)


def report_failure(message: str, patience: float = 12.0) -> None:
    """Print why this process is about to end where there is no board: before the processes have met.

    A launcher stops the other processes as soon as one has ended. So that the first process can speak
    before, and so that every process ends with the status of its failure, the others wait for the launcher's
    signal, which no longer ends them. If none comes within ``patience`` seconds the failure was this
    process's alone, and it speaks itself. The first process stays for a moment after it has spoken: others
    may not have got as far as their failure.
    """
    rank, size = rank_and_size(os.environ)
    if rank == 0:
        is_alone = size == 1
        if not is_alone:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _speak(message)
        if not is_alone:
            time.sleep(_GRACE)
        return
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if not stopped.wait(patience):
        _speak(f"rank {rank}: {message}")


def _speak(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _exit_at_once(status: int) -> NoReturn:
    """End without taking anything down: what waits for other processes there may wait for ever."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _message(program: str, error: BaseException) -> str:
    if isinstance(error, StopRequested):
        return f"{program}: {error}"
    if isinstance(error, (InputError, RunError)):
        return f"{program}: error: {error}"
    if isinstance(error, KeyboardInterrupt):
        return f"{program}: interrupted"
    told = "".join(traceback.format_exception(error))
    return told if _board is None else f"{program}: rank {_board.rank} failed:\n{told}"


def _lost_contact_message(program: str, error: BaseException) -> str:
    """Which process is gone, as far as it can be known, and what the back end said."""
    found = [] if _board is None else troubles(_board.peers)
    who = (
        "; ".join(found)
        or "another process of the run, perhaps on another host, has ended or does not answer"
    )
    me = rank_and_size(os.environ)[0] if _board is None else _board.rank
    # Back ends put the place in their source before what they say, and advice after it.
    said = re.sub(r"^\[[^]]*\] *", "", str(error).strip().partition("\n")[0]).partition(". This is")[0]
    return (
        f"{program}: error: rank {me} lost contact: {who} (killed, out of memory, or longer than "
        f"--dist_timeout in something else); {said}"
    )


def _status(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    return getattr(error, "status", 1)


def _record_for_launcher(error: BaseException, message: str) -> None:
    """Leave the cause where torchrun looks for it; its report then shows it for this rank."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path is None:
        return
    extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
    content = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
    except OSError as refusal:  # a full disk, perhaps the very cause: what is printed says it as well
        logging.getLogger(__name__).debug("torchrun is not told: %s", refusal)
