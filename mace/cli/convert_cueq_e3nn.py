"""A saved or live cuEquivariance model to one that is evaluated by e3nn."""

from __future__ import annotations

import os
from argparse import Namespace

import torch

from mace.cli.convert_e3nn_cueq import converted, written
from mace.cli.launch import cueq_to_e3nn as main
from mace.tools.kernels import to_e3nn

__all__ = ["main", "run", "run_command"]


def run(
    input_model: torch.nn.Module | str | os.PathLike[str],
    output_model: str | os.PathLike[str] = "_e3nn.model",
    device: str | torch.device = "cpu",
    return_model: bool = True,
) -> torch.nn.Module | None:
    """Convert a model; arguments and errors as for ``mace.cli.convert_e3nn_cueq.run``."""
    return converted(to_e3nn, input_model, output_model, device, return_model)


def run_command(args: Namespace) -> None:
    """The command ``mace_cueq_to_e3nn``; errors as for `run`."""
    written(run, args)


if __name__ == "__main__":
    main()
