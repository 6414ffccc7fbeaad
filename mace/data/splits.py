"""Which configurations train, which validate, and how those of a test are grouped."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from mace.exceptions import InputError

from .configuration import Configuration, Configurations
from .stored import outlines, select

Item = TypeVar("Item")

LISTED_INDICES = 10  # as many validation indices and more go to a file instead of the log


def random_train_valid_split(
    items: Sequence[Item],
    valid_fraction: float,
    seed: int,
    work_dir: str | Path,
    *,
    indices_file: str | Path | None = None,
    write: bool = True,
) -> tuple[list[Item], list[Item]]:
    """Split ``items`` at random into training and validation.

    The indices 0, 1, ... are shuffled by ``numpy.random.default_rng(seed)``; the last ``int(valid_fraction *
    n)`` of them validate. The same seed gives the same split in every process. The indices of the validation
    items are logged, or, from ten on, written to a file, one a line.

    Args:
        items: of any kind.
        valid_fraction: share of the items that validate, 0 < valid_fraction < 1.
        seed: of the shuffle.
        work_dir: folder of the file.
        indices_file: the file, instead of ``<work_dir>/valid_indices_<seed>.txt``.
        write: write the file, which only one process of a run may do.

    Returns:
        Training and validation items, both in shuffled order.

    Raises:
        InputError: a fraction outside its range, or one that leaves no item to validate with.
    """
    if not 0.0 < valid_fraction < 1.0:
        raise InputError(f"valid_fraction={valid_fraction}: must be larger than 0 and smaller than 1")
    size = len(items)
    train_size = size - int(valid_fraction * size)
    if train_size == size:
        raise InputError(
            f"valid_fraction={valid_fraction} of {size} structures leaves none to validate with:"
            " take a larger fraction or give a valid_file"
        )
    indices = list(range(size))
    np.random.default_rng(seed).shuffle(indices)
    valid = indices[train_size:]
    told = f"Using random {100 * valid_fraction:.0f}% of training set for validation with"
    if len(valid) < LISTED_INDICES:
        logging.info(f"{told} following indices: {valid}")
    else:
        path = Path(work_dir) / f"valid_indices_{seed}.txt" if indices_file is None else Path(indices_file)
        if write:
            write_indices(path, valid)
        logging.info(f"{told} indices saved in: {path}")
    return [items[index] for index in indices[:train_size]], [items[index] for index in valid]


def write_indices(path: str | Path, indices: Sequence[int]) -> None:
    """Write the indices of validation items, one a line; fewer than ten are in the log and in no file."""
    if len(indices) >= LISTED_INDICES:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("".join(f"{index}\n" for index in indices), encoding="utf-8")


def test_config_types(test_configs: Sequence[Configuration]) -> list[tuple[str, Configurations]]:
    """Configurations grouped by ``<config_type>_<head>``, in the order in which the groups appear."""
    return [(name, list(group)) for name, group in group_by_type(test_configs).items()]


def group_by_type(configurations: Sequence[Configuration]) -> dict[str, Sequence[Configuration]]:
    """As :func:`test_config_types`; configurations in a file stay there."""
    places: dict[str, list[int]] = {}
    for place, config in enumerate(outlines(configurations)):
        places.setdefault(f"{config.config_type}_{config.head}", []).append(place)
    return {name: select(configurations, group) for name, group in places.items()}


vars(test_config_types)["__test__"] = False  # pytest must not take it for a test
