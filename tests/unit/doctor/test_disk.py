"""Room and folders of a run."""

from dataclasses import replace
from pathlib import Path

import pytest

from mace.doctor.disk import Estimate, Volume, check_folders, check_room, examine_disk, kind_of
from mace.doctor.findings import Severity
from tests.tiny_run import make_plan, write_frames

MOUNTS = """\
overlay / overlay rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
/dev/sda1 /data ext4 rw 0 0
tmpfs /data/my\\040scratch tmpfs rw 0 0
"""
VOLUME = Volume(folder=Path("run"), device=1, free=10**9, kind="ext4", obstacle=None)


@pytest.fixture
def plan(tmp_path):
    write_frames(tmp_path / "train.xyz", 12)
    return make_plan(tmp_path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/me", "overlay"), ("/data/me", "ext4"), ("/data/my scratch/a", "tmpfs"), ("/dev/shm", "tmpfs")],
)
def test_the_kind_of_a_file_system(path, kind):
    assert kind_of(Path(path), MOUNTS) == kind
    assert kind_of(Path(path), "") is None


def codes(findings):
    return {finding.code: finding for finding in findings}


@pytest.mark.parametrize(
    ("code", "changes", "severity"),
    [
        ("folder-unwritable", {"obstacle": "/run: read-only"}, "error"),
        ("folder-volatile", {"kind": "tmpfs"}, "warning"),
    ],
)
def test_folders_that_do_not_keep_files(code, changes, severity):
    assert not codes(check_folders([VOLUME]))
    finding = codes(check_folders([replace(VOLUME, **changes)]))[code]
    assert finding.severity is Severity(severity) and "'run'" in finding.found and finding.cure


@pytest.mark.parametrize(
    ("needed", "code", "severity"),
    [(1e8, "disk", "ok"), (7e8, "disk-short", "warning"), (2e9, "disk-full", "error")],
)
def test_room(needed, code, severity):
    found = codes(check_room([VOLUME], {VOLUME.folder: needed}, "an estimate"))
    assert found.keys() == {code}
    assert found[code].severity is Severity(severity)
    assert "1.00 GB free" in found[code].found and "an estimate" in found[code].found


def test_folders_on_one_file_system_share_the_room():
    two = [VOLUME, replace(VOLUME, folder=Path("models"))]
    needed = {Path("run"): 4e8, Path("models"): 3e8}
    assert codes(check_room(two, needed, "")).keys() == {"disk-short"}
    apart = [VOLUME, replace(two[1], device=2)]
    assert [finding.code for finding in check_room(apart, needed, "")] == ["disk", "disk"]


def test_the_estimate(plan, tmp_path):
    estimate = Estimate.of(plan, 1e6)
    assert (estimate.checkpoints, estimate.models_by_tag, estimate.models) == (12e6, 1e6, 3e6)
    assert estimate.text == "model of 1.0 MB: 3 checkpoints of 4 times that and 4 models"
    richer = Estimate.of(make_plan(tmp_path, swa=True, start_swa=1, ema=True), 1e6)
    assert (richer.checkpoints, richer.models_by_tag, richer.models) == (30e6, 2e6, 6e6)
    kept = Estimate.of(make_plan(tmp_path, keep_checkpoints=True, max_num_epochs=100), 1e6)
    assert kept.checkpoints == 102 * 4e6
    assert "model of 20.0 MB (assumed" in Estimate.of(plan, None).text


def test_a_real_folder_leaves_nothing_behind(plan, tmp_path):
    before = sorted(tmp_path.iterdir())
    assert codes(examine_disk(plan, 1e6)).keys() <= {"disk", "folder-volatile"}
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_in_the_place_of_a_folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 12)
    finding = codes(examine_disk(make_plan(tmp_path, log_dir=tmp_path / "train.xyz"), 1e6))[
        "folder-unwritable"
    ]
    assert "train.xyz" in finding.found


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no /dev/shm")
def test_a_real_tmpfs(tmp_path):
    write_frames(tmp_path / "train.xyz", 12)
    assert "folder-volatile" in codes(examine_disk(make_plan(tmp_path, work_dir="/dev/shm/new/run"), 1e6))
    assert not Path("/dev/shm/new").exists()


def test_more_than_there_is(plan):
    assert "disk-full" in codes(examine_disk(plan, 1e15))
