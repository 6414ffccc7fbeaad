"""What kind of file a model is in: told from the content, never from the name."""

from __future__ import annotations

import pickle
import pickletools
import re
import zipfile
from enum import Enum
from pathlib import Path

from mace.exceptions import InputError
from mace.tools.rebuild import restore_model
from mace.tools.safe_files import DAMAGE

_RESTORE = f"{restore_model.__module__}.{restore_model.__qualname__}"
_TOUCHES_FILES = re.compile(rb"\b(?:torch|ops\.\w+)\.(?:save|from_file|classes)\b")
_HEADER_LIMIT = 1 << 32  # bytes; headers of safetensors are far smaller, other binary files claim more


class ModelFormat(Enum):
    """The kinds of files that hold models; the values are how they are called in messages."""

    MODEL = "a .model file of this package"
    BUNDLE = "a bundle of weights and configuration (safetensors)"
    TORCHSCRIPT = "a TorchScript archive"
    PICKLED = "a model that MACE or CP-MACE pickled"
    STATE = "a state dict"
    CONFIGURATION = "the configuration of a state dict"


def recognise(path: Path) -> ModelFormat:
    """The kind of ``path``.

    Raises:
        InputError: one line for what is missing, empty, damaged, a checkpoint, or no model at all.
    """
    if not path.is_file():
        raise InputError(f"model file {path} " + ("is a folder" if path.is_dir() else "does not exist"))
    if path.stat().st_size == 0:
        raise InputError(f"model file {path} is empty")
    with path.open("rb") as file:
        start = file.read(9)
    if start[:4] == b"PK\x03\x04":
        return _of_archive(path)
    if start[8:] == b"{" and int.from_bytes(start[:8], "little") < _HEADER_LIMIT:
        return ModelFormat.BUNDLE
    if start.lstrip()[:1] == b"{":
        return ModelFormat.CONFIGURATION
    raise InputError(f"model file {path} is truncated, or not a model file at all (of no known format)")


def _of_archive(path: Path) -> ModelFormat:
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            contents = archive.read(names["data.pkl"]) if "data.pkl" in names else b""
            programs = [archive.read(full) for name, full in names.items() if name.startswith("code/")]
    except DAMAGE as error:
        raise InputError(f"model file {path} is truncated, or not a model file at all ({error})") from error
    if damaged is not None:
        raise InputError(f"model file {path} is damaged: its part {damaged} has a wrong checksum")
    if "constants.pkl" in names:
        _require_no_files(path, programs)
        return ModelFormat.TORCHSCRIPT
    if not contents:
        raise InputError(f"model file {path} is a zip file, but not one that torch wrote")
    named = _named_by(path, contents)
    if _RESTORE in named:
        return ModelFormat.MODEL
    if any(name.startswith("mace.") for name in named):
        return ModelFormat.PICKLED
    if all(name.startswith(("torch.", "collections.")) for name in named):
        return ModelFormat.STATE
    raise InputError(f"model file {path} is not a model: it names {sorted(named)[0]}, which is refused")


def _require_no_files(path: Path, programs: list[bytes]) -> None:
    """TorchScript is a program: it may compute, when it is loaded too, but no model touches files."""
    for program in programs:
        found = _TOUCHES_FILES.search(program)
        if found:
            raise InputError(
                f"model file {path} is a TorchScript program that calls {found[0].decode()}, which is refused"
            )


def _named_by(path: Path, contents: bytes) -> set[str]:
    """The classes and functions that a pickle names, found without running it."""
    named: set[str] = set()
    strings: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(contents):
            if opcode.name in ("GLOBAL", "INST"):
                named.add(str(argument).replace(" ", "."))
            elif opcode.name == "STACK_GLOBAL":
                named.add(".".join(strings[-2:]))
            elif isinstance(argument, str):
                strings.append(argument)
    except (ValueError, pickle.UnpicklingError) as error:
        raise InputError(f"model file {path} is damaged ({error})") from error
    return named
