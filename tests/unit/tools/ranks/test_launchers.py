"""Which launcher is recognised from the environment of a process, and what is refused."""

import pytest

from mace.exceptions import InputError
from mace.tools.ranks.launchers import find_launch, rank_and_size
from mace.tools.ranks.slurm import node_names
from tests.launcher_environments import (
    hydra,
    interactive_shell,
    open_mpi_4,
    open_mpi_5,
    pals,
    plain_slurm,
    pmix,
    sbatch,
    srun,
    torchrun,
)

FAR = {"MASTER_ADDR": "node7"}
# environment -> program, rank, local rank, number of processes, of them on this host, address
RECOGNISED = [
    pytest.param(torchrun(), ("torchrun", 1, 1, 2, 2, "node7"), id="torchrun, one host"),
    pytest.param(torchrun(3, 4), ("torchrun", 3, 1, 4, 2, "node7"), id="torchrun, two hosts"),
    pytest.param(torchrun(elastic=False), ("torchrun", 1, 1, 2, None, "node7"), id="the five by hand"),
    pytest.param(srun(), ("srun", 3, 1, 4, 2, "node7"), id="srun, two hosts"),
    pytest.param(srun() | {"MASTER_ADDR": "ib7"}, ("srun", 3, 1, 4, 2, "ib7"), id="srun, address given"),
    pytest.param(srun(1, 2, nodes="node7", count=1), ("srun", 1, 1, 2, 2, "localhost"), id="srun, one host"),
    pytest.param(
        srun(1, 2, nodes="node7", count=1) | {"SLURM_JOB_NODELIST": "login1,node7"},
        ("srun", 1, 1, 2, 2, "localhost"),
        id="a step on some hosts of the job",
    ),
    pytest.param(plain_slurm(1), ("srun", 1, 1, 2, 2, "localhost"), id="report 15: by hand, as SLURM does"),
    pytest.param(open_mpi_4(), ("mpirun (Open MPI)", 1, 1, 2, 2, "localhost"), id="Open MPI 4"),
    pytest.param(open_mpi_5(), ("mpirun (Open MPI)", 1, 1, 2, 2, "localhost"), id="Open MPI 5"),
    pytest.param(
        open_mpi_5(3, 4) | FAR, ("mpirun (Open MPI)", 3, 1, 4, 2, "node7"), id="Open MPI, two hosts"
    ),
    pytest.param(hydra(), ("mpiexec (Hydra)", 1, 1, 2, 2, "localhost"), id="Hydra"),
    pytest.param(hydra(3, 4) | FAR, ("mpiexec (Hydra)", 3, 1, 4, 2, "node7"), id="Hydra, two hosts"),
    pytest.param(pals(), ("mpiexec (PALS)", 1, 1, 2, 2, "localhost"), id="PALS"),
    pytest.param(pals(3, 4) | FAR, ("mpiexec (PALS)", 3, 1, 4, 2, "node7"), id="PALS, two hosts"),
    pytest.param(
        pmix() | FAR | {"WORLD_SIZE": "2", "LOCAL_RANK": "1"},
        ("a PMIx launcher", 1, 1, 2, None, "node7"),
        id="PMIx, with the rest by hand",
    ),
    # One inside the other.
    pytest.param(sbatch() | torchrun(), ("torchrun", 1, 1, 2, 2, "node7"), id="torchrun in a job of SLURM"),
    pytest.param(
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node7", "SLURM_NNODES": "1"} | torchrun(),
        ("torchrun", 1, 1, 2, 2, "node7"),
        id="report 15: torchrun with variables of SLURM",
    ),
    pytest.param(srun(1, 2) | torchrun(3, 4), ("torchrun", 3, 1, 4, 2, "node7"), id="srun starts torchruns"),
    pytest.param(
        open_mpi_4(1, 2, 1) | torchrun(3, 4), ("torchrun", 3, 1, 4, 2, "node7"), id="mpirun starts torchruns"
    ),
    pytest.param(
        sbatch() | open_mpi_4(), ("mpirun (Open MPI)", 1, 1, 2, 2, "localhost"), id="mpirun in a job"
    ),
    pytest.param(
        srun(1, 2) | open_mpi_4(3, 4) | FAR,
        ("mpirun (Open MPI)", 3, 1, 4, 2, "node7"),
        id="srun starts orted",
    ),
    pytest.param(
        srun(1, 2) | hydra(3, 4) | FAR, ("mpiexec (Hydra)", 3, 1, 4, 2, "node7"), id="srun for Hydra"
    ),
    pytest.param(
        srun(0, 1, nodes="node7", count=1) | open_mpi_4(1, 2),
        ("mpirun (Open MPI)", 1, 1, 2, 2, "localhost"),
        id="mpirun in the shell of srun --pty",
    ),
    pytest.param(srun() | {"PMI_RANK": "3", "PMI_SIZE": "4"}, ("srun", 3, 1, 4, 2, "node7"), id="srun, pmi2"),
    pytest.param(srun() | pmix(3), ("srun", 3, 1, 4, 2, "node7"), id="srun, pmix"),
    pytest.param(
        srun(1, 2, nodes="node7", count=1) | torchrun(1, 2, elastic=False),
        ("torchrun", 1, 1, 2, None, "node7"),
        id="the five by hand in srun, the same numbers",
    ),
]


