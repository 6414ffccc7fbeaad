"""Start two (or more) real processes on gloo, without a launcher in between, and collect what they return."""

from __future__ import annotations

import multiprocessing as mp
import os
import socket
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from typing import Any

import torch

from mace.tools.distributed import Ranks, open_ranks

TIMEOUT = 300  # seconds a test waits for its processes


def free_port() -> int:
    """A port nobody listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def run_ranks(world_size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run ``work(ranks, *arguments)`` on ``world_size`` processes and return what each returned.

    An exception of a process stands in its place in the list (as text: traceback).
    """
    port = free_port()
    with ProcessPoolExecutor(world_size, mp_context=mp.get_context("spawn")) as pool:
        ranks = [
            pool.submit(_one_rank, rank, world_size, port, work, arguments) for rank in range(world_size)
        ]
        _, late = wait(ranks, timeout=TIMEOUT)
        for process in mp.active_children() if late else ():
            process.kill()
        return [_answer(rank) for rank in ranks]


def _answer(rank: Future[Any]) -> Any:
    error = rank.exception()
    if error is None:
        return rank.result()
    if error.__cause__ is None:
        raise error  # not one of the work: the process was killed
    return str(error.__cause__)  # the traceback in the other process


def _one_rank(rank: int, world_size: int, port: int, work: Callable, arguments: tuple) -> Any:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
    )
    torch.set_num_threads(1)
    with open_ranks("cpu", distributed=False) as ranks:
        return work(ranks, *arguments)


def on_one_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """The same work in this process, without a group."""
    return work(Ranks.single(), *arguments)
