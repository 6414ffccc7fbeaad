"""The variables of launchers: recognised, left over, or at odds."""

import pytest

from mace.doctor.findings import Severity
from mace.doctor.launching import Start, examine_start

TORCHRUN = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


def codes(environment):
    return {finding.code: finding for finding in examine_start(Start.found(environment, None))}


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


@pytest.mark.parametrize("variable", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_processes_that_would_each_train_alone_are_an_error(variable):
    alone = Start(environment={variable: "2"}, launch=None, refusal=None)
    found = {finding.code: finding for finding in examine_start(alone)}
    assert found["launch-unrecognised"].severity is Severity.ERROR
    assert f"{variable}=2" in found["launch-unrecognised"].found
    assert "launch-unrecognised" not in codes({variable: "1"})
    assert "launch-unrecognised" not in codes({**TORCHRUN, variable: "4"})


def test_no_launcher_is_asked_where_that_is_said():
    assert Start.found(TORCHRUN, "none").launch is None
