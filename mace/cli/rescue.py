"""Files of older scripts and crashed runs as standard files: the command ``mace_rescue``."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path

from mace.cli.launch import rescue as main
from mace.tools.rescue import RescuePlan, rescue

__all__ = ["main", "run"]


def run(args: Namespace) -> None:
    """Write the standard files for what ``args.source`` holds.

    Raises:
        InputError: a file that cannot be read or does not say enough, an output that exists.
        SaveError: a file that cannot be written as it should be.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    plan = RescuePlan(
        source=Path(args.source),
        output=Path(args.output) if args.output else None,
        log=Path(args.log) if args.log else None,
        name=args.name,
        seed=args.seed,
        trust=args.trust,
        overwrite=args.overwrite,
    )
    for path in rescue(plan):
        print(f"written: {path}")


if __name__ == "__main__":
    main()
