"""A model of one head out of one with several: the command ``mace_select_head``."""

from __future__ import annotations

from argparse import Namespace

from mace.cli.launch import select_head as main
from mace.tools import init_device
from mace.tools.head_selection import remove_pt_head
from mace.tools.loading import load_model
from mace.tools.saving import save_model

__all__ = ["main", "run"]


def run(args: Namespace) -> None:
    """Write the model of the head ``args.head_name``, or list the heads.

    Raises:
        InputError: a file that cannot be read, a head that it does not have.
        SaveError: a file that cannot be written as it should be.
    """
    device = init_device(args.target_device or "cpu")
    model = load_model(args.model_file, map_location=device)
    if args.list_heads:
        print("Available heads:")
        for head in model.heads:
            print(f"  {head}")
        return
    selected = remove_pt_head(model, args.head_name)
    ending = f".{args.target_device}" if args.target_device else ""
    output = args.output_file or f"{args.model_file}.{selected.heads[0]}{ending}"
    save_model(selected, output, device=device)
    print(f"head {selected.heads[0]} written to {output}")


if __name__ == "__main__":
    main()
