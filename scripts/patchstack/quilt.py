"""The folder `.pc/`, in which quilt (format 2) remembers what it applied, and our copy of the base in it."""

from __future__ import annotations

from pathlib import Path

from patchstack.position import KEPT_BASE, QUILT
from patchstack.series import PATCHES, SERIES, Stack
from patchstack.trees import File, Tree, changed_paths, read_walk


def quilt_files(stack: Stack, levels: list[Tree], level: int) -> Tree:
    """All files of `.pc/` when the first `level` patches are applied."""
    applied = [f"{patch.name}.patch" for patch in stack.patches[:level]]
    texts = {".version": "2\n", ".quilt_patches": f"{PATCHES}\n", ".quilt_series": Path(SERIES).name + "\n"}
    if applied:  # quilt has no such file when nothing is applied
        texts["applied-patches"] = "".join(f"{name}\n" for name in applied)
    files = {f"{QUILT}/{name}": File(text.encode()) for name, text in texts.items()}
    for name, below, above in zip(applied, levels, levels[1 : level + 1], strict=False):
        for path in changed_paths(below, above):
            files[f"{QUILT}/{name}/{path}"] = below.get(path, File(b""))  # empty: the patch adds this file
        files[f"{QUILT}/{name}/.timestamp"] = File(b"")
    return files | {f"{KEPT_BASE}/{path}": file for path, file in levels[0].items()}


def present_files(root: Path) -> Tree:
    """The files that are in `.pc/` now."""
    return read_walk(root, QUILT)
