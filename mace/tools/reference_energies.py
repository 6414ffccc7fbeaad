"""Energies of the isolated atoms (E0): the constant part of every energy, which no model has to learn."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mace.data import Configuration, compute_average_E0s
from mace.data.labels import ENERGY
from mace.data.stored import outlines
from mace.exceptions import InputError
from mace.tools.data_checks import contributes
from mace.tools.datasets import HeadData
from mace.tools.utils import AtomicNumberTable


def reference_energies(head: HeadData) -> dict[int, float]:
    """Energies of isolated atoms for every element of a head.

    IsolatedAtom entries of the training file come first; the E0s setting fills in the elements that have
    none.

    Returns:
        Atomic number to energy, eV, sorted; may hold more elements than the head.

    Raises:
        InputError: an element of the head has no energy.
    """
    energies = dict(head.isolated)
    if energies:
        logging.info("Using isolated atom energies from training file")
    if any(z not in energies for z in head.elements):
        energies = {**_from_setting(head), **energies}
    for z in head.elements:
        if z not in energies:
            raise InputError(
                f"Atomic number {z} not found in atomic_energies_dict for head {head.name}, add E0s for this "
                "atomic number"
            )
    return {z: float(energies[z]) for z in sorted(energies)}


def energies_array(energies: Sequence[Mapping[int, float]], z_table: AtomicNumberTable) -> np.ndarray:
    """Energies of isolated atoms of all heads, [n_heads, n_elements], eV; 0 where a head lacks an element."""
    return np.array([[by_element.get(z, 0.0) for z in z_table.zs] for by_element in energies])


def read_energies(path: str) -> dict[int, float]:
    """Energies of isolated atoms (eV) from a JSON file.

    Raises:
        InputError: the file cannot be read or does not map atomic numbers to energies.
    """
    logging.info(f"Loading atomic energies from {path}")
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return {int(z): float(energy) for z, energy in content.items()}
    except OSError as error:
        raise InputError(f"E0s file '{path}' cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        raise InputError(
            f"E0s file '{path}' is not a JSON object of atomic numbers and energies in eV, e.g. "
            f'{{"1": -13.6}}'
        ) from None


def _from_setting(head: HeadData) -> dict[int, float]:
    """What the E0s setting says about the elements without an IsolatedAtom entry."""
    setting = head.plan.E0s
    if setting is None:
        missing = [z for z in head.elements if z not in head.isolated]
        raise InputError(
            f"E0s not found in training file and not specified in command line (head {head.name}, atomic "
            f"numbers {missing}): "
            "give --E0s=average, a dict or a .json file"
        )
    if not head.isolated:
        logging.info("Isolated Atomic Energies (E0s) not in training file, using command line argument")
    if setting == "average":
        return _average(head)
    return head.plan.explicit_E0s() or read_energies(setting)


def _average(head: HeadData) -> dict[int, float]:
    """Least-squares energies of the elements without an IsolatedAtom entry, the others taken off before."""
    logging.info("Computing average Atomic Energies using least squares regression")
    training = outlines(head.train)
    usable = [configuration for configuration in training if contributes(configuration, ENERGY)]
    if not usable:
        raise InputError(
            f"--E0s=average needs energies, but no training configuration of head {head.name} has one: give "
            "a dict or a .json file"
        )
    unknown = AtomicNumberTable([z for z in head.elements if z not in head.isolated])
    return compute_average_E0s([_without(configuration, head.isolated) for configuration in usable], unknown)


def _without(configuration: Configuration, energies: Mapping[int, float]) -> Configuration:
    """The configuration without the atoms whose energies are known, and without these energies."""
    others = np.array([int(z) not in energies for z in configuration.atomic_numbers])
    known = sum(energies[int(z)] for z in configuration.atomic_numbers[~others])
    return dataclasses.replace(
        configuration,
        atomic_numbers=configuration.atomic_numbers[others],
        positions=configuration.positions[others],
        energy=configuration.energy - known,
    )
