"""The verbs of `scripts/patches`; each returns the exit status: 0 clean, 1 finding."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

from patchstack.checks import verify as run_checks
from patchstack.errors import Misuse, Refused
from patchstack.fold import fold, restack
from patchstack.position import QUILT, BaseNotFound, Position, locate, read_stack, told_by_quilt
from patchstack.quilt import present_files, quilt_files
from patchstack.series import NAME, PATCHES, UPSTREAM, Patch, Stack, Upstream, insert_in_series
from patchstack.swap import finish_interrupted, locked, swap
from patchstack.trees import (
    FOLDER,
    Tree,
    changed_paths,
    read_file,
    read_folder,
    read_walk,
    tree_hash,
    write_tree,
)

# What `pip install` of an export needs beside mace/.
PACKAGING = ("setup.cfg", "pyproject.toml", "LICENSE", "README.md", "cp_mace.py")


def today() -> str:
    """The date for headers, UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def status(root: Path) -> int:
    """Say which patches are applied and which edits are in none."""
    finish_interrupted(root)
    position = locate(root)
    upstream = position.stack.upstream
    print(f"base     {upstream.source} {upstream.version} ({upstream.tree[:19]})")
    for number, patch in enumerate(position.stack.patches, 1):
        print(f"{'applied' if number <= position.level else 'popped ':8} {patch.name}")
    for path in position.edits:
        print(f"edited   {path}")
    if position.edits:
        print("The edits are in no patch: scripts/patches refresh NNNN (or base) folds them in")
    told = told_by_quilt(root, position.stack)
    if (root / QUILT).exists() and told != position.level:
        print(f"{QUILT}/ tells another story: scripts/patches quilt-init writes it anew")
    return 1 if position.edits else 0


def pop(root: Path, name: str | None, everything: bool) -> int:
    """Take patches off: the top one, all above NAME, or all."""
    with locked(root):
        position = locate(root)
        goal = 0 if everything else position.stack.index(name) if name else position.level - 1
        if name and goal > position.level:
            raise Refused(f"{position.stack.patches[goal - 1].name} is not applied")
        return move(root, position, max(goal, 0))


def push(root: Path, name: str | None, everything: bool) -> int:
    """Apply patches: the next one, all up to NAME, or all."""
    with locked(root):
        position = locate(root)
        last = len(position.stack.patches)
        goal = last if everything else position.stack.index(name) if name else position.level + 1
        if name and goal < position.level:
            raise Refused(f"{position.stack.patches[goal - 1].name} is applied already")
        return move(root, position, min(goal, last))


def move(root: Path, position: Position, goal: int) -> int:
    """Bring the working tree to another level; edits in files that the patches between do not touch stay."""
    names = [patch.name for patch in position.stack.patches]
    place = names[goal - 1] if goal else "the base"
    if goal == position.level:
        print(f"Nothing to do: at {place}")
        return 0
    here, there = position.levels[position.level], position.levels[goal]
    touched = changed_paths(here, there)
    edited = sorted(set(touched) & set(position.edits))
    if edited:
        raise Refused(
            f"edits that are in no patch stand in the way, fold them in first (refresh): {' '.join(edited)}"
        )
    step = 1 if goal > position.level else -1
    for number in range(position.level, goal, step):
        print(f"{'push' if step > 0 else 'pop '} {names[number if step > 0 else number - 1]}")
    old = {path: here[path] for path in touched if path in here}
    new = {path: there[path] for path in touched if path in there}
    settle(root, position.stack, position.levels, goal, old, new)
    print(f"Now at {place}")
    return 0


def settle(root: Path, stack: Stack, levels: list[Tree], level: int, old: Tree, new: Tree) -> None:
    """Write a change together with the `.pc/` that belongs to it."""
    swap(root, old | present_files(root), new | quilt_files(stack, levels, level))


def refresh(root: Path, name: str, paths: list[str]) -> int:
    """Fold edits into the base or a patch, and write every patch canonically."""
    with locked(root):
        stack = read_stack(root)
        goal = 0 if name == "base" else stack.index(name)
        try:
            position = locate(root, moved=True)
        except BaseNotFound:
            if goal or paths:
                raise
            return rebuild_base(root, stack)
        if goal > position.level:
            raise Refused(f"{stack.patches[goal - 1].name} is not applied: push it first")
        changed, levels = fold(position, goal, [str(relative(root, path)) for path in paths], today())
        write_stack(root, changed, levels, position.level)
    return 0


def relative(root: Path, path: str) -> Path:
    """A path of the command line, relative to the root; as typed if it is relative to the root already."""
    if (root / path).exists() or not Path(path).absolute().is_relative_to(root):
        return Path(path)
    return Path(path).absolute().relative_to(root)


