"""Structures as graphs of torch tensors: what models, losses and metrics are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data
from torch import Tensor

from mace.exceptions import InputError
from mace.tools.torch_geometric import Data, DataLoader
from mace.tools.torch_tools import to_one_hot, voigt_to_matrix
from mace.tools.utils import AtomicNumberTable, atomic_numbers_to_indices

from .configuration import Configuration
from .labels import LABELS, POTENTIAL, Label
from .neighborhood import get_neighborhood

DEFAULT_HEADS = ("default",)


class AtomicData(Data):
    """One structure as a graph of n atoms and e directed edges; Angstrom, eV, V, e.

    Floating point tensors have one dtype, torch's default at the time of the call unless another is asked
    for.

    Attributes:
        edge_index: int64 (2, e), senders and receivers.
        node_attrs: (n, n_elements), one-hot elements.
        positions: (n, 3).
        shifts: (e, 3), ``unit_shifts @ cell``: the vector of an edge is receiver - sender + shift.
        unit_shifts: (e, 3), whole numbers of cell vectors.
        cell: (3, 3), one vector a row; (3 G, 3) in a batch of G graphs.
        head: int64, number of the head.
        weight: of the structure in the loss.
        energy_weight: and ``forces_weight``, ``stress_weight``, ``virials_weight``, ``potential_weight``,
            ``electron_weight``: of single terms; 0 where the label is missing.
        energy: eV.
        potential: Fermi level, V.
        potential_flag: 1 if the potential is a label, 0 if there is none.
        electron: number of electrons or net charge.
        forces: (n, 3), eV/Angstrom.
        stress: (1, 3, 3), eV/Angstrom^3.
        virials: (1, 3, 3), eV.
        dipole: (1, 3), Debye.
        charges: (n,), e.

    Labels that are missing are 0. Whatever is None is no part of the graph.
    """

    edge_index: Tensor
    node_attrs: Tensor

    def __init__(
        self,
        edge_index: Tensor,
        node_attrs: Tensor,
        positions: Tensor,
        shifts: Tensor,
        unit_shifts: Tensor,
        cell: Tensor | None,
        weight: Tensor | None,
        head: Tensor | None,
        energy_weight: Tensor | None,
        potential_weight: Tensor | None,
        electron_weight: Tensor | None,
        forces_weight: Tensor | None,
        stress_weight: Tensor | None,
        virials_weight: Tensor | None,
        forces: Tensor | None,
        energy: Tensor | None,
        potential: Tensor | None,
        potential_flag: Tensor | None,
        electron: Tensor | None,
        stress: Tensor | None,
        virials: Tensor | None,
        dipole: Tensor | None,
        charges: Tensor | None,
    ) -> None:
        tensors = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        super().__init__(num_nodes=node_attrs.shape[0], **tensors)
        self._check_shapes()

    def _check_shapes(self) -> None:
        n_nodes, n_edges = self.node_attrs.shape[0], self.edge_index.shape[-1]
        shapes = {
            "edge_index": (2, n_edges),
            "positions": (n_nodes, 3),
            "shifts": (n_edges, 3),
            "unit_shifts": (n_edges, 3),
            "cell": (3, 3),
            "weight": (),
            "head": (),
            "potential_flag": (),
        }
        for label in LABELS:
            shapes[label.name] = _graph_shape(label, n_nodes)
            if label.weight is not None:
                shapes[label.weight] = ()
        assert self.node_attrs.dim() == 2, f"node_attrs {tuple(self.node_attrs.shape)}"
        for key, shape in shapes.items():
            value = self[key]
            assert value is None or value.shape == shape, f"{key} {tuple(value.shape)}, expected {shape}"

    @classmethod
    def from_config(
        cls,
        config: Configuration,
        z_table: AtomicNumberTable,
        cutoff: float,
        heads: Sequence[str] | None = None,
        empty_potential_value: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> AtomicData:
        """The graph of a configuration.

        Args:
            config: the structure and its labels.
            z_table: elements of the model.
            cutoff: Angstrom.
            heads: names of the model's heads. A model with one head uses it for every structure.
            empty_potential_value: a potential that is this number up to rounding is no label.
            dtype: of floating point tensors; torch's default without it.

        Raises:
            InputError: an element or head that the model lacks, or a structure without a neighbour list.
        """
        dtype = torch.get_default_dtype() if dtype is None else dtype
        try:
            elements = torch.from_numpy(atomic_numbers_to_indices(config.atomic_numbers, z_table))
            edge_index, shifts, unit_shifts, cell = get_neighborhood(
                positions=config.positions, cutoff=cutoff, pbc=config.pbc, cell=config.cell
            )
        except InputError as error:
            raise InputError(f"{config.origin}: {error}") from error
        geometry = {"positions": config.positions, "shifts": shifts, "unit_shifts": unit_shifts, "cell": cell}
        return cls(
            edge_index=torch.from_numpy(edge_index),
            node_attrs=to_one_hot(elements.unsqueeze(-1), len(z_table), dtype),
            head=torch.tensor(_head_index(config, DEFAULT_HEADS if heads is None else heads)),
            weight=torch.tensor(config.weight, dtype=dtype),
            **{key: torch.tensor(value, dtype=dtype) for key, value in geometry.items()},
            **_label_tensors(config, empty_potential_value, dtype),
        )


def _graph_shape(label: Label, n_atoms: int) -> tuple[int, ...]:
    """The shape of a label in one graph."""
    return (n_atoms, *label.shape) if label.per_atom else label.shape


def _head_index(config: Configuration, heads: Sequence[str]) -> int:
    if len(heads) == 1:
        return 0
    if config.head not in heads:
        raise InputError(
            f"head {config.head!r} of {config.origin} is not in this model; it has {list(heads)}"
        )
    return list(heads).index(config.head)


def _label_tensors(
    config: Configuration, empty_potential_value: float | None, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Labels and their weights; both 0 where a label is missing."""
    tensors = {}
    for label in LABELS:
        there = config.has(label, empty_potential_value)
        shape = _graph_shape(label, len(config.atomic_numbers))
        value = getattr(config, label.name)
        tensors[label.name] = _shaped(value, shape, dtype) if there else torch.zeros(shape, dtype=dtype)
        if label.weight is not None:
            tensors[label.weight] = torch.tensor(getattr(config, label.weight) if there else 0.0, dtype=dtype)
        if label is POTENTIAL:
            tensors["potential_flag"] = torch.tensor(float(there), dtype=dtype)
    return tensors


def _shaped(value: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A label in the shape it has in a graph."""
    tensor = torch.tensor(np.asarray(value), dtype=dtype)
    return (voigt_to_matrix(tensor) if shape[-2:] == (3, 3) else tensor).reshape(shape)


def get_data_loader(
    dataset: torch.utils.data.Dataset[Data] | Sequence[AtomicData],
    batch_size: int,
    shuffle: bool = True,
    drop_last: bool = False,
) -> DataLoader:
    """A loader of batches of graphs."""
    return DataLoader(dataset=dataset, batch_size=batch_size, shuffle=shuffle, drop_last=drop_last)
