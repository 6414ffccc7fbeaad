"""The device of this process, and the back end with which processes on such devices talk."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from mace.exceptions import InputError
from mace.tools.ranks.launch import Launch

# What hides GPUs from a process, by device type; for messages.
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}
# With what several processes talk, by device type.
BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}


@dataclass(frozen=True)
class Placement:
    """Where this process computes.

    Attributes:
        device: with its index, where the kind of device has several.
        backend: name of the back end; None where no process group is needed, or none is possible.
    """

    device: torch.device
    backend: str | None = None

    def pin(self) -> None:
        """Make the GPU the one that torch uses where nothing is said; nothing for other devices.

        Before the process group exists: a back end that starts on the wrong GPU keeps memory there.
        """
        if self.device.type in _VISIBLE:
            _gpus(self.device).set_device(self.device)

    def identity(self) -> str | None:
        """A text that is the same for two processes exactly if they share a GPU; None if torch has none."""
        if self.device.type not in _VISIBLE:
            return None
        unique = getattr(_gpus(self.device).get_device_properties(self.device), "uuid", None)
        return None if unique is None else str(unique)


def place(launch: Launch | None, device: str) -> Placement:
    """Choose device and back end of this process.

    Every process gets the GPU with the number of its local rank, or the only one that it is shown.

    Args:
        launch: what the launcher told, None for a plain process.
        device: "cpu", "cuda", "xpu" or "mps"; with an index ("cuda:1") for one process only.

    Raises:
        InputError: the device does not exist here, it cannot be used by several processes, or there are more
            processes than GPUs.
    """
    chosen = available_device(device)
    if chosen.type in _VISIBLE:
        chosen = _own_gpu(launch, chosen)
    if launch is None or (chosen.type == "mps" and launch.world_size == 1):
        return Placement(chosen)
    return Placement(chosen, _backend(chosen))


def available_device(device_str: str) -> torch.device:
    """The torch device of that name.

    Raises:
        InputError: this installation of torch or this machine lacks the device.
    """
    kind = device_str.split(":")[0]
    available: dict[str, Callable[[], bool]] = {
        "cpu": lambda: True,
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "xpu": torch.xpu.is_available,
    }
    if kind not in available:
        raise InputError(f"unknown device {device_str!r}; known are {', '.join(available)}")
    if not available[kind]():
        raise InputError(
            f"device {device_str!r} was asked for, but torch {torch.__version__} finds none"
            f"{_visible(kind)}; use cpu"
        )
    try:
        device = torch.device(device_str)
    except RuntimeError:
        raise InputError(f"{device_str!r} is no name of a device, such as cpu, cuda or cuda:0") from None
    if kind in _VISIBLE and device.index is not None and device.index >= _gpus(device).device_count():
        raise InputError(
            f"device {device_str!r} was asked for, but there are only {_gpus(device).device_count()}"
            f"{_visible(kind)}"
        )
    return device


def _own_gpu(launch: Launch | None, device: torch.device) -> torch.device:
    if device.index is None:
        return torch.device(device.type, own_gpu_number(launch, device.type, _gpus(device).device_count()))
    if launch is not None and launch.world_size > 1:
        raise InputError(
            f"--device {device} names one GPU, but {launch.world_size} processes were started: use "
            f"--device {device.type}"
        )
    return device


def own_gpu_number(launch: Launch | None, kind: str, count: int) -> int:
    """The number of this process's GPU among the ``count``, 1 or more, of that kind that it sees.

    Raises:
        InputError: there are more processes than GPUs.
    """
    if launch is None or launch.world_size == 1:
        return 0
    if count == 1:
        # Each process is shown its own, or all are shown the same one: that comes out when they meet.
        return 0
    if launch.local_world_size is not None and launch.local_world_size > count:
        raise InputError(
            f"{launch.local_world_size} processes were started on this host, but torch sees {count} GPUs"
            f"{_visible(kind)}: start one process a GPU"
        )
    if launch.local_rank >= count:
        raise InputError(
            f"process {launch.rank} wants GPU {launch.local_rank}, but torch sees {count}"
            f"{_visible(kind)}: start one process a GPU"
        )
    return launch.local_rank


def is_built(backend: str) -> bool:
    """Whether torch was built with a back end; torch without torch.distributed has none; old, no xccl."""
    return bool(getattr(dist, f"is_{backend}_available", bool)())


def _backend(device: torch.device) -> str:
    """The back end for several processes on such devices.

    Raises:
        InputError: there is none, or this torch was built without it.
    """
    if device.type not in BACKENDS:
        raise InputError(
            f"--device {device.type} works in one process only; several can train on {', '.join(BACKENDS)}"
        )
    name = BACKENDS[device.type]
    if not is_built(name):
        raise InputError(
            f"several processes on --device {device.type} need the back end {name}, which torch "
            f"{torch.__version__} was built without: train in one process, or install a torch that has it"
        )
    return name


def _gpus(device: torch.device) -> Any:
    """``torch.cuda`` or ``torch.xpu``."""
    return getattr(torch, device.type)


def _visible(kind: str) -> str:
    """A remark about the variable that hides GPUs, if there is one and it is set."""
    name = _VISIBLE.get(kind)
    if name is None or name not in os.environ:
        return ""
    return f" ({name} is '{os.environ[name]}')"
