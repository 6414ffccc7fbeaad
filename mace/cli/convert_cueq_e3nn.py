"""A saved or live cuEquivariance model to one that is evaluated by e3nn."""

from __future__ import annotations

import os

import torch

from mace.cli.convert_e3nn_cueq import converted
from mace.tools.kernels import to_e3nn


def run(
    input_model: torch.nn.Module | str | os.PathLike[str],
    output_model: str | os.PathLike[str] = "_e3nn.model",
    device: str | torch.device = "cpu",
    return_model: bool = True,
) -> torch.nn.Module | None:
    """Convert a model; arguments and errors as for ``mace.cli.convert_e3nn_cueq.run``."""
    return converted(to_e3nn, input_model, output_model, device, return_model)
