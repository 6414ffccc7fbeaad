"""Which launcher started this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mace.exceptions import InputError
from mace.tools.ranks.launch import Launch, Told, port_number, whole_number
from mace.tools.ranks.mpi import RANK_VARIABLES, mpi_launch
from mace.tools.ranks.slurm import is_job_shell, srun_launch

__all__ = ["LAUNCHERS", "Launch", "find_launch", "rank_and_size"]

_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _torchrun_launch(environment: Mapping[str, str]) -> Launch | None:
    """The variables of torchrun (torch elastic), or None if they are not there.

    People also set them by hand, or in a script that another launcher starts.
    """
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    missing = [name for name in _TORCHRUN if name not in environment]
    if missing:
        raise InputError(
            f"RANK and WORLD_SIZE are set as torchrun does, but not {', '.join(missing)}: start them with "
            "torchrun, or unset RANK and WORLD_SIZE to train in one process"
        )
    numbers = {name: whole_number(environment, name) for name in _TORCHRUN[:3]}
    local_size = "LOCAL_WORLD_SIZE" if "LOCAL_WORLD_SIZE" in environment else None
    told = Told(
        rank=numbers["RANK"],
        size=numbers["WORLD_SIZE"],
        local_rank=numbers["LOCAL_RANK"],
        local_size=whole_number(environment, local_size) if local_size else None,
        names=("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ).checked()
    restarts = "TORCHELASTIC_RESTART_COUNT"
    return Launch(
        launcher="torchrun",
        program="torchrun",
        rank=told.rank,
        local_rank=told.local_rank,
        world_size=told.size,
        local_world_size=told.local_size,
        address=environment["MASTER_ADDR"],
        ports=(port_number(environment, "MASTER_PORT"),),
        restarts=whole_number(environment, restarts) if restarts in environment else 0,
        job=environment.get("TORCHELASTIC_RUN_ID", ""),
        has_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


LAUNCHERS: dict[str, Callable[[Mapping[str, str]], Launch | None]] = {
    "torchrun": _torchrun_launch,
    "slurm": srun_launch,
    "mpi": mpi_launch,
}


def find_launch(environment: Mapping[str, str], launcher: str | None = None) -> Launch | None:
    """The launcher that started this process, or None for a plain process.

    Launchers can be inside each other: torchrun in a job of SLURM, mpirun that starts its daemons with srun.
    The innermost is meant.

    Args:
        environment: environment variables of the process; empty ones count as not set.
        launcher: name of the launcher to ask, "none" to ask nobody, None to ask all.

    Raises:
        InputError: the launcher is unknown, its variables are missing or make no sense, or two launchers
            contradict each other.
    """
    environment = {name: value.strip() for name, value in environment.items() if value.strip()}
    if launcher == "none":
        return None
    if launcher is not None:
        return _asked(environment, launcher)
    if "TORCHELASTIC_RUN_ID" in environment and (found := _torchrun_launch(environment)) is not None:
        return found  # whatever started torchrun
    found = _inner(mpi_launch(environment), srun_launch(environment))
    return _inner(_torchrun_launch(environment), found)


def rank_and_size(environment: Mapping[str, str]) -> tuple[int, int]:
    """Number of this process and number of processes, for messages; (0, 1) for a plain process.

    It raises nothing: where the variables make no sense, the first rank among them is taken and 2 stands for
    the unknown number of processes.
    """
    try:
        launch = find_launch(environment)
    except InputError:
        # RANK comes last: it is the one that people set by hand, wrongly.
        names = (*RANK_VARIABLES, "SLURM_PROCID", "RANK")
        ranks = [environment[name].strip() for name in names if name in environment]
        return next((int(rank) for rank in ranks if rank.isascii() and rank.isdigit()), 0), 2
    return (0, 1) if launch is None else (launch.rank, launch.world_size)


def _asked(environment: Mapping[str, str], launcher: str) -> Launch:
    if launcher not in LAUNCHERS:
        raise InputError(f"launcher '{launcher}' is not known; choose one of {', '.join(LAUNCHERS)}, none")
    found = LAUNCHERS[launcher](environment)
    if found is not None:
        return found
    reason = "its environment variables are missing"
    if launcher == "slurm" and "SLURM_PROCID" in environment and is_job_shell(environment):
        reason = "it belongs to the script or the shell of the job: put srun before the command"
    raise InputError(f"--launcher {launcher} was given, but {launcher} did not start this process: {reason}")


def _inner(inner: Launch | None, outer: Launch | None) -> Launch | None:
    """The launch that counts, where two launchers left their variables.

    Raises:
        InputError: both started several processes, and they number them in different ways.
    """
    if inner is None or outer is None:
        return inner or outer
    if (inner.rank, inner.world_size) == (outer.rank, outer.world_size):
        # The same processes. SLURM knows the hosts; who sets torchrun's variables by hand means them.
        return outer if inner.launcher == "mpi" else inner
    # One process of the outer launcher, or one on every host, which starts those of the inner one.
    starts_others = outer.world_size == 1 or outer.local_world_size == 1
    if starts_others and inner.world_size > outer.world_size:
        return inner
    raise InputError(
        f"this process is number {inner.rank} of {inner.world_size} for {inner.program}, but number "
        f"{outer.rank} of {outer.world_size} for {outer.program}: unset the variables of the one that did "
        f"not start it, or name the other with --launcher={inner.launcher} or --launcher={outer.launcher}"
    )
