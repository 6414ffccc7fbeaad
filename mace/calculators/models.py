"""The models that a calculator works with: found, loaded or copied, converted, fit to form a committee."""

from __future__ import annotations

import copy
import glob
import io
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mace.calculators.inputs import ModelInputs
from mace.exceptions import InputError
from mace.tools import dtype_dict
from mace.tools.kernels import to_cueq
from mace.tools.loading import load_model
from mace.tools.rebuild import extract_config_mace_model

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def get_model_dtype(model: torch.nn.Module) -> str:
    """``"float64"`` or ``"float32"``: what the parameters are."""
    return str(next(model.parameters()).dtype).removeprefix("torch.")


def models_of(
    model_paths: Paths | None,
    models: torch.nn.Module | Sequence[torch.nn.Module] | None,
    device: torch.device,
    default_dtype: str,
) -> list[torch.nn.Module]:
    """The models on the device, in the dtype that was asked for, with frozen parameters.

    Exactly one of ``model_paths`` (file, pattern or list of files) and ``models`` (copies are made) is given.
    Raises InputError.
    """
    if models is not None and model_paths is None:
        given = [models] if isinstance(models, torch.nn.Module) else list(models)
        loaded = [_copied(model).to(device) for model in given]
        if not loaded:
            raise InputError("No models supplied")
    elif model_paths is not None and models is None:
        loaded = [load_model(path, map_location=device) for path in _expanded(model_paths)]
    else:
        raise InputError("Exactly one of 'model_paths' or 'models' must be provided")
    return [_frozen(model, default_dtype) for model in loaded]


def _copied(model: torch.nn.Module) -> torch.nn.Module:
    if not isinstance(model, torch.jit.ScriptModule):
        return copy.deepcopy(model)
    # A deep copy of a TorchScript module has parameters that are results of a computation, not leaves.
    buffer = io.BytesIO()
    torch.jit.save(model, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def _expanded(model_paths: Paths) -> list[Path]:
    if isinstance(model_paths, os.PathLike):
        return [Path(model_paths)]
    if isinstance(model_paths, str):
        found = [model_paths] if os.path.exists(model_paths) else sorted(glob.glob(model_paths))
        if not found:
            raise InputError(f"Couldn't find MACE model files: {model_paths}")
        return [Path(path) for path in found]
    if not model_paths:
        raise InputError("No mace file names supplied")
    return [Path(path) for path in model_paths]


def _frozen(model: torch.nn.Module, default_dtype: str) -> torch.nn.Module:
    own = get_model_dtype(model)
    if default_dtype and default_dtype not in dtype_dict:
        raise InputError(f"default_dtype {default_dtype!r} is none of {sorted(dtype_dict)}")
    if default_dtype and default_dtype != own:
        logging.info("Converting the model from %s to %s", own, default_dtype)
        model = model.to(dtype_dict[default_dtype])
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def accelerated(model: torch.nn.Module, model_type: str) -> torch.nn.Module:
    """``model`` on cuEquivariance. Raises InputError for models that cannot."""
    if model_type != "MACE" or isinstance(model, torch.jit.ScriptModule):
        raise InputError("enable_cueq works for the .model files of model_type 'MACE' only")
    return to_cueq(model, extract_config_mace_model(model))


def common_inputs(models: Sequence[torch.nn.Module]) -> ModelInputs:
    """What the members of a committee take, which must be the same. Raises InputError."""
    each = [ModelInputs.of(model) for model in models]
    facts: dict[str, list[Any]] = {
        "r_max": [inputs.r_max for inputs in each],
        "elements": [list(inputs.z_table.zs) for inputs in each],
        "heads": [list(inputs.heads) for inputs in each],
        "dtype": [str(inputs.dtype) for inputs in each],
        "electron input": [inputs.takes_electrons for inputs in each],
        "charge input": [inputs.takes_charges for inputs in each],
        "energy output": [inputs.has_energy for inputs in each],
    }
    for name, values in facts.items():
        if any(value != values[0] for value in values):
            raise InputError(f"the models of a committee must have the same {name}, these have {values}")
    return each[0]
