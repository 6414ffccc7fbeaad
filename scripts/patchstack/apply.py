"""Apply a patch to a tree in memory: exactly where its line numbers say, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from patchstack.errors import Refused
from patchstack.hunks import FileDiff, Hunk, split_lines
from patchstack.trees import File, Tree


class Misfit(Refused):
    """The tree does not hold what the patch expects."""


def apply(tree: Tree, diffs: Sequence[FileDiff], *, moved: bool = False) -> Tree:
    """Return the tree with the patch applied; `moved` lets hunks go to the one other place where they fit."""
    result = dict(tree)
    for diff in diffs:
        file = tree.get(diff.path)
        if diff.adds and file is not None:
            raise Misfit(f"{diff.path}: exists already")
        if not diff.adds and file is None:
            raise Misfit(f"{diff.path}: does not exist")
        changed = change_file(diff, file or File(b"", diff.new_mode == "100755"), moved)
        if not diff.deletes:
            result[diff.path] = changed
            continue
        if changed.data:
            raise Misfit(f"{diff.path}: has lines that the patch does not delete with it")
        del result[diff.path]
    return result


def unapply(tree: Tree, diffs: Sequence[FileDiff], *, moved: bool = False) -> Tree:
    """Return the tree with the patch taken back."""
    return apply(tree, [diff.reversed() for diff in diffs], moved=moved)


def change_file(diff: FileDiff, file: File, moved: bool) -> File:
    """Change one file's lines and mode."""
    if diff.old_mode and file.mode != diff.old_mode:
        raise Misfit(f"{diff.path}: has mode {file.mode}, expected {diff.old_mode}")
    if diff.deletes and not diff.old_mode and file.executable:
        raise Misfit(f"{diff.path}: is executable, and the patch that deletes it does not know that")
    lines = change_lines(diff.path, split_lines(file.data), diff.hunks, moved)
    if any(not line.endswith(b"\n") for line in lines[:-1]):
        raise Misfit(f"{diff.path}: lines would follow a line without an ending")
    executable = diff.new_mode == "100755" if diff.new_mode else file.executable
    return File(b"".join(lines), executable)


def change_lines(path: str, lines: list[bytes], hunks: Sequence[Hunk], moved: bool) -> list[bytes]:
    """Replace each hunk's old lines by its new ones."""
    result: list[bytes] = []
    done = 0  # lines of the old file that are already in the result
    shifted = False
    for hunk in hunks:
        old = hunk.side(b"-")
        start = place(path, lines, hunk, done, shifted) if moved else hunk.old_at
        shifted = shifted or start != hunk.old_at
        if start < done or lines[start : start + len(old)] != old:
            raise Misfit(describe(path, lines, old, start))
        result += lines[done:start]
        if not moved and len(result) != hunk.new_at:
            raise Misfit(
                f"{path}: the hunk for line {hunk.new_at + 1} would end up at line {len(result) + 1}"
            )
        result += hunk.side(b"+")
        done = start + len(old)
    return result + lines[done:]


def place(path: str, lines: list[bytes], hunk: Hunk, done: int, shifted: bool) -> int:
    """Where a hunk goes: where alone it fits, or to its own line if none before it had to move."""
    old = hunk.side(b"-")
    fits = [at for at in range(done, len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
    if len(fits) == 1:
        return fits[0]
    if fits and (shifted or hunk.old_at not in fits):
        places = ", ".join(str(at + 1) for at in fits)
        raise Misfit(f"{path}: the hunk for line {hunk.old_at + 1} fits at each of the lines {places}")
    return hunk.old_at


def describe(path: str, lines: list[bytes], old: list[bytes], start: int) -> str:
    """Say which line is not what a hunk expects."""
    here = lines[start : start + len(old)]
    same = 0  # lines that are as expected
    while same < len(here) and old[same] == here[same]:
        same += 1
    expected, found = (
        repr(side[same].decode(errors="replace").strip()) if same < len(side) else "nothing"
        for side in (old, here)
    )
    return f"{path}:{start + same + 1}: expected {expected}, found {found}"