@pytest.mark.parametrize(("environment", "expected"), RECOGNISED)
def test_the_launcher_is_recognised(environment, expected):
    launch = find_launch(environment)
    numbers = (launch.rank, launch.local_rank, launch.world_size, launch.local_world_size)
    assert (launch.program, *numbers, launch.address) == expected
    assert rank_and_size(environment) == (launch.rank, launch.world_size)


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"WORLD_SIZE": "4", "MASTER_ADDR": "node7"}, id="no rank"),
        pytest.param(
            {"OMPI_MCA_btl": "tcp", "PMIX_MCA_gds": "hash", "I_MPI_FABRICS": "shm"}, id="MPI settings"
        ),
        pytest.param(sbatch(), id="the script of a job"),
        pytest.param({name: sbatch()[name] for name in ("SLURM_JOB_ID", "SLURM_NTASKS")}, id="salloc"),
        pytest.param(interactive_shell(), id="salloc with an interactive step"),
        pytest.param({"RANK": "", "WORLD_SIZE": "", "SLURM_PROCID": " "}, id="empty variables"),
    ],
)
def test_a_plain_process_has_no_launcher(environment):
    assert find_launch(environment) is None
    assert rank_and_size(environment) == (0, 1)


def without(environment, *names):
    return {name: value for name, value in environment.items() if name not in names}


