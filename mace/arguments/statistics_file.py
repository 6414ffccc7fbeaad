"""What ``--statistics_file`` says, the JSON file that ``mace_prepare_data --compute_statistics`` writes."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mace.arguments.data_plan import HeadPlan
from mace.arguments.model_plan import MODEL_KINDS
from mace.arguments.parsing import atomic_energies_literal, integers, is_number
from mace.exceptions import InputError

# numpy 2 writes its numbers in this way, and upstream put them into the text of a dict.
_NUMPY_NUMBER = re.compile(r"np\.(?:float|int)\d+\(([^()]*)\)")
UPSTREAM_SCALING = "rms_forces_scaling"  # files without the key are upstream's, who ignores --scaling


@dataclass(frozen=True, kw_only=True)
class PreparedStatistics:
    """Numbers of the training data, measured when they were prepared; None: not in the file.

    Attributes:
        atomic_energies: text of a dict, atomic number to eV, or the path of a .json file.
        atomic_numbers: the elements.
        avg_num_neighbors: edges per atom within ``r_max``.
        mean: interaction energy per atom, eV.
        std: scale of the output, in the unit of ``scaling``.
        r_max: Angstrom.
        scaling: how ``mean`` and ``std`` were measured.
    """

    atomic_energies: str | None
    atomic_numbers: tuple[int, ...] | None
    avg_num_neighbors: float | None
    mean: float | None
    std: float | None
    r_max: float | None
    scaling: str


def read_statistics(path: str, where: str) -> PreparedStatistics:
    """Read and check the file; ``where`` names the setting in the ``InputError``."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{where}={path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{where}={path} is no JSON file: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{where}={path} is no JSON object: give the statistics.json of mace_prepare_data")
    numbers = content.get("atomic_numbers")
    shown = f"atomic_numbers of {where}={path}"
    return PreparedStatistics(
        atomic_energies=_energies(content.get("atomic_energies"), path, where),
        atomic_numbers=None if numbers is None else integers(_plain(numbers), shown),
        **{
            name: _number(content, name, f"{where}={path}")
            for name in ("avg_num_neighbors", "mean", "std", "r_max")
        },
        scaling=str(content.get("scaling", UPSTREAM_SCALING)),
    )


def _plain(value: Any) -> Any:
    return _NUMPY_NUMBER.sub(r"\1", value) if isinstance(value, str) else value


def _energies(value: Any, path: str, where: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, Mapping):  # JSON has no keys but texts
        value = "{" + ", ".join(f"{z}: {energy!r}" for z, energy in value.items()) + "}"
    text = str(_plain(value)).strip()
    atomic_energies_literal(text, f"atomic_energies of {where}={path}")
    return text


def _number(content: Mapping[str, Any], name: str, where: str) -> float | None:
    value = content.get(name)
    if value is not None and not is_number(value):
        raise InputError(f"{name} of {where} is {value!r}: it must be a finite number")
    if value is not None and name in ("std", "r_max") and value <= 0:
        raise InputError(f"{name} of {where} is {value}: it must be greater than 0")
    return None if value is None else float(value)


def with_statistics(head: HeadPlan, where: str, args: Namespace, messages: list[tuple[str, int]]) -> HeadPlan:
    """The plan of a head in which its statistics file fills in what the user did not give.

    What the file measured in another way than this run would (``--r_max``, ``--scaling``) is not used; a
    message says so. Raises ``InputError`` for a file that cannot be used.
    """
    if head.statistics_file is None:
        return head
    found = read_statistics(head.statistics_file, where)
    filled: dict[str, Any] = {}
    if head.E0s is None:
        filled["E0s"] = found.atomic_energies
    if head.atomic_numbers is None:
        filled["atomic_numbers"] = found.atomic_numbers
    if head.compute_avg_num_neighbors and found.avg_num_neighbors is not None:
        if found.r_max is None or math.isclose(found.r_max, args.r_max):
            filled.update(avg_num_neighbors=found.avg_num_neighbors, compute_avg_num_neighbors=False)
        else:
            text = f"has r_max={found.r_max:g}, this run --r_max={args.r_max:g}: neighbours are counted anew"
            messages.append((f"{where}={head.statistics_file} {text}", logging.WARNING))
    kind = MODEL_KINDS[args.model]
    if found.scaling == args.scaling != "no_scaling":
        if kind.has_scale and head.std is None:
            filled["std"] = found.std
        if kind.has_shift and head.mean is None:
            filled["mean"] = found.mean
    elif found.scaling != args.scaling and kind.has_scale:
        text = f"was made with --scaling={found.scaling}, this run has {args.scaling}: its scale is not used"
        messages.append((f"{where}={head.statistics_file} {text}", logging.WARNING))
    return dataclasses.replace(head, **filled)
