"""Reading models: files say what they are, and none of them gets to run code of its own."""

from __future__ import annotations

import json
import logging
import os
import pickle
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from mace.exceptions import InputError
from mace.tools.bundle import read_bundle
from mace.tools.model_formats import ModelFormat, recognise
from mace.tools.pickled_models import PickledModule, read_pickled_model
from mace.tools.plain import dtype_name, model_class_called
from mace.tools.rebuild import adopt, restore_model
from mace.tools.safe_files import read_plain_data
from mace.tools.upstream_config import constructor_keywords, in_our_terms
from mace.tools.upstream_files import read_pair

# torch keeps the list of safe globals for the whole process: one file is read at a time, and the list is put
# back.
_ONE_AT_A_TIME = threading.Lock()


def load_model(
    path: str | os.PathLike[str],
    map_location: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    config: str | os.PathLike[str] | None = None,
) -> torch.nn.Module:
    """The model in ``path``, whatever kind of file it is; one line in the log says which.

    A ``.model`` file of this package, a bundle (``.safetensors``), a TorchScript archive (it stays one, see
    `load_from_json`), a model that MACE or CP-MACE pickled, a state dict NAME.pt with NAME.json.

    Args:
        path: the file; of a state dict either of the two.
        map_location: the device that the model is put on.
        dtype: converts its floating-point tensors.
        config: the configuration that goes with a state dict, if not NAME.json beside it.

    Raises:
        InputError: in one line, for everything else: missing, empty, damaged, of another architecture or a
            newer version, a checkpoint, a file that would run code. No file ever does.
    """
    path = Path(path)
    kind = recognise(path)
    if config is not None and kind is not ModelFormat.STATE:
        raise InputError(f"model file {path} is {kind.value}: it needs no configuration {config}")
    with _errors_name(path):
        if kind in (ModelFormat.STATE, ModelFormat.CONFIGURATION):
            model = _read_pair(path, kind, config, map_location)
        else:
            model = _READERS[kind](path, map_location)
    model = model if dtype is None else model.to(dtype)
    logging.info("%s: %s (%s)", path, kind.value, _named(model))
    return model


def _named(model: torch.nn.Module) -> str:
    name = model.original_name if isinstance(model, torch.jit.ScriptModule) else type(model).__name__
    dtypes = {dtype_name(tensor.dtype) for tensor in model.parameters()}
    return ", ".join([name, *sorted(dtypes)])


def load_from_json(f: str | os.PathLike[str], map_location: str | torch.device = "cpu") -> torch.nn.Module:
    """The model behind a TorchScript archive of ours, as a module that can be trained and converted.

    It is built from the archive's ``config.json`` and given the archive's state. Raises `InputError` for a
    file without that record, and for everything that `load_model` refuses.
    """
    path = Path(f)
    if (kind := recognise(path)) is not ModelFormat.TORCHSCRIPT:
        raise InputError(f"{path} is {kind.value}, not a TorchScript archive: read it with load_model")
    extra = {"config.json": ""}
    with _errors_name(path):
        tensors = torch.jit.load(str(path), map_location=map_location, _extra_files=extra).state_dict()
        if not extra["config.json"]:
            raise InputError(f"{path} has no config.json, so that no model can be built from it")
        record = json.loads(extra["config.json"])
        if not isinstance(record, dict) or not isinstance(record.get("state"), list):
            raise InputError(f"{path} has a config.json that is not the record of a model")
        return restore_model(
            extra["config.json"], {str(name): tensors[str(name)] for name in record["state"]}
        )


def extract_load(
    f: str | os.PathLike[str],
    map_location: str | torch.device = "cpu",
    config: str | os.PathLike[str] | None = None,
) -> torch.nn.Module:
    """The model in a file, as a module that can be trained and converted; otherwise as `load_model`."""
    model = load_model(f, map_location, config=config)
    return load_from_json(f, map_location) if isinstance(model, torch.jit.ScriptModule) else model


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError, KeyError) as error:
        if isinstance(error, InputError) and str(path) in str(error):
            raise
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"model file {path} cannot be used: {reason}") from error


def _read_model(path: Path, map_location: str | torch.device) -> torch.nn.Module:
    with _only_our_function():
        model = read_plain_data(path, map_location)
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"model file {path} holds a {type(model).__name__}, not a model")
    return model


def _read_torchscript(path: Path, map_location: str | torch.device) -> torch.nn.Module:
    return torch.jit.load(str(path), map_location=map_location)


def _read_pickled(path: Path, map_location: str | torch.device) -> torch.nn.Module:
    with zipfile.ZipFile(path) as archive:
        return adopt_pickled(read_pickled_model(archive)).to(map_location)


def adopt_pickled(pickled: PickledModule) -> torch.nn.Module:
    """The model of ours for one that MACE or CP-MACE pickled, on the CPU.

    Raises:
        pickle.UnpicklingError: our classes do not have what it is.
        RebuildError: its attributes and its tensors do not belong together.
    """
    state, frozen = pickled.state()
    ours = in_our_terms(pickled.class_name, constructor_keywords(pickled), state)
    return adopt(model_class_called(pickled.class_name), ours, state, frozen)


_READERS: dict[ModelFormat, Callable[[Path, str | torch.device], torch.nn.Module]] = {
    ModelFormat.MODEL: _read_model,
    ModelFormat.BUNDLE: read_bundle,
    ModelFormat.TORCHSCRIPT: _read_torchscript,
    ModelFormat.PICKLED: _read_pickled,
}


def _read_pair(
    path: Path, kind: ModelFormat, config: str | os.PathLike[str] | None, map_location: str | torch.device
) -> torch.nn.Module:
    """The model of a state dict and its configuration, given either of the two."""
    if kind is ModelFormat.CONFIGURATION:
        weights, configuration = path.with_suffix(".pt"), path
        if not weights.is_file():
            raise InputError(f"model file {path} is a configuration, and the state dict {weights} is missing")
    else:
        weights, configuration = path, Path(config) if config else path.with_suffix(".json")
    state = read_plain_data(weights, map_location)
    if isinstance(state, dict) and {"model", "optimizer", "lr_scheduler"} <= state.keys():
        raise InputError(
            f"model file {path} holds tensors but no model, it looks like a checkpoint: "
            "give the .model file of the run"
        )
    if not isinstance(state, dict):
        raise InputError(f"model file {path} holds a {type(state).__name__}, not a model")
    if not configuration.is_file():
        raise InputError(
            f"model file {path} is a state dict, and the configuration {configuration} that goes with it is "
            "missing"
        )
    return read_pair(configuration, state)


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