REFUSED = [
    (torchrun(2, 2), "RANK is 2, but WORLD_SIZE is 2"),
    (torchrun() | {"LOCAL_RANK": "2"}, "LOCAL_RANK is 2, but LOCAL_WORLD_SIZE is 2"),
    (torchrun() | {"LOCAL_WORLD_SIZE": "3"}, "LOCAL_WORLD_SIZE is 3, but WORLD_SIZE is 2"),
    (torchrun() | {"LOCAL_RANK": "zero"}, "LOCAL_RANK is 'zero', not a whole number"),
    (torchrun() | {"RANK": "-1"}, "RANK is '-1', not a whole number"),
    (torchrun() | {"MASTER_PORT": "70000"}, "MASTER_PORT is '70000', not a port"),
    (without(torchrun(), "LOCAL_RANK"), "but not LOCAL_RANK"),
    (without(torchrun(elastic=False), "MASTER_ADDR", "MASTER_PORT"), "but not MASTER_ADDR, MASTER_PORT"),
    (srun() | {"SLURM_PROCID": "4"}, "SLURM_PROCID is 4, but SLURM_STEP_NUM_TASKS is 4"),
    (srun() | {"SLURM_LOCALID": "2"}, "SLURM_LOCALID is 2, but SLURM_STEP_TASKS_PER_NODE is 2"),
    (srun() | {"SLURM_NODEID": "2"}, "SLURM_NODEID is 2, but SLURM_STEP_TASKS_PER_NODE counts tasks of 2"),
    (srun() | {"SLURM_STEP_TASKS_PER_NODE": "two"}, "SLURM_STEP_TASKS_PER_NODE is 'two'"),
    (srun() | {"SLURM_STEP_NODELIST": "node[7-"}, "SLURM_STEP_NODELIST is 'node[7-', not a list of hosts"),
    (without(plain_slurm(1), "SLURM_NTASKS"), "neither SLURM_NTASKS nor SLURM_NTASKS_PER_NODE"),
    (without(plain_slurm(1), "SLURM_LOCALID"), "not SLURM_LOCALID"),
    (without(plain_slurm(1), "SLURM_JOB_NODELIST"), "not SLURM_JOB_NODELIST"),
    (plain_slurm(1) | {"SLURM_LOCALID": "2"}, "SLURM_LOCALID is 2, but SLURM_NTASKS is 2"),
    (without(open_mpi_4(), "OMPI_COMM_WORLD_SIZE"), "but OMPI_COMM_WORLD_SIZE is not"),
    (open_mpi_4(3, 4), "set MASTER_ADDR to the name of its host"),
    (hydra(3, 4), "started 4 processes, 2 of them on this host, and does not say where the first one is"),
    (without(hydra(), "PMI_SIZE", "MPI_LOCALRANKID"), "but PMI_SIZE and MPI_LOCALRANKID are not"),
    (pals(2, 2), "PALS_RANKID is 2, but PMI_SIZE is 2"),
    (pmix(), "a PMIx launcher started this process, but WORLD_SIZE and LOCAL_RANK are not"),
    # Two that contradict each other.
    (open_mpi_4(1) | torchrun(0, elastic=False), "number 0 of 2 for torchrun, but number 1 of 2 for mpirun"),
    (srun() | torchrun(0, 1, elastic=False), "number 0 of 1 for torchrun, but number 3 of 4 for srun"),
    (srun(1, 2) | torchrun(0, 2, elastic=False), "number 0 of 2 for torchrun, but number 1 of 2 for srun"),
    (srun() | open_mpi_4(0, 1, 1), "number 0 of 1 for mpirun (Open MPI), but number 3 of 4 for srun"),
]


@pytest.mark.parametrize(("environment", "complaint"), REFUSED)
def test_what_makes_no_sense_is_refused_in_one_line(environment, complaint):
    with pytest.raises(InputError) as refusal:
        find_launch(environment)
    assert complaint in str(refusal.value) and "\n" not in str(refusal.value)


def test_processes_can_be_told_apart_in_spite_of_what_makes_no_sense():
    """RANK=0 for all is the usual mistake: one of them has to speak, not each."""
    by_hand = torchrun(0, elastic=False)
    assert [rank_and_size(open_mpi_4(rank) | by_hand) for rank in (0, 1)] == [(0, 2), (1, 2)]
    assert [rank_and_size(srun(rank) | by_hand) for rank in (0, 3)] == [(0, 2), (3, 2)]
    assert rank_and_size(without(torchrun(3, 4), "LOCAL_RANK")) == (3, 2)
    assert rank_and_size(torchrun() | {"RANK": "one"}) == (0, 2)


@pytest.mark.parametrize(
    ("environment", "launcher", "program"),
    [
        (srun() | open_mpi_4(0, 1, 1), "mpi", "mpirun (Open MPI)"),
        (srun() | open_mpi_4(0, 1, 1), "slurm", "srun"),
        (srun(1, 2) | torchrun(3, 4), "slurm", "srun"),
        (open_mpi_4(1) | torchrun(0, elastic=False), "torchrun", "torchrun"),
    ],
)
def test_the_launcher_that_is_named_is_the_only_one_asked(environment, launcher, program):
    assert find_launch(environment, launcher).program == program
    assert find_launch(environment, "none") is None


