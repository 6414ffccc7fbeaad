"""Devices, threads and interfaces against what the run asks for."""

from dataclasses import replace

import pytest

from mace.doctor.findings import Severity
from mace.doctor.launching import Start
from mace.doctor.machine import Machine, examine_machine
from tests.launcher_environments import (
    hydra,
    open_mpi_4,
    open_mpi_5,
    pals,
    plain_slurm,
    sbatch,
    srun,
    torchrun,
)

CPU = Machine(
    device="cpu",
    launch=None,
    environment={},
    cuda_of_torch=None,
    gpus=0,
    cores=8,
    usable_cores=8,
    backends=frozenset({"gloo"}),
    interfaces=frozenset({"lo", "eth0"}),
)
CUDA = replace(CPU, device="cuda", cuda_of_torch="12.4", gpus=2, backends=frozenset({"gloo", "nccl"}))
TWO = torchrun(0, 2)
ONE_HOST = {"nodes": "node7", "count": 1}


def without(environment, name):
    return {key: value for key, value in environment.items() if key != name}


def codes(machine):
    return {finding.code: finding for finding in examine_machine(machine)}


def with_environment(machine=CPU, **environment):
    """The machine as a process with these variables finds it."""
    return replace(machine, launch=Start.found(environment, None).launch, environment=environment)


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
            with_environment(CUDA, **torchrun(0, 3, per_node=3)),
            "error",
            "3 processes were started on this host, but torch sees 2 GPUs",
            with_environment(CUDA, **TWO),
        ),
        (
            "backend-missing",
            with_environment(replace(CUDA, backends=frozenset({"gloo"})), **TWO),
            "error",
            "nccl, which this torch lacks (it has gloo)",
            with_environment(CUDA, **TWO),
        ),
        ("backend-missing", replace(CPU, backends=frozenset()), "note", "it has none", CPU),
        (
            "threads-many",
            with_environment(**TWO | {"OMP_NUM_THREADS": "5"}),
            "warning",
            "OMP_NUM_THREADS=5 and 2 process(es) on 8 cores",
            with_environment(**TWO | {"OMP_NUM_THREADS": "4"}),
        ),
        (
            "threads-many",
            replace(with_environment(**TWO | {"OMP_NUM_THREADS": "4"}), usable_cores=2),
            "warning",
            "OMP_NUM_THREADS=4",
            replace(with_environment(**TWO | {"OMP_NUM_THREADS": "2"}), usable_cores=2),
        ),
        (
            "threads-few",
            with_environment(**TWO | {"OMP_NUM_THREADS": "1"}),
            "note",
            "some are idle",
            with_environment(**TWO | {"OMP_NUM_THREADS": "3"}),
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
    ("environment", "count"),
    [
        pytest.param({}, 1, id="no launcher"),
        pytest.param(sbatch(8, **ONE_HOST), 1, id="the script of a job of 8 tasks"),
        pytest.param(srun(0, 4, **ONE_HOST), 4, id="srun"),
        pytest.param(without(srun(0, 4, **ONE_HOST), "SLURM_NTASKS_PER_NODE"), 4, id="srun -n 4"),
        pytest.param(without(srun(0, 4), "SLURM_NTASKS_PER_NODE"), 2, id="srun -n 4 -N 2"),
        pytest.param(plain_slurm(0), 2, id="srun by hand"),
        pytest.param(open_mpi_4(0, 4, 4), 4, id="Open MPI 4"),
        pytest.param(open_mpi_5(0, 4, 4), 4, id="Open MPI 5"),
        pytest.param(hydra(0, 4, 4), 4, id="Hydra"),
        pytest.param(pals(0, 4, 4), 4, id="PALS"),
        pytest.param(torchrun(0, 8, per_node=4), 4, id="torchrun on two hosts"),
        pytest.param(sbatch(8, **ONE_HOST) | torchrun(0, 2), 2, id="torchrun in the script of a job"),
        pytest.param(torchrun(0, 4, per_node=4, elastic=False), 1, id="not said"),
    ],
)
def test_the_processes_on_this_machine_are_those_that_a_run_finds(environment, count):
    machine = with_environment(CUDA, **environment)
    assert machine.local_size == count
    assert ("gpu-few" in codes(machine)) is (count > 2)
    assert ("device" in codes(machine)) is (count <= 2)


def test_a_process_that_sees_one_gpu_may_have_one_of_its_own():
    assert "gpu-few" not in codes(with_environment(replace(CUDA, gpus=1), **srun(0, 4, **ONE_HOST)))


def test_a_process_whose_number_is_beyond_the_gpus_is_told():
    unsaid = with_environment(CUDA, **torchrun(3, 4, per_node=4, elastic=False))
    assert "process 3 wants GPU 3, but torch sees 2" in codes(unsaid)["gpu-few"].found


def test_one_process_on_each_of_several_machines_needs_a_back_end():
    machine = replace(CPU, backends=frozenset())
    found = codes(with_environment(machine, **torchrun(0, 2, per_node=1)))["backend-missing"]
    assert found.severity is Severity.ERROR


def test_this_machine_is_found():
    machine = Machine.here("cpu", None, {})
    assert "gloo" in machine.backends and "lo" in machine.interfaces
    assert 1 <= machine.usable_cores <= machine.cores
    assert not [f for f in examine_machine(machine) if f.severity is Severity.ERROR]
