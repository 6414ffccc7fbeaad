"""Devices, threads and interfaces against what the run asks for."""

from dataclasses import replace

import pytest

from mace.doctor.findings import Severity
from mace.doctor.machine import Machine, examine_machine

CPU = Machine(
    device="cpu",
    environment={},
    cuda_of_torch=None,
    gpus=0,
    cores=8,
    usable_cores=8,
    backends=frozenset({"gloo"}),
    interfaces=frozenset({"lo", "eth0"}),
)
CUDA = replace(CPU, device="cuda", cuda_of_torch="12.4", gpus=2, backends=frozenset({"gloo", "nccl"}))
TWO = {"LOCAL_WORLD_SIZE": "2"}


def codes(machine):
    return {finding.code: finding for finding in examine_machine(machine)}


def with_environment(machine=CPU, **environment):
    return replace(machine, environment=environment)


@pytest.mark.parametrize(
    ("code", "machine", "severity", "value", "without"),
    [
        ("gpu-idle", replace(CUDA, device="cpu"), "note", "2 GPU(s)", CUDA),
        ("device-missing", replace(CUDA, gpus=0), "error", "CUDA 12.4", CUDA),
        ("device-missing", replace(CPU, device="cuda"), "error", "torch was built for CPUs", CPU),
        (
            "device-missing",
            replace(CUDA, gpus=0, environment={"CUDA_VISIBLE_DEVICES": "-1"}),
            "error",
            "CUDA_VISIBLE_DEVICES=-1",
            CUDA,
        ),
        (
            "gpu-few",
            with_environment(CUDA, LOCAL_WORLD_SIZE="3"),
            "error",
            "3 processes on this machine and 2 GPU(s)",
            with_environment(CUDA, **TWO),
        ),
        (
            "backend-missing",
            replace(CUDA, backends=frozenset({"gloo"}), environment=TWO),
            "error",
            "nccl, which this torch lacks (it has gloo)",
            with_environment(CUDA, **TWO),
        ),
        ("backend-missing", replace(CPU, backends=frozenset()), "note", "it has none", CPU),
        (
            "threads-many",
            with_environment(OMP_NUM_THREADS="5", **TWO),
            "warning",
            "OMP_NUM_THREADS=5 and 2 process(es) on 8 cores",
            with_environment(OMP_NUM_THREADS="4", **TWO),
        ),
        (
            "threads-many",
            replace(with_environment(OMP_NUM_THREADS="4", **TWO), usable_cores=2),
            "warning",
            "OMP_NUM_THREADS=4",
            replace(with_environment(OMP_NUM_THREADS="2", **TWO), usable_cores=2),
        ),
        (
            "threads-few",
            with_environment(OMP_NUM_THREADS="1", **TWO),
            "note",
            "some are idle",
            with_environment(OMP_NUM_THREADS="3", **TWO),
        ),
        (
            "interface-missing",
            with_environment(GLOO_SOCKET_IFNAME="eth"),  # gloo wants the whole name
            "error",
            "there are eth0, lo",
            with_environment(GLOO_SOCKET_IFNAME="lo,eth0"),
        ),
        (
            "interface-missing",
            with_environment(NCCL_SOCKET_IFNAME="ib0"),
            "error",
            "NCCL_SOCKET_IFNAME=ib0",
            with_environment(NCCL_SOCKET_IFNAME="eth"),  # NCCL takes the beginning
        ),
        (
            "interface-missing",
            with_environment(NCCL_SOCKET_IFNAME="=ib0"),
            "error",
            "ib0",
            with_environment(NCCL_SOCKET_IFNAME="^ib0"),
        ),
    ],
)
def test_what_does_not_fit_is_named(code, machine, severity, value, without):
    assert code not in codes(without)
    finding = codes(machine)[code]
    assert finding.severity is Severity(severity)
    assert value in finding.found and finding.cure


@pytest.mark.parametrize("machine", [CPU, CUDA, with_environment(CUDA, **TWO)])
def test_a_machine_that_fits_is_one_line(machine):
    (finding,) = examine_machine(machine)
    assert finding.severity is Severity.OK and finding.code == "device"


def test_threads_do_not_matter_on_gpus():
    assert "threads-many" not in codes(with_environment(CUDA, OMP_NUM_THREADS="64"))


@pytest.mark.parametrize(
    "variable",
    ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"],
)
def test_processes_on_this_machine_are_counted(variable):
    assert with_environment(**{variable: "4"}).local_size == 4
    assert with_environment(**{variable: "4(x2)"}).local_size == 1


def test_this_machine_is_found():
    machine = Machine.here("cpu", {})
    assert "gloo" in machine.backends and "lo" in machine.interfaces
    assert 1 <= machine.usable_cores <= machine.cores
    assert not [f for f in examine_machine(machine) if f.severity is Severity.ERROR]
