"""Writing a model in any of the formats that `load_model` reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from mace.exceptions import InputError
from mace.tools.bundle import bundle_bytes, read_bundle
from mace.tools.files import atomic_save, atomic_write
from mace.tools.rebuild import rebuild
from mace.tools.same import differences
from mace.tools.saving import SaveError, save_compiled, save_model
from mace.tools.upstream_files import for_upstream


def export_model(model: torch.nn.Module, path: str | os.PathLike[str], form: str) -> list[Path]:
    """Write ``model`` for the CPU, each file whole or not at all.

    Args:
        model: it stays as it is.
        path: the file.
        form: "model", "bundle", "torchscript", or "mace-torch" or "cp-mace" for the pair of a state dict and
            a JSON file of the same name.

    Returns:
        The files that were written.

    Raises:
        InputError: the model has no counterpart in that program.
        SaveError: a file cannot be written as it should be.
    """
    path = Path(path)
    if form == "model":
        save_model(rebuild(model), path, live=model)
    elif form == "bundle":
        _save_bundle(model, path)
    elif form == "torchscript":
        if not save_compiled(rebuild(model), path):
            raise SaveError(f"{path} was not written: the model cannot be exported to TorchScript")
    else:
        return _save_pair(model, path, form)
    return [path]


def _save_bundle(model: torch.nn.Module, path: Path) -> None:
    contents = bundle_bytes(model)

    def check(temporary: Path) -> None:
        found = differences(rebuild(model).to("cpu"), read_bundle(temporary))
        if found:
            raise SaveError(f"reading {path} back gives another model: {'; '.join(found[:3])}")

    atomic_write(path, lambda file: file.write(contents), check)


def _save_pair(model: torch.nn.Module, path: Path, peer: str) -> list[Path]:
    if path.suffix == ".json":
        raise InputError(f"output {path} is the name of the configuration: give that of the weights, NAME.pt")
    configuration, state = for_upstream(model, peer)
    text = json.dumps(configuration, indent=1, allow_nan=False)
    beside = path.with_suffix(".json")
    atomic_save(state, path)
    atomic_write(beside, lambda file: file.write(text.encode()))
    return [path, beside]