def rebuild_base(root: Path, stack: Stack) -> int:
    """Make the tree as it stands the patched one, if every patch comes off it in one way only."""
    levels = stack.descend(read_folder(root), len(stack.patches), moved=True)
    print("The recorded base is not at hand: the base is what is left when every patch comes off the tree")
    write_stack(root, restack(stack, levels, today()), levels, len(stack.patches))
    return 0


def write_stack(root: Path, stack: Stack, levels: list[Tree], level: int) -> None:
    """Write the files of `patches/` that changed."""
    new = stack.files()
    old = {path: file for path, file in stack.source.items() if path in new}
    for path in changed_paths(old, new):
        print(f"{'changed' if path in old else 'new    '} {path}")
    if old == new:
        print(f"{PATCHES}/ is up to date")
    settle(root, stack, levels, level, old, new)


def new(root: Path, name: str) -> int:
    """Start an empty patch above the top one."""
    if not NAME.fullmatch(name):
        raise Misuse(
            f"{name!r} is not a patch's name: NNNN-name, four digits and small letters, as 0007-other-units"
        )
    with locked(root):
        position = locate(root)
        stack, level = position.stack, position.level
        below, above = stack.patches[:level], stack.patches[level:]
        if any(patch.name[:4] >= name[:4] for patch in below) or any(
            patch.name[:4] <= name[:4] for patch in above
        ):
            neighbours = " and ".join(patch.name for patch in (*below[-1:], *above[:1]))
            raise Misuse(f"{name} would stand beside {neighbours}: its number does not")
        patches = (*below, Patch.empty(name, today()), *above)
        stack = replace(stack, patches=patches, series=insert_in_series(stack.series, name, level))
        levels = [*position.levels[: level + 1], *position.levels[level:]]
        write_stack(root, stack, levels, level + 1)
    print(f"Edit {FOLDER}/, then `scripts/patches refresh {name[:4]}`, and fill in the header of the patch")
    return 0


def verify(root: Path) -> int:
    """Check the stack and the tree against each other."""
    finish_interrupted(root)
    summary, findings = run_checks(root)
    for finding in findings:
        print(f"! {finding}")
    print(f"{summary}: {f'{len(findings)} findings' if findings else 'clean'}")
    return 1 if findings else 0


def export(root: Path, level: int, target: Path) -> int:
    """Write the tree with the first `level` patches applied into a new or empty folder."""
    finish_interrupted(root)
    position = locate(root)
    if not 0 <= level <= len(position.stack.patches):
        raise Misuse(f"there is no level {level}: the series has {len(position.stack.patches)} patches")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Misuse(f"{target} exists and is not an empty folder")
    packaging = {name: file for name in PACKAGING if (file := read_file(root / name)) is not None}
    write_tree(position.levels[level] | packaging, target)
    if position.edits:
        print(f"Edits that are in no patch are left out: {' '.join(position.edits)}")
    print(f"{target}: the base with {level} of {len(position.stack.patches)} patches")
    return 0


def quilt_init(root: Path) -> int:
    """Write `.pc/` so that quilt knows which patches are applied."""
    with locked(root):
        position = locate(root)
        settle(root, position.stack, position.levels, position.level, {}, {})
    print(f"{QUILT}/ is written; quilt --quiltrc={PATCHES}/quiltrc refreshes patches in this tool's style")
    return 0


def import_levels(
    root: Path, base: Path, steps: list[tuple[str, Path]], source: str | None, version: str | None
) -> int:
    """Make the stack out of hand-made trees, of which the last is the working tree; writes `patches/`."""
    with locked(root):
        levels = [read_walk(folder) for folder in (base, *(folder for _, folder in steps))]
        if paths := changed_paths(levels[-1], read_folder(root)):
            raise Refused(f"the last tree is not {FOLDER}/ as it stands here: {' '.join(paths)}")
        present = read_walk(root, PATCHES)
        old = Stack.parse(present) if UPSTREAM in present else None
        known = {patch.name: patch for patch in old.patches} if old else {}
        if dropped := known.keys() - {name for name, _ in steps}:
            raise Refused(f"the series has patches that are not given: {' '.join(sorted(dropped))}")
        upstream = Upstream(
            source or (old.upstream.source if old else "this repository"),
            version or (old.upstream.version if old else "unknown"),
            tree_hash(levels[0]),
            today(),
        )
        patches = tuple(known.get(name) or Patch.empty(name, today()) for name, _ in steps)
        series = "".join(f"{name}.patch\n" for name, _ in steps)
        write_stack(
            root, restack(Stack(patches, upstream, series, present), levels, today()), levels, len(steps)
        )
    return 0
