"""A record of the exchanges between processes, for runs that hang."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist

_logger = logging.getLogger(__name__)
# What the rest of the package calls; gradients are exchanged by torch itself, which logs them with DETAIL.
_EXCHANGES = ("all_reduce", "all_gather_object", "broadcast", "broadcast_object_list", "barrier")


def watch_exchanges() -> None:
    """Let torch check that all processes call the same collectives, and log each call of this one.

    Call it before the process group is made. It costs an exchange more for each.
    """
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    for name in _EXCHANGES:
        call = getattr(dist, name)
        if call.__module__ != __name__:
            setattr(dist, name, _logged(name, call))


def gradients_group(timeout: float | None) -> dist.ProcessGroup | None:
    """The process group for gradients; None for the default one. All processes must call this.

    ``timeout`` is in seconds, None for torch's. torch 2.13 dies of a segmentation fault in
    DistributedDataParallel over the group that checks collectives, so gradients are then exchanged over one
    that does not.
    """
    if dist.get_debug_level() != dist.DebugLevel.DETAIL:
        return None
    dist.set_debug_level(dist.DebugLevel.INFO)
    try:
        return dist.new_group(timeout=None if timeout is None else timedelta(seconds=timeout))
    finally:
        dist.set_debug_level(dist.DebugLevel.DETAIL)


def _logged(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    number = 0

    @wraps(call)
    def logged(*args: Any, **kwargs: Any) -> Any:
        nonlocal number
        number += 1
        _logger.debug("Exchange %s %d begins: %s", name, number, ", ".join(map(_shown, args)))
        result = call(*args, **kwargs)
        under_way = kwargs.get("async_op", False)
        _logger.debug("Exchange %s %d %s", name, number, "is under way" if under_way else "has ended")
        return result

    logged.__module__ = __name__
    return logged


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {list(value.shape)}"
    return type(value).__name__
