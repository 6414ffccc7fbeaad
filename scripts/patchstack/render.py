"""The canonical text of a patch: the same two trees give the same bytes on every machine.

Files are sorted by the bytes of their path; three lines of context; no time stamps, no index lines, no
function names behind `@@`; `git diff` finds the lines, with every setting that could change them pinned.
Lines in git's own style (`diff --git`, `new file mode` ...) appear only where a plain unified diff cannot
say it: modes, empty files.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from patchstack.errors import Refused
from patchstack.hunks import FileDiff, Hunk, read_hunks, split_lines
from patchstack.trees import File, Tree, changed_paths, run_git

CONTEXT = 3
SETTINGS = [
    *("-c", "core.autocrlf=false", "-c", "core.safecrlf=false", "-c", "core.attributesFile=/dev/null"),
    *("-c", "diff.suppressBlankEmpty=false", "-c", "diff.orderFile=/dev/null"),
]
OPTIONS = [
    *("--no-index", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--text"),
    *("--diff-algorithm=myers", "--no-indent-heuristic", "--inter-hunk-context=0"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
]
UNPRINTABLE = re.compile(r'[\x00-\x1f\x7f"\\]')


def compare(pairs: Sequence[tuple[bytes, bytes]], context: int = CONTEXT) -> list[tuple[Hunk, ...]]:
    """Compare many pairs of contents with one call of git; one tuple of hunks a pair."""
    found: list[tuple[Hunk, ...]] = [() for _ in pairs]
    with tempfile.TemporaryDirectory(prefix="patches-") as name:
        scratch = Path(name)
        for side in "ab":
            (scratch / side).mkdir()
        for number, (old, new) in enumerate(pairs):
            (scratch / "a" / str(number)).write_bytes(old)
            (scratch / "b" / str(number)).write_bytes(new)
        outside = {  # no repository's and no user's settings apply
            "GIT_CEILING_DIRECTORIES": str(scratch.parent),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        command = [*SETTINGS, "diff", *OPTIONS, f"-U{context}", "a", "b"]
        lines = split_lines(run_git(scratch, *command, allowed=(0, 1), variables=outside))
    at = 0
    while at < len(lines):  # diff --git .../NUMBER, index, ---, +++, hunks
        number = int(lines[at].rpartition(b"/")[2])
        while not lines[at].startswith(b"+++ "):
            at += 1
        found[number], at = read_hunks(lines, at + 1, "git diff")
    return found


def diff_trees(old: Tree, new: Tree) -> tuple[FileDiff, ...]:
    """What leads from one tree to another, file by file."""
    paths = changed_paths(old, new)
    for path in paths:
        check_carriable(path, old.get(path), new.get(path))
    sides = [(old.get(path), new.get(path)) for path in paths]
    hunks = compare(
        [(before.data if before else b"", after.data if after else b"") for before, after in sides]
    )
    return tuple(
        FileDiff(path, before is None, after is None, *told_modes(before, after), found)
        for path, (before, after), found in zip(paths, sides, hunks, strict=True)
    )


def told_modes(before: File | None, after: File | None) -> tuple[str | None, str | None]:
    """The modes that the patch must tell: none where the file stays, or is, an ordinary one."""
    if before and after:
        return (before.mode, after.mode) if before.mode != after.mode else (None, None)
    ordinary = not any(file and (file.executable or not file.data) for file in (before, after))
    if ordinary:
        return None, None
    return before.mode if before else None, after.mode if after else None


def check_carriable(path: str, *files: File | None) -> None:
    """Refuse what a textual patch cannot carry."""
    if UNPRINTABLE.search(path):
        raise Refused(f"{path!r}: a patch cannot carry this name")
    if any(file and b"\0" in file.data for file in files):
        raise Refused(f"{path}: has NUL bytes; a patch cannot carry a binary file")


def render(diffs: Sequence[FileDiff]) -> bytes:
    """Write the text of a patch behind its header."""
    return b"".join(render_file(diff) for diff in diffs)


def render_file(diff: FileDiff) -> bytes:
    """Write the part for one file."""
    lines = []
    if diff.old_mode or diff.new_mode:
        lines.append(f"diff --git a/{diff.path} b/{diff.path}")
        if diff.adds:
            lines.append(f"new file mode {diff.new_mode}")
        elif diff.deletes:
            lines.append(f"deleted file mode {diff.old_mode}")
        else:
            lines += [f"old mode {diff.old_mode}", f"new mode {diff.new_mode}"]
    if diff.hunks:
        end = "\t" if " " in diff.path else ""  # tells GNU patch where a name with spaces ends
        lines.append("--- /dev/null" if diff.adds else f"--- a/{diff.path}{end}")
        lines.append("+++ /dev/null" if diff.deletes else f"+++ b/{diff.path}{end}")
    head = os.fsencode("".join(line + "\n" for line in lines))
    return head + b"".join(render_hunk(hunk) for hunk in diff.hunks)


def render_hunk(hunk: Hunk) -> bytes:
    """Write one hunk."""
    ranges = []
    for at, count in ((hunk.old_at, len(hunk.side(b"-"))), (hunk.new_at, len(hunk.side(b"+")))):
        ranges.append(f"{at + (count > 0)}" + (f",{count}" if count != 1 else ""))
    text = f"@@ -{ranges[0]} +{ranges[1]} @@\n".encode()
    for line in hunk.lines:
        text += line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
    return text
