"""A file is whole or not there."""

import io
import os
import stat

import pytest
import torch

from mace.tools import files
from mace.tools.files import atomic_save, atomic_write


def test_the_file_appears_whole_and_alone(tmp_path):
    path = tmp_path / "new" / "folder" / "a.model"
    atomic_write(path, lambda file: file.write(b"abc"))
    assert path.read_bytes() == b"abc" and os.listdir(path.parent) == ["a.model"]
    atomic_write(path, lambda file: file.write(b"de"))
    assert path.read_bytes() == b"de" and os.listdir(path.parent) == ["a.model"]


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    atomic_write(tmp_path / "atomic", lambda file: file.write(b""))
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "atomic")}
    assert len(modes) == 1


@pytest.mark.parametrize("where", ["write", "check", "fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_temporary_one(tmp_path, monkeypatch, where):
    path = tmp_path / "a.model"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "no space left on device")

    if where in ("fsync", "replace"):
        monkeypatch.setattr(files.os, where, fail)
    with pytest.raises(OSError, match="no space"):
        atomic_write(
            path,
            fail if where == "write" else lambda file: file.write(b"new"),
            fail if where == "check" else None,
        )
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.model"]


def test_the_check_sees_all_bytes_under_another_name(tmp_path):
    seen = []
    path = tmp_path / "a.model"
    atomic_write(
        path,
        lambda file: file.write(b"x" * 100_000),
        lambda temporary: seen.append((temporary, temporary.stat().st_size)),
    )
    assert seen[0][1] == 100_000 and seen[0][0] != path and seen[0][0].parent == tmp_path


def test_the_order_is_write_flush_file_rename_flush_folder(tmp_path, monkeypatch):
    steps = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            files.os, name, lambda *a, _name=name, _real=real: (steps.append(_name), _real(*a))[1]
        )
    atomic_write(tmp_path / "a", lambda file: (steps.append("write"), file.write(b"1")))
    assert steps == ["write", "fsync", "replace", "fsync"]


def test_a_symbolic_link_is_followed(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    atomic_write(tmp_path / "link", lambda file: file.write(b"new"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"new"


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path):
    dead = tmp_path / f".a.model.{2**22 + 1}-01234567.tmp"
    alive = tmp_path / f".a.model.{os.getpid()}-01234567.tmp"
    other = tmp_path / f".b.model.{2**22 + 1}-01234567.tmp"
    for leftover in (dead, alive, other):
        leftover.write_bytes(b"half")
    atomic_write(tmp_path / "a.model", lambda file: file.write(b"1"))
    assert sorted(os.listdir(tmp_path)) == sorted(["a.model", alive.name, other.name])


def test_a_folder_in_the_way_is_an_error(tmp_path):
    (tmp_path / "a.model").mkdir()
    with pytest.raises(OSError, match="a.model"):
        atomic_write(tmp_path / "a.model", lambda file: file.write(b"1"))
    assert os.listdir(tmp_path) == ["a.model"]


def test_a_full_disk_is_called_a_full_disk(tmp_path, monkeypatch):
    class FullDisk(io.BytesIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    real = open

    def opened(path, mode, **kwargs):
        real(path, mode).close()
        return FullDisk()

    monkeypatch.setattr(files, "open", opened, raising=False)
    with pytest.raises(OSError, match="No space left"):
        atomic_save({"a": torch.zeros(1000)}, tmp_path / "a.pt")
    assert not os.listdir(tmp_path)


def test_tensors_are_saved_as_torch_saves_them(tmp_path):
    atomic_save({"a": torch.arange(3)}, tmp_path / "a.pt")
    assert torch.load(tmp_path / "a.pt", weights_only=True)["a"].tolist() == [0, 1, 2]
