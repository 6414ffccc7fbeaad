"""End a process at a chosen moment of writing a file, as a power cut would, and leave proof of it.

A process is prepared by `install`, or from outside: with the folder of `hook` on its PYTHONPATH and the
variables of `environment` set, every interpreter prepares itself when it starts.
"""

from __future__ import annotations

import builtins
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

POINTS = ("open", "write", "flush", "fsync", "rename", "remove")
_VARIABLE = "KILL_POINT"


def hook(folder: Path) -> Path:
    """A folder in ``folder`` that prepares every interpreter that has it on its path."""
    hook_folder = folder / "hook"
    hook_folder.mkdir()
    (hook_folder / "sitecustomize.py").write_text(
        Path(__file__).read_text() + "\n\ninstall_from_environment()\n"
    )
    return hook_folder


def environment(point: str, pattern: str, count: int, proof: Path, rank: str = "0") -> dict[str, str]:
    """The variables that make a rank die at ``point`` of the ``count``-th file that fits ``pattern``."""
    return {_VARIABLE: "|".join([point, pattern, str(count), str(proof), rank])}


def install_from_environment() -> None:
    """Prepare this process if the variables say so and it has the right rank."""
    if _VARIABLE in os.environ:
        point, pattern, count, proof, rank = os.environ[_VARIABLE].split("|")
        if os.environ.get("RANK", "0") == rank:
            install(point, pattern, int(count), proof)


def install(point: str, pattern: str, count: int, proof: str) -> None:
    """Die at ``point`` of the ``count``-th file named like ``pattern``, after noting that in ``proof``."""
    seen: list[str] = []
    real_open, real_write = builtins.open, os.write

    def reached(name: object) -> bool:
        if pattern not in os.path.basename(str(name)):
            return False
        seen.append(str(name))
        return len(seen) == count

    def die(name: object) -> None:
        descriptor = os.open(proof, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        real_write(descriptor, f"{point} {name}".encode())
        os.close(descriptor)
        os.kill(os.getpid(), signal.SIGKILL)

    def before(function: Callable[..., Any], name_of: Callable[..., object]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if reached(name_of(*args)):
                die(name_of(*args))
            return function(*args, **kwargs)

        return guarded

    class DyingFile:
        """A file that dies in the middle of a write, or before a flush."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, data: Any) -> int:
            if point == "write":
                content = memoryview(data).cast("B")
                self.file.write(content[: len(content) // 2])
                self.file.flush()
                die(self.file.name)
            return self.file.write(data)

        def flush(self) -> None:
            if point == "flush":
                die(self.file.name)
            self.file.flush()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def __enter__(self) -> DyingFile:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

    def opened(name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        file = real_open(name, mode, *args, **kwargs)
        if set(mode) & set("wxa+") and reached(name):
            if point == "open":
                die(name)
            return DyingFile(file)
        return file

    if point in ("open", "write", "flush"):
        builtins.open = opened
    elif point == "fsync":
        os.fsync = before(os.fsync, lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}"))
    elif point == "rename":
        os.replace = before(os.replace, lambda source, target: target)
    else:
        os.unlink = before(os.unlink, lambda path, **_: path)
