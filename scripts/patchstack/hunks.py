"""The text of a patch, read: files, hunks and lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchstack.errors import Refused

RANGE = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
MODE_LINE = re.compile(r"(old mode|new mode|new file mode|deleted file mode) (100644|100755)$")
SWAPPED_TAGS = bytes.maketrans(b"+-", b"-+")


@dataclass(frozen=True)
class Hunk:
    """A run of lines that replaces another one; `old_at` and `new_at` count lines from 0."""

    old_at: int
    new_at: int
    lines: tuple[bytes, ...]  # each a tag (space, - or +), then the line with its own ending, if it has one

    def side(self, tag: bytes) -> list[bytes]:
        """The lines of the old (`-`) or the new (`+`) side, context included."""
        return [line[1:] for line in self.lines if line[:1] in (b" ", tag)]

    def reversed(self) -> Hunk:
        """The hunk that takes this one back."""
        lines = tuple(line[:1].translate(SWAPPED_TAGS) + line[1:] for line in self.lines)
        return Hunk(self.new_at, self.old_at, lines)


@dataclass(frozen=True)
class FileDiff:
    """What a patch does to one file; modes are None where the patch says nothing about them."""

    path: str
    adds: bool = False
    deletes: bool = False
    old_mode: str | None = None
    new_mode: str | None = None
    hunks: tuple[Hunk, ...] = ()

    def reversed(self) -> FileDiff:
        """The change that takes this one back."""
        hunks = tuple(hunk.reversed() for hunk in self.hunks)
        return FileDiff(self.path, self.deletes, self.adds, self.new_mode, self.old_mode, hunks)

    def changes(self) -> tuple[object, ...]:
        """The change proper: without context and line numbers, which move when a file changes elsewhere."""
        lines = tuple(line for hunk in self.hunks for line in hunk.lines if line[:1] != b" ")
        return (self.path, self.adds, self.deletes, self.old_mode, self.new_mode, lines)


def split_lines(data: bytes) -> list[bytes]:
    r"""Split at \n alone, endings kept, so that \r and form feeds stay inside their lines."""
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return lines + [parts[-1]] if parts[-1] else lines


def read_hunks(lines: Sequence[bytes], at: int, where: str) -> tuple[tuple[Hunk, ...], int]:
    """Read hunks from line `at` on; return them and the number of the first line behind them."""
    hunks = []
    while at < len(lines) and (match := RANGE.match(lines[at])):
        old_start, old_left, new_start, new_left = (
            1 if field is None else int(field) for field in match.groups()
        )
        old_at, new_at = old_start - (old_left > 0), new_start - (new_left > 0)
        body: list[bytes] = []
        at += 1
        while old_left > 0 or new_left > 0 or (at < len(lines) and lines[at][:1] == b"\\"):
            tag = lines[at][:1] if at < len(lines) else b""
            if tag == b"\\" and body:
                body[-1] = body[-1].removesuffix(b"\n")
            elif tag in (b" ", b"-", b"+") and tag:
                body.append(lines[at])
                old_left -= tag != b"+"
                new_left -= tag != b"-"
            else:
                raise Refused(f"{where}: line {at + 1}: the hunk ends too early")
            at += 1
        if old_left or new_left:
            raise Refused(f"{where}: line {at}: the hunk has more lines than it announces")
        hunks.append(Hunk(old_at, new_at, tuple(body)))
    return tuple(hunks), at


def starts_diff(lines: Sequence[bytes], at: int) -> bool:
    """Whether the part for one file begins here, by any tool's habit."""
    if lines[at].startswith(b"--- "):
        return at + 1 < len(lines) and lines[at + 1].startswith(b"+++ ")
    return lines[at].startswith((b"diff --git ", b"Index: "))


def parse_diff(text: bytes, where: str) -> tuple[FileDiff, ...]:
    """Read the part of a patch behind its header; decoration (`Index:`, `====`, `index`) is passed over."""
    lines, at = split_lines(text), 0
    diffs: list[FileDiff] = []
    git_style: FileDiff | None = None  # announced by git's own lines, hunks yet to come
    while at < len(lines):
        line = lines[at].decode(errors="surrogateescape").rstrip("\n")
        if line.startswith("diff --git "):
            diffs += [git_style] if git_style else []
            git_style = FileDiff(git_path(line, where))
        elif git_style and (match := MODE_LINE.match(line)):
            git_style = with_mode(git_style, *match.groups())
        elif starts_diff(lines, at) and line.startswith("--- "):
            diff = named_by(line[4:], lines[at + 1].decode(errors="surrogateescape")[4:].rstrip("\n"), where)
            if git_style and git_style.path == diff.path:
                diff = replace(diff, old_mode=git_style.old_mode, new_mode=git_style.new_mode)
                git_style = None
            hunks, at = read_hunks(lines, at + 2, where)
            diffs.append(replace(diff, hunks=hunks))
            continue
        elif line and not line.startswith(("Index: ", "====", "index ")):
            raise Refused(f"{where}: line {at + 1} of the diff is no part of a unified diff: {line[:60]!r}")
        at += 1
    diffs += [git_style] if git_style else []
    repeated = {diff.path for diff in diffs if sum(other.path == diff.path for other in diffs) > 1}
    if repeated:
        raise Refused(f"{where}: names {sorted(repeated)[0]} twice")
    return tuple(diffs)


def with_mode(diff: FileDiff, kind: str, mode: str) -> FileDiff:
    """Take in one of git's mode lines."""
    if kind == "old mode":
        return replace(diff, old_mode=mode)
    if kind == "deleted file mode":
        return replace(diff, deletes=True, old_mode=mode)
    return replace(diff, adds=kind == "new file mode", new_mode=mode)


def git_path(line: str, where: str) -> str:
    """The path in `diff --git a/PATH b/PATH`; both halves are equal, which also settles paths with spaces."""
    names = line.removeprefix("diff --git ")
    path = names[2 : len(names) // 2]
    if names != f"a/{path} b/{path}":
        raise Refused(f"{where}: renames are not supported: {line!r}")
    return path


def named_by(old: str, new: str, where: str) -> FileDiff:
    """The file that a pair of `---` and `+++` lines names, time stamps behind a tab cut off, -p1."""
    names = [name.split("\t")[0] for name in (old, new)]
    paths = [None if name == "/dev/null" else name.partition("/")[2] for name in names]
    path = paths[1] or paths[0]
    if not path or (None not in paths and paths[0] != paths[1]):
        raise Refused(f"{where}: cannot tell which file is meant by {names[0]!r} and {names[1]!r}")
    return FileDiff(path, adds=paths[0] is None, deletes=paths[1] is None)
