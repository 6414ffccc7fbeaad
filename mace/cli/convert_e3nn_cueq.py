"""A saved or live e3nn model to one that is evaluated by cuEquivariance."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import torch

from mace.cli.launch import e3nn_cueq as main
from mace.exceptions import InputError
from mace.tools import init_device
from mace.tools.kernels import to_cueq
from mace.tools.loading import load_model
from mace.tools.rebuild import extract_config_mace_model
from mace.tools.saving import save_model

__all__ = ["converted", "main", "run", "run_command", "written"]

_Path = str | os.PathLike[str]


def run(
    input_model: torch.nn.Module | _Path,
    output_model: _Path = "_cueq.model",
    device: str | torch.device = "cpu",
    return_model: bool = True,
) -> torch.nn.Module | None:
    """Convert a model.

    Args:
        input_model: a model, which stays as it is, or a ``.model`` file.
        output_model: the file to write, without ``return_model``.
        device: where the result is put.
        return_model: return the result instead of writing it.

    Raises:
        InputError: the model cannot be read or has no cuEquivariance form.
    """
    return converted(to_cueq, input_model, output_model, device, return_model)


def run_command(args: Namespace) -> None:
    """The command ``mace_e3nn_cueq``; errors as for `run`."""
    written(run, args)


def written(convert: Callable[..., torch.nn.Module | None], args: Namespace) -> None:
    """Convert the file that a command line names, beside it (C14: always written)."""
    output = f"{Path(args.input_model).with_suffix('')}.{args.output_model}"
    convert(args.input_model, output, init_device(args.device), return_model=False)
    print(f"model written to {output}")


def converted(
    convert: Callable[..., torch.nn.Module],
    input_model: torch.nn.Module | _Path,
    output_model: _Path,
    device: str | torch.device,
    return_model: bool,
) -> torch.nn.Module | None:
    """The result of ``convert``, returned or written; arguments as for `run`."""
    if isinstance(input_model, torch.nn.Module):
        model = input_model
    else:
        model = load_model(input_model, map_location=device)
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError("a TorchScript archive keeps its back end: convert the .model file")
    result = convert(model, extract_config_mace_model(model)).to(device)
    if return_model:
        return result
    save_model(result, output_model)
    return None


if __name__ == "__main__":
    main()
