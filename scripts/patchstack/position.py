"""Where a working tree stands: its base, the patches that are applied, and the edits that are in no patch.

The tree itself decides. Taking patches off from the top until the hash of `upstream.toml` appears tells the
level of a tree without edits. A tree with edits is compared with every level, made from a base found
elsewhere: the copy that the last verb left in `.pc/`, or the newest commit whose `mace/` and `patches/`
lead to that hash. The level that differs in the fewest files is the one; where several do,
`.pc/applied-patches` (which quilt keeps as well) decides among them, and without `.pc/` the fully patched
tree, which is the committed state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from patchstack.apply import Misfit
from patchstack.errors import Refused
from patchstack.series import PATCHES, Stack
from patchstack.trees import (
    FOLDER,
    Tree,
    changed_paths,
    is_work_tree,
    read_commit,
    read_folder,
    read_walk,
    run_git,
    tree_hash,
)

QUILT = ".pc"
KEPT_BASE = f"{QUILT}/.base"  # a copy of the base, for the time between a refresh and its commit
COMMITS_SEARCHED = 100


class BaseNotFound(Refused):
    """No tree with the recorded hash is at hand."""


@dataclass(frozen=True)
class Position:
    """A working tree beside its stack."""

    stack: Stack
    tree: Tree  # the files of mace/ as they are
    levels: list[Tree]  # the trees that the stack describes; levels[0] is the base
    level: int  # how many patches are applied

    @property
    def edits(self) -> list[str]:
        """The paths that differ from what the stack describes."""
        return changed_paths(self.levels[self.level], self.tree)


def read_stack(root: Path) -> Stack:
    """Read the stack as it stands in the working tree."""
    return Stack.parse(read_walk(root, PATCHES))


def locate(root: Path, *, moved: bool = False) -> Position:
    """Find out where the working tree stands; `moved` tolerates line numbers that are out of date."""
    stack, tree = read_stack(root), read_folder(root)
    base = find_base(root, stack, tree)
    if base is None:
        raise BaseNotFound(
            f"no tree with the hash in {PATCHES}/upstream.toml is at hand: neither {FOLDER}/ without its "
            f"patches, nor the copy in {QUILT}/, nor one of the last {COMMITS_SEARCHED} commits. If "
            f"{FOLDER}/ is right as it stands, `scripts/patches refresh base` makes it the stack's tree"
        )
    levels = stack.levels(base, moved=moved)
    return Position(stack, tree, levels, find_level(root, stack, tree, levels))


def find_base(root: Path, stack: Stack, tree: Tree) -> Tree | None:
    """Find the tree that `upstream.toml` names."""
    return next(
        (base for base in candidates(root, stack, tree) if tree_hash(base) == stack.upstream.tree), None
    )


def candidates(root: Path, stack: Stack, tree: Tree) -> Iterator[Tree]:
    """Yield trees that may be the base, the nearest ones first."""
    for level in range(len(stack.patches), -1, -1):
        yield from taken_off(stack, tree, level)
    if (root / KEPT_BASE).is_dir():
        yield read_walk(root / KEPT_BASE)
    if is_work_tree(root):
        log = run_git(
            root, "log", "--all", f"--max-count={COMMITS_SEARCHED}", "--format=%H", "--", FOLDER, PATCHES
        )
        for commit in log.decode().split():
            yield from committed(root, commit)


def committed(root: Path, commit: str) -> Iterator[Tree]:
    """Yield the base of a commit, if its stack comes off its tree."""
    files = read_commit(root, commit, FOLDER, PATCHES)
    try:
        stack = Stack.parse({path: file for path, file in files.items() if path.startswith(f"{PATCHES}/")})
    except Refused:
        return  # a commit from before the stack, or a broken one: an older commit may do
    tree = {path: file for path, file in files.items() if path.startswith(f"{FOLDER}/")}
    yield from taken_off(stack, tree, len(stack.patches))


def taken_off(stack: Stack, tree: Tree, level: int) -> Iterator[Tree]:
    """Yield the tree below `level` applied patches, if they come off."""
    try:
        yield stack.descend(tree, level)[0]
    except Misfit:
        return


def find_level(root: Path, stack: Stack, tree: Tree, levels: list[Tree]) -> int:
    """Tell how many patches are applied, see the module's text."""
    distances = [len(changed_paths(level, tree)) for level in levels]
    nearest = [level for level, distance in enumerate(distances) if distance == min(distances)]
    told = told_by_quilt(root, stack)
    if told in nearest:
        return told
    if min(distances) == 0 or (told is None and len(stack.patches) in nearest):
        return nearest[-1]
    record = f"{QUILT}/applied-patches says {told}" if told is not None else f"{QUILT}/ does not say it"
    raise Refused(
        f"{FOLDER}/ has edits, and it is not clear how many patches are applied: {record}, the files "
        f"look like {' or '.join(map(str, nearest))}. Put the edits away (git stash) or delete {QUILT}/"
    )


def told_by_quilt(root: Path, stack: Stack) -> int | None:
    """How many patches are applied as `.pc/` has it; None without it or if it is of another series."""
    if not (root / QUILT / ".version").is_file():
        return None
    record = root / QUILT / "applied-patches"
    applied = record.read_text().split() if record.is_file() else []
    names = [f"{patch.name}.patch" for patch in stack.patches]
    return len(applied) if applied == names[: len(applied)] else None
