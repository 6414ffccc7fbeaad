"""Energies of isolated atoms from the energies of structures."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from mace.exceptions import InputError
from mace.tools.utils import AtomicNumberTable, atomic_numbers_to_indices

from .configuration import Configuration


def compute_average_E0s(
    collections_train: Sequence[Configuration], z_table: AtomicNumberTable
) -> dict[int, float]:
    """Energies of the elements, eV, that fit the total energies of the configurations best (least squares).

    Minimises sum_i (sum_z n_iz E0_z - E_i)^2, with n_iz atoms of element z in configuration i. Where the
    compositions don't fix the solution, it is the one of smallest norm, and a warning says so. Configurations
    without an energy are left out.

    Raises:
        InputError: no configuration has an energy, or an element is not in the table.
    """
    labelled = [config for config in collections_train if config.energy is not None]
    if not labelled:
        raise InputError("average E0s can't be computed: no training structure has an energy")
    counts = np.zeros((len(labelled), len(z_table)))
    for row, config in zip(counts, labelled, strict=True):
        row += np.bincount(atomic_numbers_to_indices(config.atomic_numbers, z_table), minlength=len(z_table))
    energies = np.array([config.energy for config in labelled])
    solution, _, rank, _ = np.linalg.lstsq(counts, energies, rcond=None)
    if rank < len(z_table):
        logging.warning(
            f"The training set has {rank} independent compositions for {len(z_table)} elements: average E0s "
            "fit those only, energies of other compositions will be meaningless: for those give energies of "
            "isolated atoms (--E0s, or IsolatedAtom frames)"
        )
    return dict(zip(z_table.zs, solution.tolist(), strict=True))
