"""From the training data to the numbers a model is built from: elements, E0s, neighbours, scale, means."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from mace.arguments.plans import DataPlan, TrainPlan
from mace.data import Configuration
from mace.data.labels import ENERGY, FORCES, POTENTIAL
from mace.data.stored import outlines
from mace.exceptions import InputError
from mace.tools.data_checks import contributes
from mace.tools.datasets import HeadData
from mace.tools.distributed import Ranks
from mace.tools.graphs import RunGraphs, share
from mace.tools.reference_energies import energies_array, reference_energies
from mace.tools.utils import AtomicNumberTable


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What the training data say about the model. The same on every rank."""

    z_table: AtomicNumberTable
    heads: tuple[str, ...]
    atomic_energies: np.ndarray  # [n_heads, n_elements], eV
    avg_num_neighbors: float  # edges per atom
    mean: np.ndarray  # [n_heads], interaction energy per atom, eV; 0 without scaling
    std: np.ndarray  # [n_heads], scale of the output; 1 without scaling
    mean_electron: float | None  # electrons; None for a model without this input
    mean_potential: float | None  # V; None for a model without this output


def measure(heads: Sequence[HeadData], graphs: RunGraphs, plan: TrainPlan, ranks: Ranks) -> Statistics:
    """Measure the training data of all heads: every configuration counts, whatever the batch size.

    Labels of weight zero are missing ones and do not enter. Neighbours are counted on this rank's share of
    the graphs and summed over the ranks; everything else is computed by each rank from all configurations.
    In the end rank 0 gives its numbers to the others, so that they are the same to the last bit.

    Raises:
        InputError: on every rank, if a number cannot be had from these data.
    """
    logging.info(f"Atomic Numbers used: {graphs.z_table.zs}")
    energies = [energies_of(head, graphs.z_table) if plan.model.kind.has_energy else {} for head in heads]
    avg_num_neighbors = _average_num_neighbors(graphs, plan.data, ranks)
    scaling = plan.model.scaling
    means = [mean_of(head, by_element, scaling) for head, by_element in zip(heads, energies, strict=True)]
    # Forces may have to be read from files, which can fail on one rank alone.
    scales = ranks.everywhere(
        lambda: [
            scale_of(head, by_element, scaling) for head, by_element in zip(heads, energies, strict=True)
        ]
    )
    training = [outlines(head.train) for head in heads]
    return ranks.broadcast(
        Statistics(
            z_table=graphs.z_table,
            heads=graphs.heads,
            atomic_energies=energies_array(energies, graphs.z_table),
            avg_num_neighbors=avg_num_neighbors,
            mean=np.array(means),
            std=np.array(scales),
            mean_electron=_mean_electron(chain(*training)) if plan.model.needs_electron else None,
            mean_potential=_mean_potential(chain(*training), plan) if plan.model.has_potential else None,
        )
    )


def energies_of(head: HeadData, z_table: AtomicNumberTable) -> dict[int, float]:
    """E0s of a head for those elements of the model it has."""
    energies = {z: energy for z, energy in reference_energies(head).items() if z in z_table.zs}
    logging.info(f"Atomic Energies used (z: eV) for head {head.name}: {energies}")
    return energies


def _average_num_neighbors(graphs: RunGraphs, plan: DataPlan, ranks: Ranks) -> float:
    """Edges per atom over all training graphs; atoms without neighbours count.

    If any head has the measurement switched off, it is the largest value that such a head gives.
    """
    given = [head.avg_num_neighbors for head in plan.heads if not head.compute_avg_num_neighbors]
    if given:
        average = float(max(given))
    else:
        logging.info("Computing average number of neighbors")
        edges, atoms = ranks.sum(ranks.everywhere(lambda: _count_share(graphs, ranks))).tolist()
        average = edges / atoms
    return checked_average(average, plan.r_max)


def _count_share(graphs: RunGraphs, ranks: Ranks) -> torch.Tensor:
    """Edges and atoms of this rank's share of the training graphs."""
    counts = torch.zeros(2, dtype=torch.int64)
    for graph_set in graphs.train.values():
        for index in share(len(graph_set), ranks):
            graph = graph_set[index]
            counts += torch.tensor([graph.edge_index.shape[1], graph.positions.shape[0]])
    return counts


