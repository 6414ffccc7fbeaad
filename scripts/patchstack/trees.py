"""Trees of files in memory: read them from a folder or a commit, name them by a hash, write them out."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from patchstack.errors import Refused

FOLDER = "mace"  # the one folder that patches touch


@dataclass(frozen=True)
class File:
    """One regular file: its bytes and whether it is executable; git and quilt keep nothing else."""

    data: bytes
    executable: bool = False

    @property
    def mode(self) -> str:
        """The file's mode as git writes it."""
        return "100755" if self.executable else "100644"

    @property
    def digest(self) -> str:
        """A name for the content and the mode together."""
        return f"{self.mode} {hashlib.sha256(self.data).hexdigest()}"


Tree = dict[str, File]  # path relative to the root with "/" between its parts -> file


def run_git(
    folder: Path,
    *arguments: str,
    stdin: bytes | None = None,
    allowed: tuple[int, ...] = (0,),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Run git in a folder, deaf to the variables that a git hook sets, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"LC_ALL": "C", **variables}
    command = ["git", *arguments]
    try:
        result = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, env=environment)
    except FileNotFoundError as error:
        raise Refused(f"git cannot be run in {folder}: {error}") from None
    if result.returncode not in allowed:
        cause = result.stderr.decode(errors="replace").strip()
        raise Refused(f"git fails in {folder} ({' '.join(arguments)}): {cause}")
    return result.stdout


def is_work_tree(root: Path) -> bool:
    """Whether `root` is the top of a git work tree."""
    return (root / ".git").exists()


def read_file(path: Path) -> File | None:
    """Read one file; None where there is none, Refused where something that a patch cannot carry stands."""
    if path.is_symlink():
        raise Refused(f"{path} is a symbolic link: a patch cannot carry it")
    if not path.is_file():
        return None
    return File(path.read_bytes(), bool(path.stat().st_mode & 0o100))


def walk(root: Path, folder: str) -> Iterator[str]:
    """Yield the paths of all files below `root/folder`, Python's byte code left out."""
    for where, folders, names in os.walk(root / folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if not name.endswith((".pyc", ".pyo")):
                yield (Path(where) / name).relative_to(root).as_posix()


def read_walk(root: Path, folder: str = FOLDER) -> Tree:
    """Read every file below `root/folder`, byte code left out."""
    files = {path: read_file(root / path) for path in sorted(walk(root, folder))}
    return {path: file for path, file in files.items() if file is not None}


def read_folder(root: Path, folder: str = FOLDER) -> Tree:
    """Read `root/folder`: in a git work tree what git tracks or would add, elsewhere every file."""
    if not is_work_tree(root):
        return read_walk(root, folder)
    listed = run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", folder)
    files = {path: read_file(root / path) for path in sorted(set(os.fsdecode(listed).split("\0")) - {""})}
    return {path: file for path, file in files.items() if file is not None}


def read_commit(root: Path, commit: str, *folders: str) -> Tree:
    """Read folders as they stand in a commit."""
    listing = os.fsdecode(run_git(root, "ls-tree", "-r", "-z", commit, "--", *folders))
    entries = [line.split("\t", 1) for line in listing.split("\0") if line]
    names = "".join(head.split()[2] + "\n" for head, _ in entries)
    stream = run_git(root, "cat-file", "--batch", stdin=names.encode())
    tree: Tree = {}
    for head, path in entries:
        size_line, stream = stream.split(b"\n", 1)
        size = int(size_line.split()[2])
        tree[path] = File(stream[:size], head.split()[0] == "100755")
        stream = stream[size + 1 :]
    return tree


def tree_hash(tree: Tree) -> str:
    """Name a tree: sha256 over a line `MODE SHA256-OF-THE-BYTES PATH` for each file, sorted by path."""
    lines = [os.fsencode(f"{tree[path].digest} {path}\n") for path in sorted(tree, key=os.fsencode)]
    return "sha256:" + hashlib.sha256(b"".join(lines)).hexdigest()


def changed_paths(old: Tree, new: Tree) -> list[str]:
    """The paths at which two trees differ, sorted by their bytes."""
    return sorted(
        (path for path in old.keys() | new.keys() if old.get(path) != new.get(path)), key=os.fsencode
    )


def write_tree(tree: Tree, target: Path) -> None:
    """Write a tree below an empty or new folder."""
    for path, file in tree.items():
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.data)
        place.chmod(0o755 if file.executable else 0o644)
