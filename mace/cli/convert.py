"""A model file in another format: the command ``mace_convert``."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path

import torch

from mace.arguments.model_parsers import FORMATS
from mace.cli.launch import convert as main
from mace.exceptions import InputError
from mace.tools import dtype_dict, init_device
from mace.tools.exporting import export_model
from mace.tools.kernels import to_e3nn
from mace.tools.loading import extract_load
from mace.tools.rebuild import extract_config_mace_model

__all__ = ["main", "run"]

# The first that fits counts.
_ENDINGS = {".safetensors": "bundle", "_compiled.model": "torchscript", ".model": "model"}


def run(args: Namespace) -> None:
    """Write the model in ``args.input`` to ``args.output`` in the format ``args.format``.

    Raises:
        InputError: a file that cannot be read, a format that cannot hold the model.
        SaveError: a file that cannot be written as it should be.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    form = args.format or _format_of(args.output)
    device = init_device(args.device)
    model = extract_load(args.input, map_location=device, config=args.config)
    if args.dtype is not None:
        model = model.to(dtype_dict[args.dtype])
    if form not in ("model", "bundle"):
        model = _for_others(model)
    written = export_model(model, args.output, form)
    print(f"{form} written to {' and '.join(str(path) for path in written)}")


def _format_of(output: str) -> str:
    for ending, form in _ENDINGS.items():
        if output.endswith(ending):
            return form
    raise InputError(
        f"output {output!r}: {Path(output).suffix or 'no ending'} does not say which format it shall be; "
        f"give --format, one of {', '.join(FORMATS)}"
    )


def _for_others(model: torch.nn.Module) -> torch.nn.Module:
    """The model on e3nn, which every program has."""
    config = extract_config_mace_model(model)
    return to_e3nn(model, config) if config.get("cueq_config") else model


if __name__ == "__main__":
    main()