def checked_average(average: float, r_max: float) -> float:
    """An average number of neighbours, logged. Raises InputError if no atom has any."""
    if average <= 0.0:
        raise InputError(
            f"the average number of neighbors is {average:g} with --r_max={r_max:g} (Angstrom): "
            "messages are divided by it; check "
            "the unit of the positions, or increase --r_max"
        )
    if not 2 <= average <= 100:
        logging.warning(f"Unusual average number of neighbors: {average:.1f}")
    logging.info(f"Average number of neighbors: {average}")
    return average


def mean_of(head: HeadData, energies: Mapping[int, float], scaling: str) -> float:
    """Mean over configurations of (E - sum of E0) / n_atoms, eV: the given one if any, 0 without scaling."""
    if head.plan.mean is not None:
        return head.plan.mean
    if scaling == "no_scaling":
        return 0.0
    per_atom = _interaction_energies(outlines(head.train), energies)
    if not per_atom.size:
        logging.warning(
            f"No energies to measure the mean energy per atom of head {head.name}: it is set to 0"
        )
        return 0.0
    return float(per_atom.mean())


def scale_of(head: HeadData, energies: Mapping[int, float], scaling: str) -> float:
    """Scale of the output: the given one if there is one, else measured as ``scaling`` says.

    ``rms_forces_scaling``: root mean square of the force components, eV/Angstrom. ``std_scaling``: standard
    deviation over configurations of (E - sum of E0) / n_atoms, eV. ``no_scaling``: 1.
    """
    if head.plan.std is not None:
        return head.plan.std
    if scaling == "no_scaling":
        return 1.0
    if scaling == "std_scaling":
        scale = _standard_deviation(_interaction_energies(outlines(head.train), energies), head.name)
    else:
        scale = _rms_forces(head)
    if scale == 0.0:
        logging.warning("Standard deviation of the scaling is zero, Changing to no scaling")
        return 1.0
    return scale


def _interaction_energies(
    configurations: Sequence[Configuration], energies: Mapping[int, float]
) -> np.ndarray:
    """(E - sum of E0) / n_atoms of every configuration that has an energy, [n], eV."""
    return np.array(
        [
            (configuration.energy - sum(energies[int(z)] for z in configuration.atomic_numbers))
            / len(configuration.atomic_numbers)
            for configuration in configurations
            if contributes(configuration, ENERGY)
        ]
    )


def _standard_deviation(values: np.ndarray, head: str) -> float:
    if not values.size:
        raise InputError(
            f"--scaling=std_scaling needs energies, but no training configuration of head {head} has one: "
            "use --scaling=no_scaling"
        )
    return float(np.sqrt(np.square(values - values.mean()).sum() / (max(values.size - 1, 1) + 1e-6)))


def _rms_forces(head: HeadData) -> float:
    """Root mean square of the force components; one configuration after the other is in memory."""
    labelled = (place for place, outline in enumerate(outlines(head.train)) if contributes(outline, FORCES))
    squares, components = [], 0
    for place in labelled:
        forces = head.train[place].forces
        assert forces is not None
        squares.append(float(np.square(forces).sum()))
        components += forces.size
    if not components:
        raise InputError(
            f"--scaling=rms_forces_scaling needs forces, but no training configuration of head {head.name} "
            "has any: use "
            "--scaling=std_scaling"
        )
    return math.sqrt(math.fsum(squares) / components)


def _mean_electron(configurations: Iterable[Configuration]) -> float:
    """Mean number of electrons: the model sees the deviation from it."""
    return float(np.mean([configuration.electron for configuration in configurations]))


def _mean_potential(configurations: Iterable[Configuration], plan: TrainPlan) -> float:
    """Mean Fermi level, V, of the configurations that have one: where the readout of the model starts."""
    levels = [
        configuration.potential
        for configuration in configurations
        if contributes(configuration, POTENTIAL, plan.data.empty_potential_value)
    ]
    if not levels:
        keys = sorted({head.keys.potential for head in plan.data.heads})
        raise InputError(
            f"--model={plan.model.model} gives the Fermi level, but no training configuration has one (key "
            f"{', '.join(keys)}): check "
            "--potential_key, or choose a model without Fermi level"
        )
    return float(np.mean(levels))
