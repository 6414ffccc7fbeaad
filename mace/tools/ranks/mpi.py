"""Processes that a launcher of MPI programs started. No MPI library is needed: its variables say it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mace.exceptions import InputError
from mace.tools.ranks.launch import Launch, Told, chosen_ports, whole_number

# What names a job of a queueing system, where the launcher itself has no name for the run.
_QUEUE_JOBS = ("PBS_JOBID", "SLURM_JOB_ID", "LSB_JOBID", "JOB_ID", "COBALT_JOBID")


@dataclass(frozen=True, kw_only=True)
class _Family:
    """One kind of launcher: where it says each number, the first variable that is set, and names the run."""

    program: str
    rank: str
    size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...]
    job: tuple[str, ...] = ()


# PALS and Hydra share the names of PMI, Open MPI those of PMIx: the special ones come first.
_FAMILIES = (
    _Family(
        program="mpirun (Open MPI)",
        rank="OMPI_COMM_WORLD_RANK",
        size=("OMPI_COMM_WORLD_SIZE",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        local_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Family(
        program="mpiexec (PALS)",
        rank="PALS_RANKID",
        size=("PMI_SIZE", "PALS_SIZE"),
        local_rank=("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
        local_size=("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
        job=("PALS_APID",),
    ),
    _Family(
        program="mpiexec (Hydra)",
        rank="PMI_RANK",
        size=("PMI_SIZE",),
        local_rank=("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
        local_size=("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
    ),
    # PMIx puts no sizes into the environment: where nothing else is there, users say them as for torchrun.
    _Family(
        program="a PMIx launcher",
        rank="PMIX_RANK",
        size=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        local_size=("LOCAL_WORLD_SIZE",),
        job=("PMIX_NAMESPACE",),
    ),
)
RANK_VARIABLES = tuple(family.rank for family in _FAMILIES)


def mpi_launch(environment: Mapping[str, str]) -> Launch | None:
    """What a launcher of MPI programs told this process, or None if none started it.

    Raises:
        InputError: variables are missing or make no sense; several hosts, and no ``MASTER_ADDR``.
    """
    for family in _FAMILIES:
        if family.rank in environment and not _is_of_srun(family, environment):
            return _launch(family, environment)
    return None


def _is_of_srun(family: _Family, environment: Mapping[str, str]) -> bool:
    """Whether srun itself set these variables for MPI programs (``--mpi=pmi2`` or ``pmix``).

    SLURM's own variables say more then. Hydra adds the local rank to the variables of PMI, srun does not.
    """
    return (
        family.rank in ("PMI_RANK", "PMIX_RANK")
        and "MPI_LOCALRANKID" not in environment
        and "SLURM_STEP_ID" in environment
        and environment[family.rank] == environment.get("SLURM_PROCID")
    )


def _launch(family: _Family, environment: Mapping[str, str]) -> Launch:
    told = _told(family, environment)
    name = next((name for name in (*family.job, *_QUEUE_JOBS) if name in environment), None)
    job = f"mpi {environment[name]}" if name else ""
    return Launch(
        launcher="mpi",
        program=family.program,
        rank=told.rank,
        local_rank=told.local_rank,
        world_size=told.size,
        local_world_size=told.local_size,
        address=_address(family, environment, told),
        ports=chosen_ports(environment, job, told.size),
        job=job,
    )


def _told(family: _Family, environment: Mapping[str, str]) -> Told:
    candidates = ((family.rank,), family.size, family.local_rank, family.local_size)
    # The first that is set; where none is, the usual one, for the message.
    names = [next((name for name in found if name in environment), found[0]) for found in candidates]
    missing = [name for name in names[:3] if name not in environment]
    if missing:
        raise InputError(
            f"{family.rank} is set, so {family.program} started this process, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not: set what is missing for each process, or give "
            "--launcher=none to train in one process"
        )
    rank, size, local_rank = (whole_number(environment, name) for name in names[:3])
    local_size = whole_number(environment, names[3]) if names[3] in environment else None
    return Told(rank, size, local_rank, local_size, (names[0], names[1], names[2], names[3])).checked()


def _address(family: _Family, environment: Mapping[str, str], told: Told) -> str:
    if "MASTER_ADDR" in environment:
        return environment["MASTER_ADDR"]
    if told.size in (1, told.local_size):
        return "localhost"
    here = "" if told.local_size is None else f", {told.local_size} of them on this host"
    raise InputError(
        f"{family.program} started {told.size} processes{here}, and does not say where the first one is: set "
        "MASTER_ADDR to the name of its host (and pass it on, with Open MPI by -x MASTER_ADDR)"
    )
