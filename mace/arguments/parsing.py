"""From the text of a command line to Python values."""

from __future__ import annotations

import argparse
import ast
import math
import os
from typing import Any

from mace.exceptions import InputError

HDF5_SUFFIXES = (".h5", ".hdf5")
_TRUE = ("yes", "true", "t", "y", "1")
_FALSE = ("no", "false", "f", "n", "0")


def str2bool(value: bool | str) -> bool:
    """Read a Boolean: yes/true/t/y/1 or no/false/f/n/0 in any case; a bool passes through.

    Raises ``argparse.ArgumentTypeError`` for anything else.
    """
    if isinstance(value, bool):
        return value
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise argparse.ArgumentTypeError("Boolean value expected.")


def check_float_or_none(value: str) -> float | None:
    """Read a float, or the word ``None``. Raises ``argparse.ArgumentTypeError`` for anything else."""
    if value == "None":
        return None
    try:
        return float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is neither a number nor None") from None


def bool_or_auto(value: bool | str) -> bool | None:
    """Read a Boolean as ``str2bool`` does, or the word ``auto`` (None)."""
    if isinstance(value, str) and value.lower() == "auto":
        return None
    return str2bool(value)


def is_hdf5_path(path: str) -> bool:
    """Whether a path names data of mace_prepare_data: an HDF5 file, or a folder of them."""
    return path.endswith(HDF5_SUFFIXES) or os.path.isdir(path)


def literal(text: Any, what: str) -> Any:
    """Evaluate a Python literal; a value that is no text passes through.

    ``what`` names the argument in the ``InputError`` for text that is no literal.
    """
    if not isinstance(text, str):
        return text
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise InputError(
            f"{what} is {text!r}, which is no Python literal: check brackets and quotes"
        ) from None


def is_number(value: Any) -> bool:
    """Whether the value is a finite number (a bool is none)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def integers(value: Any, what: str) -> tuple[int, ...]:
    """A list of positive whole numbers, given as a list or as the text of one."""
    numbers = literal(value, what)
    if not isinstance(numbers, (list, tuple)) or not all(type(n) is int and n > 0 for n in numbers):
        raise InputError(f"{what} is {value!r}: give a list of positive whole numbers, e.g. [64, 64, 64]")
    return tuple(numbers)


def weights_by_name(value: Any, what: str) -> dict[str, float]:
    """A mapping from names to weights >= 0, given as a dict or as the text of one."""
    weights = literal(value, what)
    fits = isinstance(weights, dict) and all(
        isinstance(name, str) and is_number(weight) and weight >= 0 for name, weight in weights.items()
    )
    if not fits:
        raise InputError(f"{what} is {value!r}: give a dict of names and weights, e.g. {{'Default': 1.0}}")
    return {name: float(weight) for name, weight in weights.items()}


def atomic_energies_literal(text: str, what: str = "E0s") -> dict[int, float] | None:
    """Energies by atomic number (eV) if the text of E0s is a dict, None for ``average`` and file names.

    ``what`` names the argument in the ``InputError`` for a text that is neither.
    """
    if text.lower() == "average" or text.endswith(".json"):
        return None
    try:
        energies = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        energies = None
    fits = isinstance(energies, dict) and all(
        type(z) is int and z > 0 and is_number(energy) for z, energy in energies.items()
    )
    if not fits:
        raise InputError(
            f"{what} is {text!r}: give 'average', a .json file, "
            "or a dict of atomic numbers and energies in eV, e.g. {1: -13.6}"
        )
    return {z: float(energy) for z, energy in energies.items()}
