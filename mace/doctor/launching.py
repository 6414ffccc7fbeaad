"""Who started this process, and whether the variables of the launchers agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mace.doctor.findings import Finding, error, ok, warning
from mace.exceptions import InputError
from mace.tools.ranks.launchers import Launch, find_launch

_PARTS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("LOCAL_RANK", "RANK"))
_SAME = (("RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"))
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Start:
    """How this process was started."""

    environment: Mapping[str, str]
    launch: Launch | None
    refusal: str | None  # why a run would not start

    @classmethod
    def found(cls, environment: Mapping[str, str], launcher: str | None) -> Start:
        """What a run would find; the one place where the doctor asks for the launcher."""
        try:
            return cls(environment=environment, launch=find_launch(environment, launcher), refusal=None)
        except InputError as problem:
            return cls(environment=environment, launch=None, refusal=str(problem))

    @property
    def is_main(self) -> bool:
        """Whether this process prints."""
        return self.launch is None or self.launch.rank == 0

    @property
    def world_size(self) -> int:
        """The number of processes of the run."""
        return 1 if self.launch is None else self.launch.world_size

    def number(self, name: str) -> int | None:
        """A variable that is a whole number, or None."""
        text = self.environment.get(name, "")
        return int(text) if text.isdigit() else None


def check_launch(start: Start) -> Iterator[Finding]:
    """A launcher is recognised, or there is none."""
    if start.refusal is not None:
        yield error(
            "launch-refused", start.refusal, "start the processes with torchrun, or unset its variables"
        )
    elif start.launch is not None:
        yield ok("launch", f"started by {start.launch.launcher}: {start.world_size} process(es)")
    else:
        yield ok("launch", "one process, without a launcher")


def check_ignored(start: Start) -> Iterator[Finding]:
    """``--launcher=none`` leaves no launcher out that started several processes: each would train alone."""
    if start.launch is not None or start.refusal is not None:
        return
    ignored = Start.found(start.environment, None).launch
    if ignored is not None and ignored.world_size > 1:
        yield error(
            "launch-ignored",
            f"{ignored.program} started {ignored.world_size} processes, and --launcher=none leaves it out: "
            "each would train alone and write the same files",
            "leave out --launcher=none, or start one process",
        )


def check_contradictions(start: Start) -> Iterator[Finding]:
    """Ranks lie below their number, and two launchers say the same."""
    for part, whole in _PARTS:
        one, two = start.number(part), start.number(whole)
        above = one is not None and two is not None and (one > two if whole == "RANK" else one >= two)
        if above:
            yield error("launch-contradiction", f"{part}={one} with {whole}={two}", "unset what is left over")
    for ours, theirs in _SAME:
        one, two = start.number(ours), start.number(theirs)
        if one is not None and two is not None and one != two:
            yield warning(
                "launch-two",
                f"{ours}={one}, but {theirs}={two}",
                "use one launcher, or unset what is left over",
            )


def check_address(start: Start) -> Iterator[Finding]:
    """Processes on several machines find process 0."""
    local, world = start.number("LOCAL_WORLD_SIZE"), start.number("WORLD_SIZE")
    address = start.environment.get("MASTER_ADDR", "")
    if address in _LOOPBACK and local is not None and world is not None and local < world:
        yield error(
            "master-loopback",
            f"MASTER_ADDR={address} with {world} processes, {local} of them on this machine: the others look "
            "for process 0 on their own machine",
            "give the name of the first machine: torchrun --master_addr or --rdzv_endpoint",
        )


CHECKS: tuple[Callable[[Start], Iterator[Finding]], ...] = (
    check_launch,
    check_ignored,
    check_contradictions,
    check_address,
)


def examine_start(start: Start) -> list[Finding]:
    """Run all checks of this module."""
    return [finding for check in CHECKS for finding in check(start)]
