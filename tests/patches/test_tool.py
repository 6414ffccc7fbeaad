"""scripts/patches on toy repositories; the real tree is never touched."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patches.toy import (
    SCRIPT,
    call,
    commit,
    complete_header,
    everything,
    make_repository,
    patches,
    quilt,
    random_change,
    random_levels,
    read,
    run,
    simple_levels,
    write,
)


@pytest.fixture
def toy(tmp_path):
    """A repository with three patches."""
    return make_repository(tmp_path / "a toy", simple_levels())


# ---- pop and push


@pytest.mark.parametrize("seed", range(12))
def test_pop_and_push_go_through_the_levels_byte_for_byte(tmp_path, seed):
    levels = random_levels(random.Random(seed), 4)
    root = make_repository(tmp_path / "toy", levels)
    before = everything(root)
    for level in (3, 2, 1, 0):
        patches(root, "pop")
        assert read(root) == levels[level]
    patches(root, "push", "0002")
    assert read(root) == levels[2]
    patches(root, "push", "-a")
    assert read(root) == levels[4]
    patches(root, "pop", "0001")
    assert read(root) == levels[1]
    patches(root, "pop", "--all")
    patches(root, "push", "--all")
    shutil.rmtree(root / ".pc")
    assert everything(root) == before
    assert run(root, "git", "status", "--porcelain") == ""


def test_pop_beyond_the_end_changes_nothing(toy):
    before = everything(toy)
    assert "at 0003-step-3" in patches(toy, "push", "-a")
    assert everything(toy) == before
    patches(toy, "pop", "-a")
    assert "at the base" in patches(toy, "pop")
    assert "not applied" in patches(toy, "pop", "0002", status=1)
    patches(toy, "push", "0002")
    assert "applied already" in patches(toy, "push", "0001", status=1)


def test_edits_elsewhere_survive_pop_and_push(toy):
    edited = toy / "mace" / "untouched.py"
    edited.write_text("same = 2\n")
    patches(toy, "pop", "-a")
    assert edited.read_text() == "same = 2\n"
    assert "edited   mace/untouched.py" in patches(toy, "status", status=1)
    patches(toy, "push", "-a")
    assert run(toy, "git", "diff", "--name-only") == "mace/untouched.py\n"


def test_edits_in_a_patched_file_stop_pop(toy):
    with (toy / "mace" / "a.py").open("a") as stream:
        stream.write("mine = 1\n")
    before = everything(toy)
    assert "mace/a.py" in patches(toy, "pop", "-a", status=1)
    assert everything(toy) == before
    patches(toy, "pop", "0002")  # 0003 does not touch that file
    assert "mine = 1" in (toy / "mace" / "a.py").read_text()


def test_a_file_in_the_way_of_a_new_one_stops_push(toy):
    patches(toy, "pop", "0002")
    (toy / "mace" / "room").mkdir()
    (toy / "mace" / "room" / "new.py").write_text("somebody's\n")
    assert "mace/room/new.py" in patches(toy, "push", status=1)
    assert (toy / "mace" / "room" / "new.py").read_text() == "somebody's\n"


def test_a_folder_that_pop_empties_goes_and_one_with_other_files_stays(toy):
    (toy / "mace" / "room" / "__pycache__").mkdir()
    (toy / "mace" / "room" / "__pycache__" / "new.cpython-311.pyc").write_bytes(b"code")
    patches(toy, "pop")
    assert [path.name for path in (toy / "mace" / "room").iterdir()] == ["__pycache__"]
    shutil.rmtree(toy / "mace" / "room")
    patches(toy, "push")
    patches(toy, "pop")
    assert not (toy / "mace" / "room").exists()


def test_a_patch_that_moved_by_one_line_is_not_applied(toy):
    patch = toy / "patches" / "0002-step-2.patch"
    patch.write_text(patch.read_text().replace("@@ -9,7 +9,8 @@", "@@ -10,7 +10,8 @@"))
    before = everything(toy)
    assert "0002-step-2" in patches(toy, "pop", "-a", status=1)
    assert "mace/a.py:10" in patches(toy, "verify", status=1)
    assert everything(toy) == before
    patches(toy, "refresh", "0002")  # the one verb that accepts an offset, and takes it away
    assert run(toy, "git", "status", "--porcelain") == ""


def test_permissions_and_unrelated_files_stay(toy):
    (toy / "mace" / "a.py").chmod(0o600)
    (toy / "notes with space.txt").write_text("mine")
    patches(toy, "pop", "-a")
    assert (toy / "mace" / "a.py").stat().st_mode & 0o777 == 0o600
    assert (toy / "notes with space.txt").read_text() == "mine"


def test_the_working_directory_does_not_matter(toy, tmp_path):
    patches(toy, "pop", "-a", cwd=toy / "mace" / "tools")
    patches(toy, "push", "-a", cwd=tmp_path)
    assert read(toy) == simple_levels()[-1]


def test_variables_of_a_git_hook_do_not_matter(toy):
    patches(toy, "pop", "-a", GIT_DIR="/nowhere", GIT_WORK_TREE="/nowhere", GIT_INDEX_FILE="/nowhere/index")
    assert read(toy) == simple_levels()[0]


# ---- export


def test_export_writes_each_level_and_leaves_the_tree(toy, tmp_path):
    levels = simple_levels()
    for name in ("setup.cfg", "cp_mace.py"):
        (toy / name).write_text("")
    before = everything(toy)
    for number, files in enumerate(levels):
        patches(toy, "export", "--level", number, tmp_path / f"out {number}")
        assert read(tmp_path / f"out {number}") == files
        assert all((tmp_path / f"out {number}" / name).is_file() for name in ("setup.cfg", "cp_mace.py"))
    assert everything(toy) == before
    assert "not an empty folder" in patches(toy, "export", "--level", 1, tmp_path / "out 1", status=2)
    assert "no level 4" in patches(toy, "export", "--level", 4, tmp_path / "out 4", status=2)


def test_export_leaves_edits_out_and_says_so(toy, tmp_path):
    (toy / "mace" / "a.py").write_text("mine = 1\n")
    assert "mace/a.py" in patches(toy, "export", "--level", 2, tmp_path / "out")
    assert read(tmp_path / "out") == simple_levels()[2]


def test_reading_verbs_work_without_git(toy, tmp_path):
    plain = tmp_path / "plain"
    shutil.copytree(toy, plain, ignore=shutil.ignore_patterns(".git"))
    patches(plain, "verify")
    patches(plain, "status")
    patches(plain, "export", "--level", 0, tmp_path / "out")
    assert read(tmp_path / "out") == simple_levels()[0]
    assert "git work tree" in patches(plain, "pop", status=1)


# ---- refresh


def test_refresh_without_a_change_writes_nothing(toy):
    stamps = {path: path.stat().st_mtime_ns for path in (toy / "patches").iterdir()}
    for name in ("base", "0001", "0002", "0003-step-3.patch"):
        assert "up to date" in patches(toy, "refresh", name)
    assert {path: path.stat().st_mtime_ns for path in (toy / "patches").iterdir()} == stamps


def test_refresh_folds_an_edit_into_a_patch_and_keeps_the_header(toy):
    (toy / "mace" / "tools" / "new_one.py").write_text("one = 11\n")
    patch = toy / "patches" / "0001-step-1.patch"
    patch.write_text(patch.read_text().replace("Last-Update: 20", "Last-Update: 19"))
    patches(toy, "refresh", "0001")
    assert "+one = 11" in patch.read_text() and "Description: a step" in patch.read_text()
    assert "Last-Update: 20" in patch.read_text()
    commit(toy)
    patches(toy, "verify")
    patches(toy, "pop", "-a")
    assert read(toy) == simple_levels()[0]


def test_refresh_base_moves_only_context_and_the_hash(toy):
    data = (toy / "mace" / "a.py").read_text()
    (toy / "mace" / "a.py").write_text("top = 1\n" + data.replace("x8 = 8", "x8 = 'eight'"))
    before = {path.name: path.read_text() for path in (toy / "patches").glob("*.patch")}
    printed = patches(toy, "refresh", "base")
    assert printed.count("changed") == 3  # 0001, 0002 and upstream.toml; 0003 is not touched
    for path in (toy / "patches").glob("*.patch"):
        old, new = before[path.name].splitlines(), path.read_text().splitlines()
        assert [line for line in old if line[:1] in "+-"] == [line for line in new if line[:1] in "+-"]
        assert [line for line in old if line.startswith("Last")] == [
            line for line in new if line.startswith("Last")
        ]
    commit(toy)
    patches(toy, "verify")


def test_refresh_takes_the_edits_of_some_paths_only(toy):
    (toy / "mace" / "untouched.py").write_text("same = 2\n")
    (toy / "mace" / "tools" / "new_one.py").write_text("one = 11\n")
    patches(toy, "refresh", "base", "mace/untouched.py")
    assert "edited   mace/tools/new_one.py" in patches(toy, "status", status=1)
    patches(toy, "refresh", "0001", "new_one.py", cwd=toy / "mace" / "tools")
    patches(toy, "status")


def test_refresh_several_times_without_a_commit(toy):
    for number in range(3):
        with (toy / "mace" / "untouched.py").open("a") as stream:
            stream.write(f"more = {number}\n")
        patches(toy, "refresh", "base")
    commit(toy)
    patches(toy, "verify")


def test_an_edit_that_was_committed_without_refresh_can_still_be_folded(toy):
    with (toy / "mace" / "a.py").open("a") as stream:
        stream.write("late = 1\n")
    commit(toy)
    assert "mace/a.py has edits that are in no patch" in patches(toy, "verify", status=1)
    patches(toy, "refresh", "0002")
    assert "+late = 1" in (toy / "patches" / "0002-step-2.patch").read_text()


def test_refresh_base_works_when_the_recorded_base_is_lost(toy):
    upstream = toy / "patches" / "upstream.toml"
    upstream.write_text(re.sub("sha256:[0-9a-f]+", "sha256:" + "0" * 64, upstream.read_text()))
    commit(toy)
    assert "no tree with the hash" in patches(toy, "pop", status=1)
    patches(toy, "refresh", "base")
    commit(toy)
    patches(toy, "verify")
    patches(toy, "pop", "-a")
    assert read(toy) == simple_levels()[0]


def test_a_conflict_names_patch_file_and_line_and_changes_nothing(toy):
    data = (toy / "mace" / "a.py").read_text()
    (toy / "mace" / "a.py").write_text(data.replace("x11 = 'eleven'", "x11 = 'ELEVEN'"))
    before = everything(toy)
    for goal in ("base", "0001"):
        printed = patches(toy, "refresh", goal, status=1)
        assert "0002-step-2: mace/a.py:12: \"x11 = 'ELEVEN'\"" in printed
    assert everything(toy) == before
    patches(toy, "refresh", "0002")


def test_an_edit_below_conflicts_with_a_patch_that_is_popped(toy):
    patches(toy, "pop", "-a")
    data = (toy / "mace" / "a.py").read_text()
    (toy / "mace" / "a.py").write_text(data.replace("x11 = 11", "x11 = 110"))
    before = everything(toy)
    assert "0002-step-2: mace/a.py:12" in patches(toy, "refresh", "base", status=1)
    assert "not applied" in patches(toy, "refresh", "0001", status=1)
    assert everything(toy) == before


def test_a_binary_file_is_refused(toy):
    (toy / "mace" / "table.bin").write_bytes(b"\0\1")
    patches(toy, "refresh", "base")  # the base may hold anything
    (toy / "mace" / "other.bin").write_bytes(b"\0\1")
    assert "binary" in patches(toy, "refresh", "0003", status=1)


@pytest.mark.parametrize("seed", range(16))
def test_random_refreshes_are_exact_or_change_nothing(tmp_path, seed):
    rnd = random.Random(seed)
    root = make_repository(tmp_path / "toy", random_levels(rnd, 3))
    folded = 0
    for _ in range(8):
        level = rnd.randrange(4)
        here = f"000{level}" if level else "-a"
        patches(root, "pop", here)
        write(root, random_change(rnd, read(root)))
        edited = read(root)
        done = refresh_once(root, rnd.choice(["base", "0001", "0002", "0003"][: level + 1]))
        assert read(root) == edited, "refresh must not touch mace/"
        if done:
            patches(root, "pop", "-a")
            patches(root, "push", "-a")
            patches(root, "pop", here)
            assert read(root) == edited
            patches(root, "push", "-a")
            commit(root)
            folded += 1
        else:
            restore(root)
    assert folded


def refresh_once(root: Path, goal: str) -> bool:
    """Refresh; if that is refused, nothing at all may have changed."""
    before = everything(root)
    status, printed = call(root, "refresh", goal)
    assert status in (0, 1), printed
    assert status == 0 or everything(root) == before, printed
    return status == 0


def restore(root: Path) -> None:
    """Go back to the committed tree."""
    shutil.rmtree(root / ".pc", ignore_errors=True)
    run(root, "git", "checkout", "-q", "--", ".")
    run(root, "git", "clean", "-fdq", "mace")


# ---- new patches and the first stack


def test_a_new_patch_from_start_to_end(toy):
    patches(toy, "pop", "0002")
    patches(toy, "new", "0025-between", status=2)
    patches(toy, "new", "0002-again", status=2)
    patches(toy, "new", "Wrong name", status=2)
    patches(toy, "push", "-a")
    patches(toy, "new", "0004-fourth")
    (toy / "mace" / "fourth.py").write_text("four = 4\n")
    patches(toy, "refresh", "0004")
    commit(toy)
    printed = patches(toy, "verify", status=1)
    assert "0004-fourth: header field Description is missing or empty" in printed
    complete_header(toy / "patches" / "0004-fourth.patch")
    patches(toy, "verify")
    patches(toy, "pop")
    assert read(toy) == simple_levels()[-1]


def test_a_new_patch_in_the_middle(toy):
    series = toy / "patches" / "series"
    series.write_text(
        series.read_text().replace("0003-step-3", "0005-step-3").replace("0002", "# the second\n0002")
    )
    (toy / "patches" / "0003-step-3.patch").rename(toy / "patches" / "0005-step-3.patch")
    patches(toy, "pop", "0002")
    patches(toy, "new", "0004-middle")
    (toy / "mace" / "middle.py").write_text("m = 1\n")
    patches(toy, "refresh", "0004")
    patches(toy, "push", "-a")
    complete_header(toy / "patches" / "0004-middle.patch")
    commit(toy)
    patches(toy, "verify")
    assert series.read_text().splitlines()[2:] == [
        *("0002-step-2.patch", "0004-middle.patch", "0005-step-3.patch"),
    ]


def test_import_levels_wants_the_working_tree_as_the_last_level(toy, tmp_path):
    folders = [f"{number:04}-step-{number}={tmp_path}/a toy-level-{number}" for number in (1, 2)]
    before = everything(toy)
    printed = patches(toy, "import-levels", tmp_path / "a toy-level-0", *folders, status=1)
    assert "mace/room/new.py" in printed
    assert everything(toy) == before


def test_import_levels_keeps_headers(toy, tmp_path):
    folders = [f"{number:04}-step-{number}={tmp_path}/a toy-level-{number}" for number in (1, 2, 3)]
    assert "up to date" in patches(toy, "import-levels", tmp_path / "a toy-level-0", *folders)


# ---- verify


def test_verify_is_clean_and_fast(toy):
    start = time.monotonic()
    assert patches(toy, "verify").endswith("clean\n")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("file", "old", "new", "finding"),
    [
        ("patches/0001-step-1.patch", "Description: a step\n", "", "field Description is missing"),
        ("patches/0001-step-1.patch", "Reports: toy#1", "Reports:", "field Reports is missing or empty"),
        ("patches/0001-step-1.patch", "proof.py::test_it", "proof.py::test_other", "which does not exist"),
        ("patches/0001-step-1.patch", "proof.py::test_it", "absent.py", "which does not exist"),
        ("patches/0001-step-1.patch", "Last-Update: ", "Last-Update: about ", "is not a date"),
        ("patches/0001-step-1.patch", "+++ b/mace/a.py", "+++ b/mace/a.py\t2026-01-01", "is not as"),
        ("patches/0001-step-1.patch", " x9 = 9\n", " x9 = 8\n", "does not come off"),
        ("patches/0001-step-1.patch", "@@ -8,7 +8,7 @@", "@@ -8,7 +9,7 @@", "does not come off"),
        ("patches/0001-step-1.patch", "@@ -8,7 +8,7 @@", "@@ -8,9 +8,9 @@", "ends too early"),
        ("patches/series", "0002-step-2.patch\n", "", "0002-step-2.patch is not in patches/series"),
        ("patches/series", "0002-step-2.patch", "0002-step-2.patch -p0", "is not NNNN-name.patch"),
        ("patches/series", "0003-step-3.patch", "0004-step-4.patch", "does not exist"),
        ("patches/upstream.toml", "tree = ", "wood = ", "tree missing"),
        ("patches/upstream.toml", "format = 1", "format = 2", "format 2 is not known"),
        ("patches/upstream.toml", "sha256:", "sha256:0", "the base is sha256:"),
        ("mace/untouched.py", "same = 1", "same = 2", "mace/untouched.py has edits"),
        ("mace/untouched.py", "same = 1", "same = (", "does not compile"),
    ],
)
def test_verify_finds(toy, file, old, new, finding):
    text = (toy / file).read_text()
    assert old in text
    (toy / file).write_text(text.replace(old, new, 1))
    if "compile" in finding:
        patches(toy, "refresh", "base")
    assert finding in patches(toy, "verify", status=1)


def test_verify_finds_series_out_of_order(tmp_path):
    levels = simple_levels()
    root = make_repository(tmp_path / "toy", levels)
    (root / "patches" / "0001-step-1.patch").rename(root / "patches" / "0009-step-1.patch")
    series = root / "patches" / "series"
    series.write_text(series.read_text().replace("0001", "0009"))
    assert "do not ascend" in patches(root, "verify", status=1)


def test_verify_finds_popped_patches(toy):
    patches(toy, "pop", "0001")
    assert "2 patches are not applied" in patches(toy, "verify", status=1)


def test_verify_finds_files_that_a_commit_would_miss(toy):
    (toy / "mace" / "fresh.py").write_text("f = 1\n")
    patches(toy, "refresh", "base")
    assert "mace/fresh.py is not in git yet" in patches(toy, "verify", status=1)
    commit(toy)
    patches(toy, "verify")


def test_verify_finds_what_quilt_cannot_carry_and_patches_outside_mace(tmp_path):
    levels = simple_levels()
    levels[0]["mace/empty.py"] = (b"", False)
    root = make_repository(tmp_path / "toy", levels)
    assert "mace/empty.py is empty below it" in patches(root, "verify", status=1)
    patch = root / "patches" / "0001-step-1.patch"
    patch.write_text(patch.read_text() + "--- /dev/null\n+++ b/setup.cfg\n@@ -0,0 +1 @@\n+x\n")
    (root / "setup.cfg").write_text("x\n")
    assert "touches setup.cfg, outside mace/" in patches(root, "verify", status=1)


def test_the_hash_is_the_documented_one(toy):
    patches(toy, "pop", "-a")
    lines = ""
    for path, (data, executable) in sorted(read(toy).items()):
        lines += f"{'100755' if executable else '100644'} {hashlib.sha256(data).hexdigest()} {path}\n"
    name = "sha256:" + hashlib.sha256(lines.encode()).hexdigest()
    assert f'tree = "{name}"\n' in (toy / "patches" / "upstream.toml").read_text()


def test_upstream_toml_is_toml(toy):
    tomllib = pytest.importorskip("tomllib") if sys.version_info >= (3, 11) else None
    if tomllib:
        values = tomllib.loads((toy / "patches" / "upstream.toml").read_text())
        assert values["format"] == 1 and values["source"] == "toy"


# ---- the text of patches


def test_git_settings_of_the_user_do_not_change_the_text(toy, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[diff]\n\tnoprefix = true\n\talgorithm = histogram\n\tcontext = 9\n\tmnemonicPrefix = true\n"
        "\tsuppressBlankEmpty = true\n\texternal = /bin/false\n"
        "[core]\n\tautocrlf = true\n[color]\n\tui = always\n"
    )
    assert "up to date" in patches(toy, "refresh", "base", HOME=str(home))


def test_gnu_patch_applies_the_patches_without_fuzz(toy):
    patches(toy, "pop", "-a")
    for name in (toy / "patches" / "series").read_text().split():
        printed = run(toy, "patch", "--fuzz=0", "-p1", "-i", f"patches/{name}")
        assert "offset" not in printed
    assert read(toy) == simple_levels()[-1]


# ---- quilt


@pytest.mark.parametrize("seed", range(6))
def test_quilt_pops_and_pushes_without_a_change(tmp_path, seed):
    levels = random_levels(random.Random(100 + seed), 3, plain=True)
    root = make_repository(tmp_path / "toy", levels)
    patches(root, "quilt-init")
    quilt(root, "pop", "-a")
    assert read(root) == levels[0]
    patches(root, "status")
    quilt(root, "push", "-a")
    assert run(root, "git", "status", "--porcelain") == ""
    patches(root, "pop", "0002")
    assert quilt(root, "top").strip().endswith("0002-step-2.patch")
    quilt(root, "push")
    quilt(root, "pop", "-a")
    patches(root, "push", "-a")
    assert quilt(root, "applied").count("step") == 3
    assert run(root, "git", "status", "--porcelain") == ""


def test_quilt_refresh_of_an_unchanged_patch_is_a_no_op(tmp_path):
    levels = simple_levels()
    del levels[3]["mace/run.py"]  # quilt's refresh forgets that a new file is executable
    root = make_repository(tmp_path / "toy", levels)
    patches(root, "quilt-init")
    for _ in range(3):
        assert "unchanged" in quilt(root, "refresh")
        quilt(root, "pop")
    assert re.search("unchanged", call(root, "status")[1]) is None
    assert run(root, "git", "status", "--porcelain", "patches") == ""


def test_a_patch_made_with_quilt_is_taken_over(toy):
    patches(toy, "quilt-init")
    quilt(toy, "new", "0004-by-quilt.patch")
    quilt(toy, "add", "mace/untouched.py")
    (toy / "mace" / "untouched.py").write_text("same = 4\n")
    quilt(toy, "refresh")
    patches(toy, "status")
    patches(toy, "refresh", "0004")
    patches(toy, "pop")
    assert read(toy) == simple_levels()[-1]


# ---- interruptions and others who write

DRIVER = """
import os, sys
sys.path.insert(0, {scripts!r})
from pathlib import Path
from patchstack import verbs
real, left = os.replace, [{count}]
def replace(*arguments):
    if left[0] == 0:
        os._exit(9)
    left[0] -= 1
    real(*arguments)
