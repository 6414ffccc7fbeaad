"""A model file for another device: the command ``mace_convert_device``."""

from __future__ import annotations

from argparse import Namespace

from mace.cli.launch import convert_device as main
from mace.tools import init_device
from mace.tools.loading import load_model
from mace.tools.saving import save_model

__all__ = ["main", "run"]


def run(args: Namespace) -> None:
    """Write the model in ``args.model_file`` with its tensors on ``args.target_device``.

    Raises:
        InputError: a file that cannot be read.
        SaveError: a file that cannot be written as it should be.
    """
    device = init_device(args.target_device)
    output = args.output_file or f"{args.model_file}.{args.target_device}"
    save_model(load_model(args.model_file, map_location=device), output, device=device)
    print(f"model on {args.target_device} written to {output}")


if __name__ == "__main__":
    main()
