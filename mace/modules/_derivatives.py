"""Edge vectors, the strain that stress is taken from, and the derivatives of the energy.

Signs: forces = -dE/dr (eV/A), virials = -dE/d(strain) (eV), stress = +dE/d(strain)/volume (eV/A^3).
"""

from __future__ import annotations

import torch
from torch import Tensor


def get_edge_vectors_and_lengths(
    positions: Tensor, edge_index: Tensor, shifts: Tensor, normalize: bool = False, eps: float = 1e-9
) -> tuple[Tensor, Tensor]:
    """Vectors [n_edges, 3] from sender to receiver image and their lengths [n_edges, 1].

    Args:
        positions: [n_atoms, 3].
        edge_index: int64 [2, n_edges], sender and receiver.
        shifts: [n_edges, 3], displacement of the receiver's periodic image.
        normalize: return unit vectors, divided by length + ``eps``.
        eps: Angstrom.
    """
    vectors = positions[edge_index[1]] - positions[edge_index[0]] + shifts
    lengths = torch.linalg.norm(vectors, dim=-1, keepdim=True)
    if normalize:
        vectors = vectors / (lengths + eps)
    return vectors, lengths


def get_symmetric_displacement(
    positions: Tensor,
    unit_shifts: Tensor,
    cell: Tensor | None,
    edge_index: Tensor,
    num_graphs: int,
    batch: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Positions and shifts under a strain that is zero but can be differentiated by.

    Both follow r -> r + r S with S = (eps + eps^T)/2. The arguments are left as they are.

    Args:
        positions: [n_atoms, 3].
        unit_shifts: [n_edges, 3], in units of the cell vectors.
        cell: [3 n_graphs, 3], rows are vectors, or None for no cell.
        edge_index: int64 [2, n_edges].
        num_graphs: number of graphs.
        batch: int64 [n_atoms], graph of each atom.

    Returns:
        positions [n_atoms, 3], shifts [n_edges, 3], eps [n_graphs, 3, 3].
    """
    if cell is None:
        cell = torch.zeros([num_graphs * 3, 3], dtype=positions.dtype, device=positions.device)
    displacement = torch.zeros([num_graphs, 3, 3], dtype=positions.dtype, device=positions.device)
    displacement.requires_grad_(True)
    strain = 0.5 * (displacement + displacement.transpose(-1, -2))
    positions = positions + torch.bmm(positions.unsqueeze(1), strain[batch]).squeeze(1)
    cells = cell.view(-1, 3, 3)
    cells = cells + torch.bmm(cells, strain)
    shifts = torch.bmm(unit_shifts.unsqueeze(1), cells[batch[edge_index[0]]]).squeeze(1)
    return positions, shifts, displacement


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def compute_forces(energy: Tensor, positions: Tensor, training: bool = True) -> Tensor:
    """-dE/dr [n_atoms, 3], zeros where the energy does not depend on the positions.

    Args:
        energy: [n_graphs].
        positions: [n_atoms, 3], requires gradient.
        training: keep the graph for derivatives of the forces.
    """
    ones: list[Tensor | None] = [torch.ones_like(energy)]
    gradient = torch.autograd.grad(
        outputs=[energy],
        inputs=[positions],
        grad_outputs=ones,
        retain_graph=training,
        create_graph=training,
        allow_unused=True,
    )[0]
    return -1.0 * _or_zeros(gradient, positions)


def compute_forces_virials(
    energy: Tensor,
    positions: Tensor,
    displacement: Tensor,
    cell: Tensor,
    training: bool = True,
    compute_stress: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Forces [n_atoms, 3], virials and stress [n_graphs, 3, 3].

    The stress is zero unless ``compute_stress``, where a cell [3 n_graphs, 3] has no volume, and in entries
    that reach 1e10 eV/A^3. Other arguments as `compute_forces`; ``displacement`` from
    `get_symmetric_displacement`.
    """
    ones: list[Tensor | None] = [torch.ones_like(energy)]
    gradients = torch.autograd.grad(
        outputs=[energy],
        inputs=[positions, displacement],
        grad_outputs=ones,
        retain_graph=training,
        create_graph=training,
        allow_unused=True,
    )
    by_strain = _or_zeros(gradients[1], displacement)
    stress = torch.zeros_like(displacement)
    if compute_stress:
        volume = torch.linalg.det(cell.view(-1, 3, 3)).abs().view(-1, 1, 1)
        has_volume = volume > 0.0
        stress = torch.where(
            has_volume, by_strain / torch.where(has_volume, volume, torch.ones_like(volume)), stress
        )
        stress = stress.masked_fill(stress.abs() >= 1e10, 0.0)  # no crystal: MACE's limit
    return -1.0 * _or_zeros(gradients[0], positions), -1.0 * by_strain, stress


def compute_hessians_loop(forces: Tensor, positions: Tensor) -> Tensor:
    """d(-F)/dr [3 n_atoms, n_atoms, 3], one row at a time."""
    rows: list[Tensor] = []
    for force in forces.view(-1):
        gradient = torch.autograd.grad(
            outputs=[-1.0 * force],
            inputs=[positions],
            retain_graph=True,
            create_graph=False,
            allow_unused=True,
        )[0]
        rows.append(_or_zeros(gradient, positions).detach())
    return torch.stack(rows)


@torch.jit.unused
def compute_hessians_vmap(forces: Tensor, positions: Tensor) -> Tensor:
    """d(-F)/dr [3 n_atoms, n_atoms, 3], several rows at a time."""
    flat = forces.reshape(-1)

    def row(unit: Tensor) -> Tensor:
        gradient = torch.autograd.grad(
            -flat, positions, unit, retain_graph=True, create_graph=False, allow_unused=True
        )
        return _or_zeros(gradient[0], positions)

    units = torch.eye(flat.numel(), dtype=forces.dtype, device=forces.device)
    return torch.vmap(row, in_dims=0, out_dims=0, chunk_size=1 if flat.numel() < 64 else 16)(units)


def get_outputs(
    energy: Tensor,
    positions: Tensor,
    displacement: Tensor | None,
    cell: Tensor,
    training: bool = False,
    compute_force: bool = True,
    compute_virials: bool = True,
    compute_stress: bool = True,
    compute_hessian: bool = False,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """(forces, virials, stress, hessian), None for what was not asked for.

    Asking for virials or stress gives the forces too, and needs ``displacement``. Arguments as
    `compute_forces_virials`.
    """
    forces: Tensor | None = None
    virials: Tensor | None = None
    stress: Tensor | None = None
    hessian: Tensor | None = None
    keep_graph = training or compute_hessian
    if compute_virials or compute_stress:
        assert displacement is not None
        forces, virials, stress = compute_forces_virials(
            energy, positions, displacement, cell, keep_graph, compute_stress
        )
    elif compute_force or compute_hessian:
        forces = compute_forces(energy, positions, keep_graph)
    if compute_hessian:
        assert forces is not None
        if torch.jit.is_scripting():
            hessian = compute_hessians_loop(forces, positions)
        else:
            hessian = compute_hessians_vmap(forces, positions)
    return forces, virials, stress, hessian
