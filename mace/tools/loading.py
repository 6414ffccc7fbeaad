"""Reading models: files say what they are, and none of them gets to run code of its own."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from mace.exceptions import InputError
from mace.tools.rebuild import RebuildError, restore_model

_RESTORE = f"{restore_model.__module__}.{restore_model.__qualname__}"
# torch keeps the list of safe globals for the whole process: one file is read at a time, and the list is put
# back.
_ONE_AT_A_TIME = threading.Lock()


def load_model(
    path: str | os.PathLike[str], map_location: str | torch.device = "cpu", dtype: torch.dtype | None = None
) -> torch.nn.Module:
    """The model in ``path``: a ``.model`` file of this package or a TorchScript archive.

    ``map_location`` is the device it is put on, ``dtype`` converts its floating-point tensors. A ``.model``
    file is read with torch's restricted unpickler and one function of ours, so a file cannot run code. Raises
    `InputError` in one line for everything else: missing, empty, damaged, a checkpoint, a model that another
    program pickled.
    """
    path = Path(path)
    read = torch.jit.load if _is_torchscript(path) else _read_model
    with _errors_name(path):
        model = read(str(path), map_location=map_location)
    return model if dtype is None else model.to(dtype)


def load_from_json(f: str | os.PathLike[str], map_location: str | torch.device = "cpu") -> torch.nn.Module:
    """The model behind a TorchScript archive of ours, as a module that can be trained and converted.

    It is built from the archive's ``config.json`` and given the archive's state. Raises `InputError` for a
    file without that record, and for everything that `load_model` refuses.
    """
    path = Path(f)
    if not _is_torchscript(path):
        raise InputError(f"{path} is a .model file, not a TorchScript archive: read it with load_model")
    extra = {"config.json": ""}
    with _errors_name(path):
        tensors = torch.jit.load(str(path), map_location=map_location, _extra_files=extra).state_dict()
        if not extra["config.json"]:
            raise InputError(f"{path} has no config.json, so that no model can be built from it")
        names = json.loads(extra["config.json"])["state"]
        return restore_model(extra["config.json"], {name: tensors[name] for name in names})


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (RebuildError, RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError) as error:
        raise InputError(f"model file {path} cannot be used: {str(error).strip().splitlines()[0]}") from error


def _read_model(path: str, map_location: str | torch.device) -> torch.nn.Module:
    with _only_our_function():
        model = torch.load(path, map_location=map_location, weights_only=True)
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"model file {path} holds a {type(model).__name__}, not a model")
    return model


@contextmanager
def _only_our_function() -> Iterator[None]:
    with _ONE_AT_A_TIME:
        before = torch.serialization.get_safe_globals()
        torch.serialization.add_safe_globals([restore_model])
        try:
            yield
        finally:
            torch.serialization.clear_safe_globals()
            torch.serialization.add_safe_globals(before)


def _is_torchscript(path: Path) -> bool:
    """Whether ``path`` is a TorchScript archive; False for a ``.model`` of ours; else `InputError`."""
    if not path.is_file():
        raise InputError(f"model file {path} " + ("is a folder" if path.is_dir() else "does not exist"))
    if path.stat().st_size == 0:
        raise InputError(f"model file {path} is empty")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            contents = archive.read(names["data.pkl"]) if "data.pkl" in names else b""
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise InputError(f"model file {path} is truncated, or not a model file at all ({error})") from error
    if damaged is not None:
        raise InputError(f"model file {path} is damaged: its part {damaged} has a wrong checksum")
    if "constants.pkl" in names:
        return True
    _require_ours(path, contents)
    return False


def _require_ours(path: Path, contents: bytes) -> None:
    if not contents:
        raise InputError(f"model file {path} is a zip file, but not one that torch wrote")
    named = _named_by(path, contents)
    if _RESTORE in named:
        return
    if any(name.startswith("mace.") for name in named):
        raise InputError(
            f"model file {path} is a model that upstream MACE pickled whole; reading it would run code "
            "from the file, and a converter that does without comes with a later version"
        )
    if all(name.startswith(("torch.", "collections.")) for name in named):
        raise InputError(
            f"model file {path} holds tensors but no model, it looks like a checkpoint: "
            "give the .model file of the run"
        )
    raise InputError(f"model file {path} is not a model: it names {sorted(named)[0]}, which is refused")


def _named_by(path: Path, contents: bytes) -> set[str]:
    """The classes and functions that a pickle names, found without running it."""
    named: set[str] = set()
    strings: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(contents):
            if opcode.name == "GLOBAL":
                named.add(str(argument).replace(" ", "."))
            elif opcode.name == "STACK_GLOBAL":
                named.add(".".join(strings[-2:]))
            elif isinstance(argument, str):
                strings.append(argument)
    except ValueError as error:
        raise InputError(f"model file {path} is damaged ({error})") from error
    return named
