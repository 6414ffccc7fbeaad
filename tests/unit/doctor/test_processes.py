"""The trial group: real processes for what can happen on this machine, outcomes for what cannot."""

import os
import signal
import time
from dataclasses import replace

import pytest

from mace.doctor.findings import Severity
from mace.doctor.launching import Start
from mace.doctor.processes import CHECKS, Outcome, Trial, examine_processes

TRIAL = Trial(device="cpu", launcher=None)
ALONE = Start(environment={**os.environ, "OMP_NUM_THREADS": "1"}, launch=None, refusal=None)
MEMBERS = [
    {"host": host, "versions": {"torch": "2.13.0", "e3nn": "0.5.9"}, "files": {"/d/train.xyz": 100}}
    for host in ("a", "b")
]
SAID = {
    "started": {},
    "joined": {"backend": "gloo", "world_size": 2},
    "summed": {},
    "done": {"sum_is_right": True, "seconds": {"1": 0.008, "64": 0.1}, "members": MEMBERS},
}
GOOD = Outcome(status=0, said=SAID)


def codes(outcome):
    return {finding.code: finding for check in CHECKS for finding in check(outcome, TRIAL)}


def with_done(**changes):
    return replace(GOOD, said={**SAID, "done": {**SAID["done"], **changes}})


def member(**changes):
    return [MEMBERS[0], {**MEMBERS[1], **changes}]


def reached(*stages):
    return {stage: SAID[stage] for stage in stages}


@pytest.mark.parametrize(
    ("code", "outcome", "severity", "value"),
    [
        ("group-failed", Outcome(status=None), "error", "waited 30 s for Python and torch to start"),
        (
            "group-failed",
            Outcome(status=-signal.SIGALRM, said=reached("started")),
            "error",
            "waited 30 s for the other processes",
        ),
        (
            "group-failed",
            Outcome(status=-signal.SIGALRM, said=reached("started", "joined")),
            "error",
            "waited 30 s for the first sum",
        ),
        ("group-failed", Outcome(status=1, complaint="port 1 is in use"), "error", "port 1 is in use"),
        ("group-failed", Outcome(status=-11, said=reached("started")), "error", "ended by signal 11"),
        ("group-failed", replace(GOOD, status=-6), "error", "ended by signal 6"),
        ("group-wrong", with_done(sum_is_right=False), "error", "their sum is wrong"),
        ("bandwidth-low", with_done(seconds={"1": 0.1, "64": 0.7}), "warning", "64 MB in 0.7000 s (91 MB/s)"),
        (
            "ranks-versions",
            with_done(members=member(versions={"torch": "2.12.0", "e3nn": "0.5.9"})),
            "warning",
            "torch is 2.13.0 for process 0 and 2.12.0 for process 1 (b)",
        ),
        (
            "ranks-files",
            with_done(members=member(files={"/d/train.xyz": None})),
            "error",
            "/d/train.xyz is not for process 1 (b)",
        ),
    ],
)
def test_a_group_that_fails_is_named(code, outcome, severity, value):
    assert code not in codes(GOOD)
    finding = codes(outcome)[code]
    assert finding.severity is Severity(severity)
    assert value in finding.found and finding.cure


def test_a_good_group_is_two_lines():
    found = codes(GOOD)
    assert found.keys() == {"group", "bandwidth"}
    assert found["group"].found == "2 processes with gloo on a, b joined, and their sum is right"
    assert found["bandwidth"].found.endswith("1 MB in 0.0080 s (125 MB/s), 64 MB in 0.1000 s (640 MB/s)")
    assert {finding.severity for finding in found.values()} == {Severity.OK}


def test_nccl_has_a_limit_of_its_own():
    joined = {"backend": "nccl", "world_size": 2}
    assert "bandwidth-low" in codes(replace(GOOD, said={**SAID, "joined": joined}))


def test_one_process_has_no_bandwidth():
    assert not {"bandwidth", "bandwidth-low"} & codes(with_done(seconds={})).keys()


@pytest.mark.slow
@pytest.mark.multirank
def test_two_processes_on_this_machine(tmp_path):
    trial = replace(TRIAL, files=(str(tmp_path),))
    findings = {finding.code: finding for finding in examine_processes(trial, ALONE, gpus=0)}
    assert findings["group"].found.startswith("2 processes with gloo on one machine joined")
    assert "64 MB in" in (findings.get("bandwidth") or findings["bandwidth-low"]).found
    assert findings.keys() <= {"group", "bandwidth", "bandwidth-low"}


@pytest.mark.slow
@pytest.mark.multirank
def test_an_interface_that_does_not_exist_is_found_by_the_trial():
    start = replace(ALONE, environment={**ALONE.environment, "GLOO_SOCKET_IFNAME": "nowhere0"})
    findings = {finding.code: finding for finding in examine_processes(TRIAL, start, gpus=0)}
    assert findings.keys() == {"group-failed"}
    assert "nowhere0" in findings["group-failed"].found


@pytest.mark.slow
@pytest.mark.multirank
def test_a_partner_that_never_comes_ends_the_trial():
    lonely = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29987"}
    environment = {**ALONE.environment, **lonely, "MASTER_ADDR": "127.0.0.1"}
    started = time.monotonic()
    trial = replace(TRIAL, patience=4)
    findings = examine_processes(trial, Start.found(environment, None), gpus=0)
    assert time.monotonic() - started < 60
    (finding,) = findings
    assert finding.code == "group-failed" and "waited 4 s for the other processes" in finding.found


@pytest.mark.slow
@pytest.mark.multirank
def test_one_gpu_is_not_enough_to_try_nccl():
    findings = examine_processes(replace(TRIAL, device="cuda"), ALONE, gpus=1)
    assert findings[0].code == "group-nccl-not-tried" and findings[0].severity is Severity.NOTE
    assert findings[1].code == "group"
    assert "group-nccl-not-tried" not in {f.code for f in examine_processes(TRIAL, ALONE, gpus=1)}
