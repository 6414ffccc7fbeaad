"""Start two (or more) real processes on gloo, without a launcher in between, and collect what they return."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as mp

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
    context = mp.get_context("spawn")
    answers = context.Queue()
    port = free_port()
    processes = [
        context.Process(target=_one_rank, args=(rank, world_size, port, answers, work, arguments))
        for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    try:
        collected = dict(answers.get(timeout=TIMEOUT) for _ in processes)
    finally:
        for process in processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()
    return [collected[rank] for rank in range(world_size)]


def _one_rank(rank: int, world_size: int, port: int, answers: Any, work: Callable, arguments: tuple) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
    )
    torch.set_num_threads(1)
    try:
        with open_ranks("cpu", distributed=False) as ranks:
            answer = work(ranks, *arguments)
    except Exception:
        answers.put((rank, traceback.format_exc()))  # the parent shows it instead of waiting
        raise
    answers.put((rank, answer))


def on_one_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """The same work in this process, without a group."""
    return work(Ranks.single(), *arguments)
