"""A trial of the process group: the one of the launcher, or two processes on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mace
from mace.doctor.findings import Finding, error, listed, note, ok, warning
from mace.doctor.launching import Start

_LOADING = 120  # s for Python and torch to come up, on a slow file system
# MB/s of an all-reduce. A step of a model of a million float64 weights sends 8 MB: at 100 MB/s, as a 1 Gbit
# network has, that is 0.08 s, about as long as a fast step computes. GPUs compute ten times faster, and NCCL
# below 1 GB/s does not use the connection between them.
SLOW = {"gloo": 100.0, "nccl": 1000.0, "xccl": 1000.0}
_LAUNCHERS = ("TORCHELASTIC_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "GROUP_", "ROLE_")
_LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_WAITED_FOR = {"": "Python and torch to start", "started": "the other processes", "joined": "the first sum"}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What to try."""

    device: str
    launcher: str | None
    patience: int = 30  # s for everything once Python and torch are up
    files: tuple[str, ...] = ()  # data that every process must see


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one process of a trial left."""

    status: int | None  # negative: ended by a signal; None: it did not even start in time
    said: dict[str, dict[str, Any]] = field(default_factory=dict)  # by stage, in order
    complaint: str = ""  # last line of stderr

    @property
    def stage(self) -> str:
        """The last stage that it reached."""
        return next(reversed(self.said), "")


def try_group(trial: Trial, start: Start, gpus: int) -> tuple[Outcome, list[Finding]]:
    """Let the processes join and sum; the outcome is that of this rank, or of rank 0 of two local ones."""
    if start.launch is not None:
        return _run(trial, [start.environment])[0], []
    device, notes = trial.device, []
    if trial.device == "cuda" and gpus < 2:
        text = "two processes on this machine were tried with gloo on the CPU: nccl needs two GPUs"
        notes.append(
            note("group-nccl-not-tried", text, "run mace_doctor under torchrun on the nodes of the run")
        )
        device = "cpu"
    local = Trial(device=device, launcher="torchrun", patience=trial.patience, files=trial.files)
    outcomes = _run(local, list(_two_of(start.environment)))
    # The one that failed by itself knows why; the other has only lost its partner.
    return max(outcomes, key=lambda outcome: (outcome.status or 0) > 0), notes


def _two_of(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of each of two processes here, without what another launcher left."""
    kept = {k: v for k, v in environment.items() if k not in _LAUNCHED and not k.startswith(_LAUNCHERS)}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    for rank in ("0", "1"):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        yield {**kept, **place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def _run(trial: Trial, environments: Sequence[Mapping[str, str]]) -> list[Outcome]:
    asked = {"device": trial.device, "launcher": trial.launcher, "patience": trial.patience}
    files = [os.path.abspath(file) for file in trial.files]
    # -m looks in the working folder first: there it finds this package, and no other one.
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "mace.doctor.probe",
        json.dumps({**asked, "files": files}),
    ]
    members = [
        subprocess.Popen(
            command,
            cwd=Path(mace.__file__).parents[1],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in environments
    ]
    return [_outcome(member, trial.patience + _LOADING) for member in members]


def _outcome(member: subprocess.Popen[str], limit: float) -> Outcome:
    try:
        output, complaints = member.communicate(timeout=limit)
        status: int | None = member.returncode
    except subprocess.TimeoutExpired:
        member.kill()
        output, complaints = member.communicate()
        status = None
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"stage"')]
    said = {line.pop("stage"): line for line in lines}
    return Outcome(
        status=status, said=said, complaint=next(iter(reversed(complaints.strip().splitlines())), "")
    )


def check_group(outcome: Outcome, trial: Trial) -> Iterator[Finding]:
    """The processes found each other, and their sum is right."""
    done = outcome.said.get("done")
    if done is None or outcome.status != 0:
        late = outcome.status is None or outcome.status == -signal.SIGALRM
        waited = _WAITED_FOR.get(outcome.stage, "sums over the processes")
        reason = f"waited {trial.patience} s for {waited}" if late else _ended(outcome)
        yield error(
            "group-failed",
            f"processes could not talk to each other on {trial.device}: {reason}",
            "look at the launch variables, at GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME (NCCL_DEBUG=INFO says "
            "more), and at firewalls between the machines; --group_patience waits longer",
        )
        return
    joined = outcome.said["joined"]
    text = f"{joined['world_size']} processes with {joined['backend']} on {_hosts(done)}"
    if done["sum_is_right"]:
        yield ok("group", f"{text} joined, and their sum is right")
    else:
        yield error(
            "group-wrong", f"{text} joined, but their sum is wrong", "try another network or torch build"
        )


def _ended(outcome: Outcome) -> str:
    how = "ended with status" if (outcome.status or 0) >= 0 else "was ended by signal"
    return outcome.complaint or f"a process {how} {abs(outcome.status or 0)}"


def _hosts(done: Mapping[str, Any]) -> str:
    hosts = sorted({member["host"] for member in done["members"]})
    return listed(hosts) if len(hosts) > 1 else "one machine"


def check_bandwidth(outcome: Outcome, trial: Trial) -> Iterator[Finding]:
    """Sums over the processes are fast enough for gradients."""
    seconds = outcome.said.get("done", {}).get("seconds", {})
    if not seconds:
        return
    backend = outcome.said["joined"]["backend"]
    rates = {int(size): int(size) / time for size, time in seconds.items()}
    text = ", ".join(
        f"{size} MB in {seconds[str(size)]:.4f} s ({rate:.0f} MB/s)" for size, rate in rates.items()
    )
    limit = SLOW[backend]
    if max(rates.values()) < limit:
        yield warning(
            "bandwidth-low",
            f"sums over the processes with {backend}: {text}; below {limit:.0f} MB/s a step waits longer for "
            "gradients than it computes",
            "choose a faster network (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME), or larger batches",
        )
    else:
        yield ok("bandwidth", f"sums over the processes with {backend}: {text}")


def check_members(outcome: Outcome, trial: Trial) -> Iterator[Finding]:
    """All processes have the same packages and see the same files."""
    members = outcome.said.get("done", {}).get("members", [])
    for rank, member in enumerate(members[1:], start=1):
        for what, first in members[0]["versions"].items():
            if member["versions"][what] != first:
                yield warning(
                    "ranks-versions",
                    f"{what} is {first} for process 0 and {member['versions'][what]} for process {rank} "
                    f"({member['host']})",
                    "start all processes in the same environment",
                )
        for file, size in members[0]["files"].items():
            if member["files"][file] != size:
                yield error(
                    "ranks-files",
                    f"{file} is not for process {rank} ({member['host']}) what it is for process 0",
                    "put the data where all machines see them",
                )


CHECKS: tuple[Callable[[Outcome, Trial], Iterator[Finding]], ...] = (
    check_group,
    check_bandwidth,
    check_members,
)


def examine_processes(trial: Trial, start: Start, gpus: int) -> list[Finding]:
    """Try the group and run all checks of this module; it ends after ``patience`` seconds at the latest."""
    outcome, notes = try_group(trial, start, gpus)
    return notes + [finding for check in CHECKS for finding in check(outcome, trial)]