@pytest.mark.parametrize(
    ("environment", "launcher", "complaint"),
    [
        (srun(), "torchrun", "torchrun did not start this process"),
        (torchrun(), "slurm", "slurm did not start this process: its environment variables are missing"),
        (torchrun(), "mpi", "mpi did not start this process"),
        (sbatch(), "slurm", "put srun before the command"),
        (interactive_shell(), "slurm", "put srun before the command"),
        (torchrun(), "smoke", "launcher 'smoke' is not known; choose one of torchrun, slurm, mpi, none"),
    ],
)
def test_a_launcher_that_is_not_there_is_refused(environment, launcher, complaint):
    with pytest.raises(InputError, match=complaint):
        find_launch(environment, launcher)


def test_ports_are_the_users_else_those_of_the_job():
    assert find_launch(srun() | {"MASTER_PORT": "1234"}).ports == (1234,)
    assert find_launch(torchrun()).ports == (29500,)
    jobs = [srun(), srun() | {"SLURM_JOB_ID": "4712"}, srun(step="1"), open_mpi_4() | {"PMIX_NAMESPACE": "x"}]
    of_jobs = [find_launch(environment).ports for environment in [*jobs, open_mpi_4(), open_mpi_5(), pals()]]
    assert all(len(set(ports)) == 4 for ports in of_jobs)
    assert len(set().union(*of_jobs)) == 4 * len(of_jobs)
    assert all(15000 <= port < 30000 for ports in of_jobs for port in ports)
    assert find_launch(srun(0)).ports == find_launch(srun(3)).ports
    assert find_launch(hydra()).ports == (33333,)  # nothing names the run
    assert 33333 not in find_launch(hydra() | {"PBS_JOBID": "99.pbs"}).ports
    assert find_launch(srun(0, 1, nodes="node7", count=1)).ports == (0,)  # alone: any that is free
    with pytest.raises(InputError, match="MASTER_PORT is 'http', not a whole number"):
        find_launch(srun() | {"MASTER_PORT": "http"})


def test_the_number_of_tasks_can_be_a_product():
    environment = without(plain_slurm(1), "SLURM_NTASKS") | {"SLURM_NTASKS_PER_NODE": "2"}
    assert find_launch(environment).world_size == 2
    with pytest.raises(InputError, match="SLURM_PROCID is 1, but SLURM_NTASKS_PER_NODE x SLURM_NNODES is 1"):
        find_launch(environment | {"SLURM_NTASKS_PER_NODE": "1"})


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node7", "node7"),
        ("a,b-1.example.org", "a b-1.example.org"),
        ("gpu[01-04,07],login1", "gpu01 gpu02 gpu03 gpu04 gpu07 login1"),
        ("a[1-2]b[3-4]", "a1b3 a1b4 a2b3 a2b4"),
        ("n[9-11],n[098-101]x", "n9 n10 n11 n098x n099x n100x n101x"),
    ],
)
def test_lists_of_hosts(text, hosts):
    environment = plain_slurm(1) | {"SLURM_JOB_NODELIST": text}
    first, *others = expected = hosts.split()
    assert node_names(environment) == tuple(expected)
    assert find_launch(environment).address == (first if others else "localhost")


@pytest.mark.parametrize(
    "text", ["a[1-2", "a]", "a[x]", "a,,b", ",a", "a,", "a[3-1]", "a[]", "a[1-2-3]", "a[1,]"]
)
def test_a_list_of_hosts_that_cannot_be_read_is_named(text):
    with pytest.raises(InputError, match="SLURM_JOB_NODELIST is"):
        find_launch(plain_slurm(1) | {"SLURM_JOB_NODELIST": text})


def test_torchrun_says_more_than_numbers():
    launch = find_launch(torchrun())
    assert (launch.restarts, launch.has_store, launch.job) == (2, True, "none")
    assert not find_launch(torchrun(elastic=False)).has_store
