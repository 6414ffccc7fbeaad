"""The door of ``mace_rescue``: what it prints, and how it ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from mace.cli import rescue
from tests import malicious


def command(monkeypatch: pytest.MonkeyPatch, *given: object) -> None:
    monkeypatch.setattr(sys, "argv", ["mace_rescue", *map(str, given)])
    rescue.main()


def test_it_names_what_it_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    torch.save({"module.a": torch.ones(1)}, tmp_path / "s.pt")
    command(monkeypatch, tmp_path / "s.pt", "-o", tmp_path / "o.pt")
    assert capsys.readouterr().out == f"written: {tmp_path / 'o.pt'}\n"
    command(monkeypatch, tmp_path / "s.pt", "-o", tmp_path / "o.pt", "--overwrite")
    assert list(torch.load(tmp_path / "o.pt", weights_only=True)) == ["a"]


def test_a_refusal_is_one_line_and_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    malicious.write(tmp_path / "evil.pt", "within a model", tmp_path / "bait")
    with pytest.raises(SystemExit) as end:
        command(monkeypatch, tmp_path / "evil.pt")
    error = capsys.readouterr().err
    assert end.value.code == 1 and error.count("\n") == 1
    assert error.startswith("mace_rescue: error: ") and "posix.system" in error and "--trust" in error
    assert not (tmp_path / "bait").exists()


def test_flags_reach_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    malicious.write(tmp_path / "evil.pt", "in a checkpoint", tmp_path / "bait")
    command(monkeypatch, tmp_path / "evil.pt", "--trust")
    assert (tmp_path / "bait").exists()
    for given, part in (
        ((tmp_path, "--name=m", "--seed=2"), "no checkpoint of such a run"),
        ((tmp_path / "evil.pt", "--log=l.log", "--trust"), "exists"),
    ):
        with pytest.raises(SystemExit):
            command(monkeypatch, *given)
        assert part in capsys.readouterr().err
