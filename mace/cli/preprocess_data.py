"""Prepare a large data set for training: the command ``mace_prepare_data``.

From Python ``run(build_preprocess_arg_parser().parse_args([...]))``.
"""

from __future__ import annotations

import logging
from argparse import Namespace

from mace.arguments.parsers import build_preprocess_arg_parser
from mace.arguments.preprocess_plan import PreparePlan
from mace.cli.launch import prepare_data as main
from mace.tools.datasets import write_held_back
from mace.tools.preparation import (
    measure_labels,
    read_data,
    require_no_leftovers,
    shards_of,
    write_shards,
    write_statistics,
)
from mace.tools.utils import setup_logger

__all__ = ["main", "parse_args", "run"]


def parse_args() -> Namespace:
    """The command line."""
    return build_preprocess_arg_parser().parse_args()


def run(args: Namespace) -> None:
    """Write the HDF5 files of all sets, and ``statistics.json`` if that is asked for.

    Data and flags are checked before the first HDF5 file is written; every file appears whole or not at all.
    Order and numbers do not depend on ``args.num_process``, but for how many files there are.

    Raises:
        InputError: what the user gave cannot be used, or a file cannot be written.
        RunError: a process was killed.
    """
    plan = PreparePlan.from_namespace(args)
    setup_logger()
    data = read_data(plan)
    shards = shards_of(data, plan)
    require_no_leftovers(shards)
    numbers = measure_labels(data, plan) if plan.compute_statistics else None
    write_held_back(plan.valid_indices_file, data.held_back)
    edges = write_shards(shards, plan.num_process)
    if numbers is not None:
        write_statistics(numbers, edges, data, plan)
    logging.info(f"{len(shards)} HDF5 files written to '{plan.folder}'")


if __name__ == "__main__":
    main()
