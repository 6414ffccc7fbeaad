"""Devices, back ends, cores and network interfaces against what the run asks for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from mace.doctor.findings import Finding, error, listed, note, ok, warning
from mace.exceptions import InputError
from mace.tools.ranks.launch import Launch
from mace.tools.ranks.placement import BACKENDS, is_built, own_gpu_number

_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The facts that the checks below look at."""

    device: str  # what the run asks for
    launch: Launch | None  # what a run would find; None for a plain process
    environment: Mapping[str, str]
    cuda_of_torch: str | None  # the CUDA version that torch was built for; None: for CPUs
    gpus: int  # that torch sees
    cores: int  # of the machine
    usable_cores: int  # by this process
    backends: frozenset[str]  # that torch was built with
    interfaces: frozenset[str]

    @classmethod
    def here(cls, device: str, launch: Launch | None, environment: Mapping[str, str] = os.environ) -> Machine:
        """This machine."""
        cores = os.cpu_count() or 1
        affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
        return cls(
            device=device,
            launch=launch,
            environment=dict(environment),
            cuda_of_torch=torch.version.cuda,
            gpus=torch.cuda.device_count() if torch.cuda.is_available() else 0,
            cores=cores,
            usable_cores=cores if affinity is None else len(affinity(0)),
            backends=frozenset(name for name in BACKENDS.values() if is_built(name)),
            interfaces=frozenset(name for _, name in socket.if_nameindex()),
        )

    @property
    def local_size(self) -> int:
        """The number of processes of the run on this machine; 1 where the launcher does not say."""
        return 1 if self.launch is None else self.launch.local_world_size or 1


def check_device(machine: Machine) -> Iterator[Finding]:
    """The device is there, and there is one for each process."""
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES", "<unset>")
    if machine.device == "cpu" and machine.gpus:
        yield note(
            "gpu-idle",
            f"--device=cpu, and torch sees {machine.gpus} GPU(s)",
            "give --device=cuda to use them",
        )
    if machine.device != "cuda":
        yield ok("device", f"--device={machine.device}: {machine.usable_cores} of {machine.cores} cores")
    elif machine.gpus == 0:
        reason = (
            "torch was built for CPUs"
            if machine.cuda_of_torch is None
            else f"torch was built for CUDA {machine.cuda_of_torch}"
        )
        yield error(
            "device-missing",
            f"--device=cuda, but torch sees no GPU ({reason}, CUDA_VISIBLE_DEVICES={visible})",
            "install torch for CUDA, load the driver, or set CUDA_VISIBLE_DEVICES; nvidia-smi lists the GPUs",
        )
    elif (refusal := _refusal_of_gpu(machine)) is not None:
        yield error("gpu-few", refusal, "start one process for each GPU")
    else:
        yield ok("device", f"--device=cuda: {machine.gpus} GPU(s), CUDA {machine.cuda_of_torch}")


def _refusal_of_gpu(machine: Machine) -> str | None:
    """Why a run would find no GPU for this process, if it would not."""
    try:
        own_gpu_number(machine.launch, machine.device, machine.gpus)
    except InputError as refusal:
        return str(refusal)
    return None


def check_backend(machine: Machine) -> Iterator[Finding]:
    """Torch can let several processes talk on that device."""
    wanted = BACKENDS.get(machine.device)
    if wanted is None or wanted in machine.backends:
        return
    there = listed(sorted(machine.backends)) or "none"
    text = (
        f"several processes on {machine.device} talk over {wanted}, which this torch lacks (it has {there})"
    )
    cure = "install a build of torch with it, or train in one process"
    yield (
        note("backend-missing", text, cure)
        if machine.launch is None
        else error("backend-missing", text, cure)
    )


def check_threads(machine: Machine) -> Iterator[Finding]:
    """The processes share the cores."""
    threads = machine.environment.get("OMP_NUM_THREADS", "")
    if not threads.isdigit() or machine.device != "cpu":
        return
    needed = int(threads) * machine.local_size
    here = f"OMP_NUM_THREADS={threads} and {machine.local_size} process(es) on {machine.cores} cores"
    # A launcher may have given each process cores of its own: then its threads must fit on those.
    if needed > machine.cores or int(threads) > machine.usable_cores:
        best = max(1, min(machine.cores // machine.local_size, machine.usable_cores))
        yield warning("threads-many", f"{here}: threads wait for each other", f"set OMP_NUM_THREADS={best}")
    elif 2 * needed <= machine.cores:
        best = machine.cores // machine.local_size
        yield note("threads-few", f"{here}: some are idle", f"up to OMP_NUM_THREADS={best} has room")


def check_interfaces(machine: Machine) -> Iterator[Finding]:
    """The network interfaces that the environment names exist."""
    for variable in _INTERFACES:
        value = machine.environment.get(variable, "")
        missing = [name for name in _named(value) if not _exists(name, variable, machine.interfaces)]
        if missing:
            yield error(
                "interface-missing",
                f"{variable}={value}, and there is no interface {listed(missing)} here: there are "
                f"{', '.join(sorted(machine.interfaces))}",
                f"set {variable} to one of them, or unset it",
            )


def _named(value: str) -> list[str]:
    """The interfaces that a variable asks for; NCCL's "^" excludes, which needs none to exist."""
    return [] if value.startswith("^") else [name for name in value.removeprefix("=").split(",") if name]


def _exists(name: str, variable: str, interfaces: frozenset[str]) -> bool:
    """NCCL takes the beginning of a name, and may have a port after it."""
    if variable.startswith("NCCL"):
        return any(interface.startswith(name.split(":")[0]) for interface in interfaces)
    return name in interfaces


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    check_device,
    check_backend,
    check_threads,
    check_interfaces,
)


def examine_machine(machine: Machine) -> list[Finding]:
    """Run all checks of this module."""
    return [finding for check in CHECKS for finding in check(machine)]
