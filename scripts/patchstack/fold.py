"""Fold edits of the working tree into one patch or into the base, and carry the other patches along exactly.

The edits were made on top of the patches that are applied. They are moved down through the patches between
there and their goal, and up through the patches above, one patch at a time: a three-way merge without any
guess, in which an edit may stand next to a patch's lines but not in them. Afterwards every patch is the
difference of its two trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from patchstack.errors import Refused
from patchstack.hunks import Hunk, split_lines
from patchstack.position import Position
from patchstack.render import compare, diff_trees
from patchstack.series import Patch, Stack
from patchstack.trees import File, Tree, changed_paths, tree_hash


def fold(position: Position, goal: int, paths: Sequence[str], date: str) -> tuple[Stack, list[Tree]]:
    """Return the stack and its trees after folding the edits at `paths` (all, if none are named).

    `goal` is the patch's place in the series, 0 for the base. Raises Refused with every conflict.
    """
    old, level = position.levels, position.level
    new = list(old)
    new[level] = with_edits(position, paths)
    for below in range(level - 1, goal - 1, -1):
        new[below] = carry(old[below + 1], new[below + 1], old[below], position.stack.patches[below])
    for above in range(level + 1, len(old)):
        new[above] = carry(old[above - 1], new[above - 1], old[above], position.stack.patches[above - 1])
    return restack(position.stack, new, date), new


def restack(stack: Stack, levels: Sequence[Tree], date: str) -> Stack:
    """The stack that leads through the given trees, headers kept."""
    steps = zip(stack.patches, levels[:-1], levels[1:], strict=True)
    patches = tuple(patch.with_diffs(diff_trees(below, above), date) for patch, below, above in steps)
    upstream = stack.upstream
    if (name := tree_hash(levels[0])) != upstream.tree:
        upstream = replace(upstream, tree=name, date=date)
    return replace(stack, patches=patches, upstream=upstream)


def with_edits(position: Position, paths: Sequence[str]) -> Tree:
    """The tree of the stack with the chosen edits in it."""
    inside = [path.rstrip("/") for path in paths]
    tree = dict(position.levels[position.level])
    for path in position.edits:
        if not inside or any(path == chosen or path.startswith(f"{chosen}/") for chosen in inside):
            put(tree, path, position.tree.get(path))
    return tree


def put(tree: Tree, path: str, file: File | None) -> None:
    """Set or take away one file."""
    if file is None:
        tree.pop(path, None)
    else:
        tree[path] = file


def carry(base: Tree, edited: Tree, other: Tree, patch: Patch) -> Tree:
    """Repeat on `other`, which lies one patch away from `base`, the edits from `base` to `edited`."""
    result = dict(other)
    conflicts: list[str] = []
    shared: list[tuple[str, File, File, File]] = []  # files with lines of both the edits and the patch
    for path in changed_paths(base, edited):
        start, mine, theirs = base.get(path), edited.get(path), other.get(path)
        if start == theirs:
            put(result, path, mine)
        elif start and mine and theirs:
            shared.append((path, start, mine, theirs))
        else:
            conflicts.append(f"{path}: added or deleted by the patch or by the edit")
    hunks = compare([(start.data, side.data) for _, start, *sides in shared for side in sides], context=0)
    for number, (path, start, mine, theirs) in enumerate(shared):
        ours, others = hunks[2 * number : 2 * number + 2]
        clashing = [hunk for hunk in ours if any(clash(hunk, their) for their in others)]
        conflicts += [f"{path}:{describe(hunk)}" for hunk in clashing]
        lines = [] if clashing else merge_lines(split_lines(start.data), [*ours, *others])
        if any(not line.endswith(b"\n") for line in lines[:-1]):
            conflicts.append(f"{path}: the end of the file")
        executable = theirs.executable if mine.executable == start.executable else mine.executable
        result[path] = File(b"".join(lines), executable)
    if conflicts:
        told = "".join(f"\n  {patch.name}: {conflict}" for conflict in conflicts)
        raise Refused(f"the edits touch what a patch changes; nothing has been done:{told}")
    return result


def span(hunk: Hunk) -> tuple[int, int]:
    """The lines of the old side that a hunk without context replaces; empty for an insertion."""
    return hunk.old_at, hunk.old_at + len(hunk.side(b"-"))


def clash(mine: Hunk, theirs: Hunk) -> bool:
    """Whether two hunks on the same lines exclude each other, or insert at one point in an unknown order."""
    (my_start, my_end), (their_start, their_end) = span(mine), span(theirs)
    if my_start == my_end and their_start == their_end:
        return my_start == their_start
    return my_start < their_end and their_start < my_end


def merge_lines(lines: Sequence[bytes], hunks: Sequence[Hunk]) -> list[bytes]:
    """Carry out hunks that do not clash."""
    result: list[bytes] = []
    done = 0
    for hunk in sorted(hunks, key=span):
        start, end = span(hunk)
        result += [*lines[done:start], *hunk.side(b"+")]
        done = end
    return [*result, *lines[done:]]


def describe(hunk: Hunk) -> str:
    """Line and first text of an edit, as they stand in the edited file."""
    text = (hunk.side(b"+") or hunk.side(b"-"))[0].decode(errors="replace").strip()
    verb = "" if hunk.side(b"+") else "deletion of "
    return f"{hunk.new_at + 1}: {verb}{text!r}"
