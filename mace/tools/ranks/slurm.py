"""Processes that SLURM's ``srun`` started."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product

from mace.exceptions import InputError
from mace.tools.ranks.launch import Launch, Told, chosen_ports, whole_number

# Steps from here on are the job script, the shell of salloc and the like, not tasks that srun started.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
_NODE_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_PIECES = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)|(,)|(.)", re.DOTALL)


def srun_launch(environment: Mapping[str, str]) -> Launch | None:
    """What ``srun`` told this process, or None for any other process, a job script included.

    Raises:
        InputError: variables are missing or make no sense.
    """
    if "SLURM_PROCID" not in environment or is_job_shell(environment):
        return None
    hosts = node_names(environment)
    told = _told(environment, hosts)
    job = ""
    if "SLURM_JOB_ID" in environment:
        job = f"slurm {environment['SLURM_JOB_ID']}.{environment.get('SLURM_STEP_ID', '')}"
    return Launch(
        launcher="slurm",
        program="srun",
        rank=told.rank,
        local_rank=told.local_rank,
        world_size=told.size,
        local_world_size=told.local_size,
        address=_address(environment, told.size, hosts),
        ports=chosen_ports(environment, job, told.size),
        job=job,
    )


def is_job_shell(environment: Mapping[str, str]) -> bool:
    """Whether this process belongs to the job's script or shell, where SLURM sets SLURM_PROCID=0 too.

    It has no step, or a special one. Variables that somebody has set by hand to start processes without srun
    have no step either, but lack what SLURM's daemon adds.
    """
    if "SLURM_STEP_ID" in environment:
        return whole_number(environment, "SLURM_STEP_ID") >= _FIRST_SPECIAL_STEP
    return "SLURM_TASK_PID" in environment or environment.get("ENVIRONMENT") == "BATCH"


def node_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of this step, else of the job, in order; nothing where no variable lists them.

    Raises:
        InputError: the list cannot be read.
    """
    of_step = ("SLURM_STEP_NODELIST",) if "SLURM_STEP_ID" in environment else ()
    for name in (*of_step, *_NODE_LISTS):
        if name in environment:
            return _expanded(name, environment[name])
    return ()


def _address(environment: Mapping[str, str], size: int, hosts: tuple[str, ...]) -> str:
    if "MASTER_ADDR" in environment:
        return environment["MASTER_ADDR"]
    if size == 1 or len(hosts) == 1:
        return "localhost"  # a host finds itself so, even where its own name cannot be looked up
    if hosts:
        return hosts[0]
    raise InputError(
        "SLURM_PROCID is set as srun does, but not SLURM_JOB_NODELIST: start the processes with srun, or set "
        "MASTER_ADDR to the host of the first one"
    )


def _told(environment: Mapping[str, str], hosts: tuple[str, ...]) -> Told:
    size_name, size = _number_of_tasks(environment)
    if "SLURM_LOCALID" not in environment:
        raise InputError("SLURM_PROCID is set as srun does, but not SLURM_LOCALID: start them with srun")
    local_name, local_size = _tasks_here(environment, size_name, size, hosts)
    return Told(
        rank=whole_number(environment, "SLURM_PROCID"),
        size=size,
        local_rank=whole_number(environment, "SLURM_LOCALID"),
        local_size=local_size,
        names=("SLURM_PROCID", size_name, "SLURM_LOCALID", local_name),
    ).checked()


def _number_of_tasks(environment: Mapping[str, str]) -> tuple[str, int]:
    """The variable that says how many tasks there are, and the number."""
    of_step = ("SLURM_STEP_NUM_TASKS",) if "SLURM_STEP_ID" in environment else ()
    for name in (*of_step, "SLURM_NTASKS"):
        if name in environment:
            return name, whole_number(environment, name)
    factors = ("SLURM_NTASKS_PER_NODE", "SLURM_NNODES")
    missing = [name for name in factors if name not in environment]
    if missing:
        raise InputError(
            "SLURM_PROCID is set as srun does, but neither SLURM_NTASKS nor SLURM_NTASKS_PER_NODE and "
            "SLURM_NNODES: start the processes with srun, or give --launcher=none to train in one process"
        )
    per_node, nodes = (whole_number(environment, name) for name in factors)
    return " x ".join(factors), per_node * nodes


def _tasks_here(
    environment: Mapping[str, str], size_name: str, size: int, hosts: tuple[str, ...]
) -> tuple[str, int | None]:
    """The variable that says how many tasks this host has, and the number: None where nothing says it."""
    if len(hosts) == 1:
        return size_name, size
    name = "SLURM_STEP_TASKS_PER_NODE" if "SLURM_STEP_ID" in environment else "SLURM_TASKS_PER_NODE"
    if name not in environment or "SLURM_NODEID" not in environment:
        return name, None
    counts: list[int] = []  # of each host; "2(x3),1" stands for 2,2,2,1
    for part in environment[name].split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise InputError(f"environment variable {name} is '{environment[name]}', not numbers of tasks")
        counts += [int(match[1])] * int(match[2] or 1)
    node = whole_number(environment, "SLURM_NODEID")
    if node >= len(counts):
        raise InputError(f"SLURM_NODEID is {node}, but {name} counts tasks of {len(counts)} hosts")
    return name, counts[node]


def _expanded(name: str, text: str) -> tuple[str, ...]:
    """The hosts that a list such as ``gpu[01-04,07],login1`` or ``a[1-2]b[3-4]`` stands for."""
    hosts: list[str] = []
    parts: list[list[str]] = []  # what stands one after the other in the name of a host
    try:
        for numbers, letters, comma, stray in _PIECES.findall(text + ","):
            if stray or (comma and not parts):
                raise ValueError
            if comma:
                hosts += map("".join, product(*parts))
                parts = []
            else:
                parts.append([letters] if letters else list(_numbers(numbers)))
    except ValueError:
        raise InputError(
            f"environment variable {name} is '{text}', not a list of hosts such as gpu[01-04,07]"
        ) from None
    return tuple(hosts)


def _numbers(ranges: str) -> Iterator[str]:
    """The numbers of ``01-04,07``, with the leading zeros that the first of each range has."""
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) < int(first):
            raise ValueError(part)
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}d}"
