"""Geometry, derivatives of the energy, statistics of a data set: what other packages import from here."""

from __future__ import annotations

import torch
from torch import Tensor

from mace.modules._derivatives import (
    compute_forces,
    compute_forces_virials,
    compute_hessians_loop,
    compute_hessians_vmap,
    get_edge_vectors_and_lengths,
    get_outputs,
    get_symmetric_displacement,
)
from mace.modules._statistics import (
    compute_avg_num_neighbors,
    compute_mean_rms_energy_forces,
    compute_mean_std_atomic_inter_energy,
    compute_rms_dipoles,
    compute_statistics,
)
from mace.tools.scatter import scatter_mean, scatter_std, scatter_sum

__all__ = [
    "compute_avg_num_neighbors",
    "compute_fixed_charge_dipole",
    "compute_forces",
    "compute_forces_virials",
    "compute_hessians_loop",
    "compute_hessians_vmap",
    "compute_mean_rms_energy_forces",
    "compute_mean_std_atomic_inter_energy",
    "compute_rms_dipoles",
    "compute_statistics",
    "extract_invariant",
    "get_edge_vectors_and_lengths",
    "get_outputs",
    "get_symmetric_displacement",
    "scatter_mean",
    "scatter_std",
    "scatter_sum",
]


def compute_fixed_charge_dipole(charges: Tensor, positions: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Dipole moment of point charges, sum of q r, [n_graphs, 3], Debye.

    Args:
        charges: [n_atoms], e.
        positions: [n_atoms, 3], Angstrom.
        batch: int64 [n_atoms], graph of each atom.
        num_graphs: number of graphs.
    """
    # From the exact SI values of e and c. Not a constant of the module, which TorchScript could not see.
    debye_per_e_angstrom = 1.602176634e-19 * 299792458.0 * 1e11
    moments = debye_per_e_angstrom * charges.unsqueeze(-1) * positions
    return scatter_sum(moments, batch, 0, None, num_graphs)


def extract_invariant(x: Tensor, num_layers: int, num_features: int, l_max: int) -> Tensor:
    """The scalar columns of the concatenated features of all layers.

    Args:
        x: [n_atoms, (num_layers - 1) num_features (l_max + 1)^2 + num_features], the last layer has
            scalars only.
        num_layers: number of layers to take, from the first.
        num_features: channels.
        l_max: largest degree of the features of the layers before the last.

    Returns:
        [n_atoms, num_layers * num_features]
    """
    width = num_features * (l_max + 1) ** 2
    return torch.cat(
        [x[:, layer * width : layer * width + num_features] for layer in range(num_layers)], dim=-1
    )
