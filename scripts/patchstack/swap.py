"""Change many files as one step.

The new contents are first written, whole, into a journal in git's own folder; its appearance under its
final name is the moment at which the change happens. Signals wait from there until every file is in place.
If the process is killed in between all the same, the next call of any verb finds the journal and finishes
it before it does anything else: so the tree is as it was before the journal appeared, and completely
changed after. Each file is replaced by a rename. A file that someone edits meanwhile is never overwritten:
before the journal that is a refusal that changes nothing, after it the journal stays and the file is named.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from patchstack.errors import Refused
from patchstack.trees import File, Tree, changed_paths, is_work_tree, read_file, run_git

PATIENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # wait until a swap is complete


@dataclass(frozen=True)
class Step:
    """One file's change; None stands for no file."""

    path: str
    old: str | None  # digest
    new: File | None


def state_folder(root: Path) -> Path:
    """The folder for the journal and the lock: in git's own, so that it is never part of the tree."""
    if not is_work_tree(root):
        raise Refused(f"{root} is not the top of a git work tree: only status, verify and export work here")
    return Path(os.fsdecode(run_git(root, "rev-parse", "--absolute-git-dir")).strip()) / "patchstack"


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keep other calls out, and finish what a killed one left."""
    folder = state_folder(root)
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with patient():
            finish(root, folder / "journal")
        yield


def finish_interrupted(root: Path) -> None:
    """Complete a change that was cut off; for verbs that only read and so need no lock."""
    if is_work_tree(root) and (state_folder(root) / "journal").exists():
        with locked(root):
            pass


def swap(root: Path, old: Tree, new: Tree) -> None:
    """Turn the files `old`, as they were read, into `new`; other files are left alone. Needs the lock."""
    steps = [Step(path, digest_of(old.get(path)), new.get(path)) for path in changed_paths(old, new)]
    journal = state_folder(root) / "journal"
    for step in steps:
        if digest_of(read_file(root / step.path)) != step.old:
            raise Refused(f"{step.path} changed while the tool was working; nothing has been done")
    with patient():
        write_whole(journal, json.dumps([encode(step) for step in steps]).encode())
        finish(root, journal)


def finish(root: Path, journal: Path) -> None:
    """Carry out a journal; done steps are passed, so that it may be cut off and begun again."""
    if not journal.exists():
        return
    steps = [decode(entry) for entry in json.loads(journal.read_bytes())]
    for step in sorted(steps, key=lambda step: step.new is not None):  # a file may make way for a folder
        temporary = beside(root / step.path)
        if temporary.exists():
            temporary.unlink()
        present = digest_of(read_file(root / step.path))
        if present == digest_of(step.new):
            continue
        if present != step.old:
            raise Refused(
                f"{step.path} was edited in the middle of a change that is not complete: put it away, then "
                f"call any verb again (the change stands in {journal})"
            )
        replace_file(root, step)
    journal.unlink()


def replace_file(root: Path, step: Step) -> None:
    """Put one file in place, or take it away with the folders that it leaves empty."""
    target = root / step.path
    if step.new is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, step.new.data, step.new.executable)
        return
    target.unlink()
    folder = target.parent
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def beside(target: Path) -> Path:
    """The temporary name beside a file."""
    return target.with_name(f".{target.name}.patches-tmp")


def write_whole(target: Path, data: bytes, executable: bool = False) -> None:
    """Write a file under a temporary name and rename it; an existing file's permissions stay."""
    temporary = beside(target)
    temporary.write_bytes(data)
    mode = (target if target.exists() else temporary).stat().st_mode & 0o777
    runs = (mode & 0o444) >> 2
    temporary.chmod(mode | runs if executable else mode & ~0o111)
    os.replace(temporary, target)


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Hold signals back; those that came meanwhile arrive at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PATIENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def digest_of(file: File | None) -> str | None:
    """The digest of a file that may not exist."""
    return file.digest if file is not None else None


def encode(step: Step) -> dict[str, str | bool | None]:
    """A step as plain JSON."""
    data = base64.b64encode(step.new.data).decode() if step.new else None
    return {
        "path": step.path,
        "old": step.old,
        "data": data,
        "executable": bool(step.new and step.new.executable),
    }


def decode(entry: dict[str, str]) -> Step:
    """A step from plain JSON."""
    new = None if entry["data"] is None else File(base64.b64decode(entry["data"]), bool(entry["executable"]))
    return Step(entry["path"], entry["old"], new)
