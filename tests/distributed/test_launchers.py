"""The same small training under every launcher: the same losses, and one set of files."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.processes import free_port
from tests.harness import BASE, CP, DATA, E0S, Finished, kill_tree, losses, run, start, tiny_data
from tests.system_tools import need

pytestmark = pytest.mark.multirank

WATCH = Path(__file__).resolve().parent / "watch"
TOLERANCE = 1e-6  # relative; what the sum over ranks in another order may do to losses over some epochs
TRAIN = [sys.executable, "-m", "mace.cli.run_train", *DATA, *E0S, *BASE, *CP, "--name=run", "--ema"]
TWO = [*TRAIN, "--batch_size=2", "--distributed", "--dist_timeout=120"]
MPIRUN = ["mpirun", "-n", "2", "--allow-run-as-root", "--oversubscribe"]
SRUN = [sys.executable, "-m", "tests.distributed.srun", "-n", "2"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--no-python"]


def started(command: list[str], folder: Path, **env: str) -> Finished:
    """Run a command on tiny data in a folder, with a record of who opens which file for writing."""
    tiny_data(folder)
    environment = {"PYTHONPATH": str(WATCH), "WRITES": f"{folder}.writes", **env}
    return run(command[1:], folder, python=command[0], env=environment)


def check(folder: Path, reference: Path, launched_by: str, processes: int = 2) -> None:
    """The run in ``folder`` has the losses and the files of the reference, all written by one process."""
    log = (folder / "logs/run_run-1.log").read_text()
    assert re.search(rf"\b{processes} process(es)?\b.*launched by ({launched_by})\b.*back end gloo", log), log
    results = "results/run_run-1_train.txt"
    expected = losses(reference / results)
    assert len(expected) == 9  # 3 epochs of 12 frames, 4 at a time
    np.testing.assert_allclose(losses(folder / results), expected, rtol=TOLERANCE)
    assert files(folder) == files(reference)
    writes = [line.split(" ", 1) for line in Path(f"{folder}.writes").read_text().splitlines()]
    assert {path.rsplit("/", 1)[-1] for _, path in writes} >= {"run_run-1_train.txt", "run_run-1.log"}
    assert len({pid for pid, _ in writes}) == 1, writes


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> Path:
    """The run that all are compared with: one process, the batches of both."""
    folder = tmp_path_factory.mktemp("one")
    started([*TRAIN, "--batch_size=4"], folder).succeeded()
    assert "One process, without a launcher" in (folder / "logs/run_run-1.log").read_text()
    return folder


@pytest.mark.slow
def test_accumulated_batches_in_one_process(one_process, tmp_path):
    started([*TRAIN, "--batch_size=2", "--gradient_accumulation_steps=2"], tmp_path).succeeded()
    assert len(losses(tmp_path / "results/run_run-1_train.txt")) == 9
    expected = losses(one_process / "results/run_run-1_train.txt")
    np.testing.assert_allclose(losses(tmp_path / "results/run_run-1_train.txt"), expected, rtol=TOLERANCE)
    assert files(tmp_path) == files(one_process)


def test_torchrun_on_one_host(one_process, tmp_path):
    started([*TORCHRUN, "--standalone", "--nproc_per_node=2", *TWO], tmp_path).succeeded()
    check(tmp_path, one_process, "torchrun")


def test_mpirun(one_process, tmp_path):
    need("mpirun")
    started([*MPIRUN, *TWO], tmp_path).succeeded()
    check(tmp_path, one_process, "mpi|mpirun")


@pytest.mark.parametrize(
    "named", [[], pytest.param(["--launcher=slurm"], marks=pytest.mark.slow)], ids=["recognised", "named"]
)
def test_srun(one_process, tmp_path, named):
    started([*SRUN, *TWO, *named], tmp_path).succeeded()
    check(tmp_path, one_process, "slurm|srun")


@pytest.mark.slow
def test_report_15_torchrun_in_a_job_of_slurm(one_process, tmp_path):
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node7", "SLURM_NNODES": "1"}
    started([*TORCHRUN, "--standalone", "--nproc_per_node=2", *TWO], tmp_path, **job).succeeded()
    check(tmp_path, one_process, "torchrun")


def test_report_15_two_plain_processes_with_the_variables_of_slurm(one_process, tmp_path):
    tiny_data(tmp_path)
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": "1", "SLURM_NTASKS": "2"}
    environment = {"PYTHONPATH": str(WATCH), "WRITES": f"{tmp_path}.writes", "MASTER_PORT": str(free_port())}
    commands = [["env", *(f"SLURM_{name}={rank}" for name in ("PROCID", "LOCALID")), *TWO] for rank in (0, 1)]
    assert together(commands, tmp_path, environment | job) == [0, 0]
    check(tmp_path, one_process, "slurm|srun")


@pytest.mark.slow
def test_torchrun_on_two_hosts(one_process, tmp_path):
    """Two network namespaces with names of their own stand for the hosts, joined by a cable."""
    need("ip", "unshare", right="to make network namespaces")
    tiny_data(tmp_path)
    environment = {"PYTHONPATH": str(WATCH), "WRITES": f"{tmp_path}.writes"}
    with two_hosts() as hosts:
        commands = [
            [
                *("ip", "netns", "exec", host, "env", f"GLOO_SOCKET_IFNAME={interface}"),
                *("unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh"),
                *(*TORCHRUN, "--nnodes=2", "--nproc_per_node=1", "--rdzv_id=test", "--rdzv_backend=c10d"),
                *(f"--rdzv_endpoint={hosts[0][2]}:29400", f"--rdzv_conf=is_host={int(number == 0)}"),
                *(f"--local_addr={address}", *TWO),
            ]
            for number, (host, interface, address) in enumerate(hosts)
        ]
        assert together(commands, tmp_path, environment) == [0, 0]
    check(tmp_path, one_process, "torchrun")


@contextmanager
def two_hosts() -> Iterator[list[tuple[str, str, str]]]:
    """Name, network interface and address of two hosts that reach each other and nothing else."""
    tag = f"cp{free_port()}"
    hosts = [(f"{tag}{end}", f"{tag}{end}", f"10.73.15.{number}") for number, end in enumerate("ab", start=1)]
    (first, cable, _), (second, other_end, _) = hosts
    try:
        ip("netns", "add", first)
        ip("netns", "add", second)
        ip("link", "add", cable, "netns", first, "type", "veth", "peer", other_end, "netns", second)
        for host, interface, address in hosts:
            ip("-n", host, "address", "add", f"{address}/24", "dev", interface)
            for name in ("lo", interface):
                ip("-n", host, "link", "set", name, "up")
        yield hosts
    finally:
        for host, _, _ in hosts:  # the cable goes with them
            subprocess.run(["ip", "netns", "delete", host], capture_output=True, check=False)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def together(commands: list[list[str]], folder: Path, environment: dict[str, str]) -> list[int]:
    """The statuses of commands that run at the same time; what they print is shown if one fails."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        processes = [start(command, folder, output, env=environment) for command in commands]
        try:
            statuses = [process.wait(180) for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    kill_tree(process)
            output.seek(0)
            print(output.read()[-6000:])
    return statuses


# ---- what goes wrong


@pytest.mark.parametrize(
    ("environment", "flags", "complaint"),
    [
        ({}, ["--distributed"], "no launcher started this process"),
        ({}, ["--launcher=slurm"], "slurm did not start this process"),
        pytest.param(
            {"PMI_RANK": "0", "PMI_SIZE": "2"}, [], "MPI_LOCALRANKID is not", marks=pytest.mark.slow
        ),
        pytest.param(
            {"RANK": "0", "WORLD_SIZE": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "1"},
            [],
            "WORLD_SIZE is 0",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_report_15_a_wish_that_cannot_be_met_ends_in_one_line(tmp_path, environment, flags, complaint):
    finished = started([*TRAIN, *flags], tmp_path, **environment).failed()
    lines = finished.output.strip().splitlines()
    assert finished.status == 1 and len(lines) == 1 and complaint in lines[0], finished.output
    assert not (tmp_path / "run.model").exists()


@pytest.mark.parametrize(
    "launcher", [pytest.param(SRUN, marks=pytest.mark.slow), MPIRUN], ids=["srun", "mpirun"]
)
def test_a_complaint_is_printed_once_under_every_launcher(tmp_path, launcher):
    need(launcher[0])
    finished = started([*launcher, *TWO, "--train_file=nothing.xyz"], tmp_path).failed()
    complaints = re.findall(r"^.*mace.*error: .*$", finished.output, re.MULTILINE)
    assert len(complaints) == 1, finished.output
    assert all("nothing.xyz" in line for line in complaints)


@pytest.mark.slow
def test_contradicting_launchers_are_named(tmp_path):
    need("mpirun")
    by_hand = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
    }
    finished = started([*MPIRUN, *TWO], tmp_path, **by_hand).failed()
    assert "process is number 0 of 2 for torchrun, but number 1 of 2 for mpirun" in finished.output


def test_a_process_that_does_not_come_is_named_in_time(tmp_path):
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "localhost", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
    environment = job | {"SLURM_LOCALID": "0", "MASTER_PORT": str(free_port())}
    finished = started([*TRAIN, "--dist_timeout=1"], tmp_path, **environment).failed()
    assert "process 1 of 2 did not come to localhost" in finished.output


RESTARTED = """
import os, sys
import torch
import torch.distributed as dist
from mace.tools.ranks.launchers import find_launch
from mace.tools.ranks.placement import place
from mace.tools.ranks.rendezvous import describe, join_group

launch = find_launch(os.environ)
placement = place(launch, "cpu")
store, members = join_group(launch, placement, 60.0)
if launch.restarts == 0:
    sys.exit(launch.rank)  # process 1 fails, and torchrun starts both anew
total = torch.ones(1)
dist.all_reduce(total)
print(f"attempt {launch.restarts}: {describe(launch, placement, members)}, sum {total.item()}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_processes_meet_again_when_torchrun_starts_them_anew(tmp_path):
    (tmp_path / "restarted.py").write_text(RESTARTED)
    flags = ["--standalone", "--nproc_per_node=2", "--max_restarts=1"]
    finished = run([*TORCHRUN[1:], *flags, sys.executable, "restarted.py"], tmp_path).succeeded()
    how = r"2 processes on 1 host \([^ ]+\), launched by torchrun, back end gloo, device cpu"
    assert len(re.findall(f"attempt 1: {how}, sum 2.0", finished.output)) == 2, finished.output
