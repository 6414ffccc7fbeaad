"""Small repositories with a stack of patches, for the tests of scripts/patches."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import random
import shutil
import subprocess
import sys
import types
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "patches"

Files = dict[str, tuple[bytes, bool]]  # path -> content, executable


def call(root: Path, *arguments: object, cwd: Path | None = None, **variables: str) -> tuple[int, str]:
    """Call the tool on a repository inside this process; return its exit status and what it prints."""
    printed, here = io.StringIO(), Path.cwd()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        mock.patch.dict(os.environ, variables),
        mock.patch.object(sys, "argv", ["patches", "-C", str(root), *map(str, arguments)]),
    ):
        os.chdir(cwd or here)
        try:
            status = TOOL.main()
        except SystemExit as exit_:  # argparse
            status = int(exit_.code or 0)
        finally:
            os.chdir(here)
    return status, printed.getvalue()


def patches(
    root: Path, *arguments: object, status: int = 0, cwd: Path | None = None, **variables: str
) -> str:
    """Call the tool, check its exit status and return what it prints."""
    found, printed = call(root, *arguments, cwd=cwd, **variables)
    assert found == status, f"{arguments}: status {found}\n{printed}"
    return printed


def load_tool() -> types.ModuleType:
    """Import the script, which has no ending."""
    sys.path.insert(0, str(SCRIPT.parent))
    loader = importlib.machinery.SourceFileLoader("patches_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def run(root: Path, *command: str) -> str:
    """Run any other command that must succeed."""
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def quilt(root: Path, *arguments: str) -> str:
    """Run GNU quilt with the settings in patches/quiltrc."""
    assert shutil.which("quilt"), "these tests need GNU quilt: apt-get install quilt"
    return run(root, "quilt", "--quiltrc=patches/quiltrc", *arguments)


def commit(root: Path, message: str = "change") -> None:
    """Commit everything."""
    run(root, "git", "add", "-A")
    run(root, "git", "-c", "user.name=n", "-c", "user.email=e", "commit", "--allow-empty", "-qm", message)


def write(folder: Path, files: Files) -> None:
    """Write files, and take away those under mace/ that are not named."""
    shutil.rmtree(folder / "mace", ignore_errors=True)
    for path, (data, executable) in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(0o755 if executable else 0o644)


def read(folder: Path) -> Files:
    """Read mace/."""
    found = [path for path in sorted((folder / "mace").rglob("*")) if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in found
    }


def everything(root: Path) -> dict[str, bytes]:
    """The bytes of every file of a repository but git's own."""
    found = [path for path in root.rglob("*") if path.is_file() and path.relative_to(root).parts[0] != ".git"]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(found)}


def make_repository(root: Path, levels: list[Files]) -> Path:
    """A committed repository whose stack leads through the given trees; its headers are complete."""
    root.mkdir()
    run(root, "git", "init", "-q")
    (root / ".gitignore").write_text(".pc/\n__pycache__/\n")
    (root / "proof.py").write_text("def test_it(): pass\n")
    steps = []
    for number, files in enumerate(levels):
        folder = root.parent / f"{root.name}-level-{number}"
        write(folder, files)
        steps.append(f"{number:04}-step-{number}={folder}" if number else str(folder))
    write(root, levels[-1])
    (root / "patches").mkdir()
    shutil.copy(ROOT / "patches" / "quiltrc", root / "patches")
    patches(root, "import-levels", *steps, "--source", "toy", "--version", "1")
    for patch in (root / "patches").glob("*.patch"):
        complete_header(patch)
    commit(root, "start")
    shutil.rmtree(root / ".pc")
    return root


def complete_header(patch: Path) -> None:
    """Fill in what only an author can know."""
    text = patch.read_bytes()
    for field, value in (
        (b"Description", b"a step"),
        (b"Reports", b"toy#1"),
        (b"Tests", b"proof.py::test_it"),
    ):
        text = text.replace(field + b":\n", field + b": " + value + b"\n", 1)
    patch.write_bytes(text)


def simple_levels() -> list[Files]:
    """Three patches on four files, two of them sharing a file."""
    lines = [f"x{number} = {number}\n".encode() for number in range(60)]
    base: Files = {
        "mace/a.py": (b"".join(lines), False),
        "mace/tools/b.py": (b"".join(lines[:20]), False),
        "mace/tools/end.py": (b"last = 1", False),
        "mace/untouched.py": (b"same = 1\n", False),
    }
    one = base | {"mace/tools/new_one.py": (b"one = 1\n", False)}
    one["mace/a.py"] = (one["mace/a.py"][0].replace(b"x10 = 10\n", b"x10 = 'ten'\n"), False)
    two = one | {"mace/tools/end.py": (b"last = 1\nlast = 2", False)}
    two["mace/a.py"] = (two["mace/a.py"][0].replace(b"x11 = 11\n", b"x11 = 'eleven'\nextra = 1\n"), False)
    three = two | {"mace/room/new.py": (b"three = 3\n", False), "mace/run.py": (b"#!python\n", True)}
    del three["mace/tools/b.py"]
    return [base, one, two, three]


def random_file(rnd: random.Random) -> bytes:
    """A Python file of random length, line endings and last line."""
    ending = rnd.choice([b"\n", b"\n", b"\r\n"])
    lines = [
        rnd.choice([b"", b"pass", b"a = 1", b"b = %d" % rnd.randrange(9)])
        for _ in range(rnd.randrange(1, 50))
    ]
    return ending.join(lines) + rnd.choice([ending, ending, b"  # last"])


def random_edit(rnd: random.Random, data: bytes) -> bytes:
    """Change, insert or delete some lines."""
    lines = data.splitlines(keepends=True)
    for _ in range(rnd.randrange(1, 4)):
        at = rnd.randrange(len(lines) + 1)
        kind = rnd.randrange(3)
        new = [b"n = %d\n" % rnd.randrange(99) for _ in range(rnd.randrange(1, 4))] if kind else []
        lines[at : at + (rnd.randrange(1, 3) if kind != 1 else 0)] = new
        if at and lines and not lines[min(at, len(lines)) - 1].endswith(b"\n"):
            lines[min(at, len(lines)) - 1] += b"\n"
    return b"".join(lines) or b"pass\n"


def random_change(rnd: random.Random, files: Files, plain: bool = False) -> Files:
    """Edit, add, delete and chmod some files; `plain` leaves out what quilt itself cannot carry."""
    result = dict(files)
    for _ in range(rnd.randrange(1, 5)):
        path = rnd.choice(sorted(result))
        data, executable = result[path]
        kind = rnd.randrange(8)
        if kind == 0 and len(result) > 2:
            del result[path]
        elif kind == 1:
            name = rnd.choice(["new", "more"] if plain else ["new", "with space", "more", "\u00e9t\u00e9"])
            result[f"mace/{rnd.choice(['', 'deep/er/'])}{name}{rnd.randrange(99)}.py"] = (
                random_file(rnd),
                False,
            )
        elif kind == 2:
            result[path] = (data, not executable)
        elif kind == 3 and not plain:
            result[path] = (b"", executable)
        else:
            result[path] = (random_edit(rnd, data), executable)
    return result


def random_levels(rnd: random.Random, count: int, plain: bool = False) -> list[Files]:
    """A base and `count` trees above it, each different from the one below."""
    files: Files = {f"mace/f{number}.py": (random_file(rnd), rnd.random() < 0.2) for number in range(5)}
    levels = [files]
    while len(levels) <= count:
        changed = random_change(rnd, levels[-1], plain)
        if changed != levels[-1]:
            levels.append(changed)
    return levels


TOOL = load_tool()