os.replace = replace
verbs.pop(Path({root!r}), None, True)
"""


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 9])
def test_a_killed_pop_is_finished_by_the_next_verb_or_never_began(toy, count):
    levels = simple_levels()
    code = DRIVER.format(scripts=str(SCRIPT.parent), count=count, root=str(toy))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert result.returncode == 9
    patches(toy, "status")
    assert read(toy) == (levels[0] if count else levels[-1])
    patches(toy, "push", "-a")
    assert run(toy, "git", "status", "--porcelain") == ""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_at_any_moment_leave_one_tree_or_the_other(toy, stop):
    levels = simple_levels()
    rnd = random.Random(int(stop))
    seen = set()
    for _ in range(10):
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "-C", str(toy), "pop", "-a"],
            stdout=-3,
            stderr=-3,
            start_new_session=True,
            # A shell's background jobs, these tests perhaps, inherit it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        time.sleep(rnd.uniform(0.0, 0.25))
        process.send_signal(stop)
        process.wait(timeout=60)
        if stop is signal.SIGKILL:
            patches(toy, "status")
        level = [files for files in (levels[0], levels[-1]) if read(toy) == files]
        assert level, "the tree is neither of the two"
        seen.add(levels.index(level[0]))
        patches(toy, "push", "-a")
        assert run(toy, "git", "status", "--porcelain") == ""
    assert 3 in seen


def test_a_file_edited_while_the_tool_works_is_kept(toy, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from patchstack import errors, verbs

    locate = verbs.locate

    def locate_then_edit(*arguments, **keywords):
        position = locate(*arguments, **keywords)
        (toy / "mace" / "a.py").write_text("mine = 1\n")
        return position

    monkeypatch.setattr(verbs, "locate", locate_then_edit)
    with pytest.raises(errors.Refused, match=r"mace/a\.py changed while"):
        verbs.pop(toy, None, True)
    assert read(toy) == simple_levels()[-1] | {"mace/a.py": (b"mine = 1\n", False)}


def test_a_file_edited_between_a_kill_and_the_next_verb_is_kept(toy):
    code = DRIVER.format(scripts=str(SCRIPT.parent), count=1, root=str(toy))
    subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    levels = simple_levels()
    half_done = [
        path for path, file in read(toy).items() if levels[-1].get(path) == file != levels[0].get(path)
    ]
    edited = toy / half_done[0]
    edited.write_text("mine = 1\n")
    assert "not complete" in patches(toy, "status", status=1)
    assert edited.read_text() == "mine = 1\n"
    edited.write_bytes(levels[-1][half_done[0]][0])
    patches(toy, "status")
    assert read(toy) == levels[0]


def test_calls_at_the_same_time_wait_for_each_other(toy):
    command = [sys.executable, str(SCRIPT), "-C", str(toy)]
    calls = [subprocess.Popen([*command, verb, "-a"], stdout=-3, stderr=-3) for verb in ("pop", "push") * 3]
    assert [call.wait(timeout=60) for call in calls] == [0] * 6
    patches(toy, "push", "-a")
    assert run(toy, "git", "status", "--porcelain") == ""


# ---- usage


@pytest.mark.parametrize(
    "arguments",
    [[], ["rebase"], ["refresh"], ["refresh", "0009"], ["pop", "0009"], ["pop", "0001", "-a"], ["export"]],
)
def test_wrong_usage_is_status_2(toy, arguments):
    before = everything(toy)
    patches(toy, *arguments, status=2)
    assert everything(toy) == before


def test_a_folder_without_a_stack(tmp_path):
    assert "no stack here" in patches(tmp_path, "verify", status=1)
    assert "no stack here" in patches(tmp_path, "status", status=1)
    assert os.listdir(tmp_path) == []
