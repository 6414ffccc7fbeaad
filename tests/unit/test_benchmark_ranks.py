"""The benchmark of two ranks beside one: which numbers keep the promise; nothing is measured here."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "benchmark_ranks.py"


@pytest.fixture
def script() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_ranks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KEPT = [
    pytest.param([(1.7, 1.0)], id="just enough"),
    pytest.param([(1.0, 1.0), (1.8, 1.0), (1.9, 1.0)], id="the median counts, not the worst round"),
    pytest.param([(0.5, 0.25)], id="the shortest step"),
]
BROKEN = [
    pytest.param([(1.69, 1.0)], ["two ranks are 1.690 times"], id="too slow"),
    pytest.param([(1.6, 1.0), (2.0, 1.0), (1.5, 1.0)], ["two ranks are 1.600 times"], id="a median below"),
    pytest.param([(0.6, 0.3), (0.499, 0.25)], ["a step of one rank takes 0.499 s"], id="a step too short"),
    pytest.param([(0.4, 0.4)], ["two ranks are 1.000 times", "takes 0.400 s"], id="both"),
]


def run(script: types.ModuleType, monkeypatch: pytest.MonkeyPatch, rounds: list[tuple[float, float]]) -> None:
    """The command, where the steps of one rank and of two take these seconds."""
    times = {(1, 1): iter([one for one, _ in rounds]), (1, 2): iter([two for _, two in rounds])}
    times[2, 1] = iter([two for _, two in rounds])

    class Job:
        def __init__(self, *kind: int) -> None:
            self.kind = kind

        def turn(self, steps: int) -> float:
            return next(times[self.kind]) if steps == script.TURN else 0.0

        def end(self) -> None:
            del times[self.kind]

    monkeypatch.setattr(script, "Job", Job)
    monkeypatch.setattr(sys, "argv", ["benchmark_ranks", f"--rounds={len(rounds)}"])
    try:
        script.main()
    finally:
        assert not times, "all were ended"


@pytest.mark.parametrize("rounds", KEPT)
def test_numbers_that_keep_the_promise(script, monkeypatch, capsys, rounds) -> None:
    run(script, monkeypatch, rounds)
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == len(rounds) + 1 and printed.err == ""


@pytest.mark.parametrize(("rounds", "lines"), BROKEN)
def test_numbers_that_break_it_are_told_and_end_the_command(
    script, monkeypatch, capsys, rounds, lines
) -> None:
    with pytest.raises(SystemExit) as end:
        run(script, monkeypatch, rounds)
    said = str(end.value.code).splitlines()  # a text is printed to stderr, and the status is 1
    assert len(said) == len(lines) and all(line in one for line, one in zip(lines, said, strict=True))
    assert len(capsys.readouterr().out.splitlines()) == len(rounds) + 1
