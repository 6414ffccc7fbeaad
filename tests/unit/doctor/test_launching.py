"""The variables of launchers: recognised, left over, or at odds."""

import pytest

from mace.doctor.findings import Severity
from mace.doctor.launching import Start, examine_start
from tests.launcher_environments import (
    hydra,
    interactive_shell,
    open_mpi_4,
    pals,
    plain_slurm,
    sbatch,
    srun,
    torchrun,
)

TORCHRUN = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


def codes(environment, launcher=None):
    return {finding.code: finding for finding in examine_start(Start.found(environment, launcher))}


@pytest.mark.parametrize(
    ("code", "changes", "severity", "value"),
    [
        ("launch-refused", {"MASTER_ADDR": None}, "error", "MASTER_ADDR"),
        ("launch-refused", {"RANK": "one"}, "error", "RANK is 'one'"),
        ("launch-contradiction", {"RANK": "4"}, "error", "RANK=4 with WORLD_SIZE=4"),
        ("launch-contradiction", {"LOCAL_WORLD_SIZE": "1"}, "error", "LOCAL_RANK=1 with LOCAL_WORLD_SIZE=1"),
        ("launch-contradiction", {"LOCAL_RANK": "2"}, "error", "LOCAL_RANK=2 with RANK=1"),
        ("launch-two", {"OMPI_COMM_WORLD_RANK": "0"}, "warning", "RANK=1, but OMPI_COMM_WORLD_RANK=0"),
        ("launch-two", {"OMPI_COMM_WORLD_SIZE": "2"}, "warning", "WORLD_SIZE=4, but OMPI"),
        (
            "master-loopback",
            {"LOCAL_WORLD_SIZE": "2"},
            "error",
            "MASTER_ADDR=127.0.0.1 with 4 processes, 2 of",
        ),
    ],
)
def test_variables_at_odds_are_named(code, changes, severity, value):
    assert code not in codes(TORCHRUN)
    merged = {**TORCHRUN, **changes}
    finding = codes({name: text for name, text in merged.items() if text is not None})[code]
    assert finding.severity is Severity(severity)
    assert value in finding.found and finding.cure


def test_a_name_in_place_of_the_loopback_is_fine():
    assert "master-loopback" not in codes({**TORCHRUN, "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node7"})


def test_torchrun_is_recognised():
    (finding,) = examine_start(Start.found(TORCHRUN, None))
    assert (finding.code, finding.found) == ("launch", "started by torchrun: 4 process(es)")
    assert not Start.found(TORCHRUN, None).is_main and Start.found(TORCHRUN, None).world_size == 4


def test_one_process_needs_no_launcher():
    (finding,) = examine_start(Start.found({}, None))
    assert (finding.code, finding.found) == ("launch", "one process, without a launcher")
    assert Start.found({}, None).is_main and Start.found({}, None).world_size == 1


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        (torchrun(0), "torchrun"),
        (srun(0, 2), "srun"),
        (plain_slurm(0), "srun"),
        (open_mpi_4(0), "mpirun (Open MPI)"),
        (hydra(0), "mpiexec (Hydra)"),
        (pals(0), "mpiexec (PALS)"),
    ],
)
def test_processes_that_would_each_train_alone_are_an_error(environment, name):
    found = codes(environment, "none")["launch-ignored"]
    assert found.severity is Severity.ERROR and f"{name} started 2 processes" in found.found
    assert "launch-ignored" not in codes(environment)


@pytest.mark.parametrize("launcher", [None, "none"])
@pytest.mark.parametrize("environment", [{}, sbatch(8), interactive_shell(), torchrun(0, 1, per_node=1)])
def test_one_process_leaves_no_launcher_out(environment, launcher):
    assert codes(environment, launcher).keys() == {"launch"}


def test_no_launcher_is_asked_where_that_is_said():
    assert Start.found(TORCHRUN, "none").launch is None
