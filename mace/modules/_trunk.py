"""The forward pass that all models share: graph, layers, energies, derivatives.

A model is a `Trunk` with parts that plug in: how features go from layer to layer (`ManyBodyLayers`, or the
two-body layers of `mace.modules.botnet`), whether they make an energy (`EnergyModel`), and methods by which a
model differs from others of its kind, as what its atoms look like at first (`embedding_input`). Everything
here is plain typed methods, because models are compiled to TorchScript.
"""

# No "from __future__ import annotations": TorchScript needs the types of the named tuples, not their text.
from typing import Any, NamedTuple

import torch
from e3nn import o3
from torch import Tensor

from mace.modules._architecture import Architecture
from mace.modules._derivatives import get_edge_vectors_and_lengths, get_outputs, get_symmetric_displacement
from mace.modules._state import drop_unused
from mace.modules.blocks import AtomicEnergiesBlock, LinearNodeEmbeddingBlock, RadialEmbeddingBlock
from mace.modules.radial import ZBLBasis
from mace.tools.scatter import scatter_sum


class Graph(NamedTuple):
    """A batch of graphs, ready for the layers."""

    num_graphs: int
    sizes: Tensor  # int64 [n_graphs], number of atoms
    batch: Tensor  # int64 [n_atoms], graph of each atom
    node_heads: Tensor  # int64 [n_atoms], head of each atom
    node_attrs: Tensor  # [n_atoms, n_elements], one-hot
    edge_index: Tensor  # int64 [2, n_edges], sender and receiver
    positions: Tensor  # [n_atoms, 3], what the energy is differentiated by
    displacement: Tensor | None  # [n_graphs, 3, 3], the strain, or None
    cell: Tensor  # [3 n_graphs, 3]
    vectors: Tensor  # [n_edges, 3]
    lengths: Tensor  # [n_edges, 1]


class Layers(NamedTuple):
    """What the layers made of a batch of graphs."""

    node_feats: list[Tensor]  # of each layer, [n_atoms, irreps.dim]
    readouts: list[Tensor]  # of each layer, [n_atoms, n_outputs]
    state: Tensor  # of each graph, in models that have one, [n_graphs, width]


class Energies(NamedTuple):
    """Energies in eV."""

    total: Tensor  # [n_graphs]
    interaction: Tensor  # [n_graphs], the part that depends on the positions
    node: Tensor  # [n_atoms], sums to the total


class Evaluation(NamedTuple):
    """What the forward pass of an `EnergyModel` knows."""

    graph: Graph
    layers: Layers
    node_energies: list[Tensor]  # [n_atoms]: E0 and what is added to it, before scale and shift
    energies: Energies
    output: dict[str, Tensor | None]


def graph_of(data: dict[str, Tensor], differentiate: bool, strain: bool) -> Graph:
    """The graph of a batch; ``data`` and its tensors are left as they are.

    Args:
        data: positions, node_attrs, edge_index, shifts, cell, batch, ptr; optional head; unit_shifts with
            ``strain``.
        differentiate: the positions shall require gradient.
        strain: the geometry shall depend on a strain that is zero.
    """
    positions = data["positions"]
    if differentiate and not positions.requires_grad:
        positions = positions.detach().requires_grad_(True)  # shares the numbers, not the flag
    num_graphs = data["ptr"].numel() - 1
    batch = data["batch"]
    edge_index = data["edge_index"]
    displaced, shifts = positions, data["shifts"]
    displacement: Tensor | None = None
    if strain:
        displaced, shifts, displacement = get_symmetric_displacement(
            positions, data["unit_shifts"], data["cell"], edge_index, num_graphs, batch
        )
    vectors, lengths = get_edge_vectors_and_lengths(displaced, edge_index, shifts)
    return Graph(
        num_graphs=num_graphs,
        sizes=data["ptr"][1:] - data["ptr"][:-1],
        batch=batch,
        node_heads=data["head"][batch] if "head" in data else torch.zeros_like(batch),
        node_attrs=data["node_attrs"],
        edge_index=edge_index,
        positions=positions,
        displacement=displacement,
        cell=data["cell"],
        vectors=vectors,
        lengths=lengths,
    )


def of_head(readout: Tensor, node_heads: Tensor) -> Tensor:
    """[n_atoms, n_heads] -> [n_atoms], the column of each atom's head."""
    if readout.shape[1] == 1:
        return readout.squeeze(1)
    return readout.gather(1, node_heads.unsqueeze(1)).squeeze(1)


def mean_of_atoms(x: Tensor, graph: Graph) -> Tensor:
    """Mean over the atoms of each graph, [n_atoms, m] -> [n_graphs, m], in the precision of the positions."""
    x = x.to(graph.positions.dtype)  # torch.autocast may have made it bfloat16, which must not add up atoms
    return scatter_sum(x, graph.batch, 0, None, graph.num_graphs) / graph.sizes.unsqueeze(-1)


class Trunk(torch.nn.Module):
    """Embedding, interactions and readouts.

    Args:
        architecture: parsed arguments.
        atomic_energies: E0, eV, [n_elements] or [n_heads, n_elements]; None in models without energy.
        pair_repulsion: add the ZBL energy of close pairs.
        num_extra_inputs: columns that `embedding_input` adds to the one-hot elements.
    """

    __constants__ = ["has_pair_repulsion"]

    def __init__(
        self,
        architecture: Architecture,
        atomic_energies: object | None,
        pair_repulsion: bool = False,
        num_extra_inputs: int = 0,
    ) -> None:
        super().__init__()
        layers = range(architecture.num_interactions)
        self._describe(architecture)
        self.node_embedding = LinearNodeEmbeddingBlock(
            o3.Irreps([(architecture.num_elements + num_extra_inputs, (0, 1))]),
            architecture.scalars,
            architecture.cueq_config,
        )
        self.radial_embedding = RadialEmbeddingBlock(
            r_max=architecture.r_max,
            num_bessel=architecture.num_bessel,
            num_polynomial_cutoff=architecture.num_polynomial_cutoff,
            radial_type=architecture.radial_type,
            distance_transform=architecture.distance_transform,
        )
        self.has_pair_repulsion = pair_repulsion
        if pair_repulsion:
            self.pair_repulsion_fn = ZBLBasis(p=architecture.num_polynomial_cutoff)
        self.spherical_harmonics = o3.SphericalHarmonics(
            architecture.edge_irreps, normalize=True, normalization="component"
        )
        if atomic_energies is not None:
            self.atomic_energies_fn = AtomicEnergiesBlock(atomic_energies)
        self.interactions = torch.nn.ModuleList([architecture.interaction(layer) for layer in layers])
        if architecture.has_products:
            self.products = torch.nn.ModuleList([architecture.product(layer) for layer in layers])
        self.readouts = torch.nn.ModuleList([architecture.readout(layer) for layer in layers])

    def _describe(self, architecture: Architecture) -> None:
        """Elements, cutoff and number of layers, where other programs look for them: in the state dict."""
        self.register_buffer("atomic_numbers", torch.tensor(architecture.atomic_numbers, dtype=torch.int64))
        self.register_buffer("r_max", torch.tensor(architecture.r_max, dtype=torch.get_default_dtype()))
        self.register_buffer(
            "num_interactions", torch.tensor(architecture.num_interactions, dtype=torch.int64)
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        drop_unused(state_dict, prefix, self)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def embedding_input(self, data: dict[str, Tensor], graph: Graph) -> Tensor:
        """What the first features are a linear map of, [n_atoms, n_inputs]."""
        return graph.node_attrs

    def layers(self, data: dict[str, Tensor], graph: Graph) -> Layers:
        """Features and readouts of every layer, and the final state."""
        edge_attrs = self.spherical_harmonics(graph.vectors)
        edge_feats = self.radial_embedding(
            graph.lengths, graph.node_attrs, graph.edge_index, self.atomic_numbers
        )
        node_feats = self.node_embedding(self.embedding_input(data, graph))
        return self.propagated(data, graph, node_feats, edge_attrs, edge_feats)


class ManyBodyLayers(Trunk):
    """Layers of an interaction and a product block, with a state of each graph that may accompany them."""

    def first_state(self, data: dict[str, Tensor], graph: Graph) -> Tensor:
        """State of each graph that accompanies the layers, [n_graphs, width]; empty here."""
        return torch.empty_like(graph.node_attrs[:0])

    def conditioned(self, node_feats: Tensor, state: Tensor, graph: Graph) -> Tensor:
        """Features that enter a layer, given those of the layer before and the state; unchanged here."""
        return node_feats

    def next_state(self, state: Tensor, node_feats: Tensor, graph: Graph) -> Tensor:
        """State after a layer; unchanged here."""
        return state

    def propagated(
        self,
        data: dict[str, Tensor],
        graph: Graph,
        node_feats: Tensor,
        edge_attrs: Tensor,
        edge_feats: Tensor,
    ) -> Layers:
        """The layers, from the embedded nodes and edges on."""
        state = self.first_state(data, graph)
        features: list[Tensor] = []
        readouts: list[Tensor] = []
        for interaction, product, readout in zip(  # noqa: B905 - TorchScript knows no strict
            self.interactions, self.products, self.readouts
        ):
            node_feats = self.conditioned(node_feats, state, graph)
            messages, self_connection = interaction(
                graph.node_attrs, node_feats, edge_attrs, edge_feats, graph.edge_index
            )
            node_feats = product(messages, self_connection, graph.node_attrs)
            state = self.next_state(state, node_feats, graph)
            features.append(node_feats)
            readouts.append(readout(node_feats, graph.node_heads))
        return Layers(features, readouts, state)


class EnergyModel(Trunk):
    """The energy of the layers' readouts and its derivatives."""

    def layer_energies(self, layers: Layers, graph: Graph) -> list[Tensor]:
        """What each layer adds to the energy of the atoms, [n_atoms]: the readout's column of their head."""
        return [of_head(readout, graph.node_heads) for readout in layers.readouts]

    def added_energies(self, layers: Layers, graph: Graph) -> list[Tensor]:
        """Everything that is added to E0, [n_atoms] each."""
        return self.layer_energies(layers, graph)

    def scaled(self, node_energies: Tensor, node_heads: Tensor) -> Tensor:
        """Interaction energies [n_atoms] in eV, from the sum of what is added to E0."""
        return node_energies

    def combine(self, node_energies: list[Tensor], graph: Graph) -> Energies:
        """Total energy of E0 and what is added to it, each [n_atoms]."""
        interaction = node_energies[1]
        for layer in node_energies[2:]:
            interaction = interaction + layer
        interaction = self.scaled(interaction, graph.node_heads)
        per_graph = scatter_sum(interaction, graph.batch, 0, None, graph.num_graphs)
        baseline = scatter_sum(node_energies[0], graph.batch, 0, None, graph.num_graphs)
        return Energies(
            total=baseline + per_graph, interaction=per_graph, node=node_energies[0] + interaction
        )

    def contributions(self, evaluation: Evaluation) -> Tensor:
        """E0 and what is added to it, of each graph, [n_graphs, n_parts]; before scale and shift."""
        graph = evaluation.graph
        parts = torch.stack(evaluation.node_energies, dim=-1)
        return scatter_sum(parts, graph.batch, 0, None, graph.num_graphs)

    def evaluate(
        self,
        data: dict[str, Tensor],
        training: bool,
        compute_force: bool,
        compute_virials: bool,
        compute_stress: bool,
        compute_displacement: bool,
        compute_hessian: bool,
    ) -> Evaluation:
        """Energies, their derivatives and everything they were made of. Arguments as `MACE.forward`."""
        strain = compute_virials or compute_stress or compute_displacement
        graph = graph_of(data, compute_force or strain or compute_hessian, strain)
        layers = self.layers(data, graph)
        e0 = of_head(self.atomic_energies_fn(graph.node_attrs), graph.node_heads)
        node_energies = [e0] + self.added_energies(layers, graph)
        energies = self.combine(node_energies, graph)
        forces, virials, stress, hessian = get_outputs(
            energies.interaction,
            graph.positions,
            graph.displacement,
            graph.cell,
            training,
            compute_force,
            compute_virials,
            compute_stress,
            compute_hessian,
        )
        output: dict[str, Tensor | None] = {
            "energy": energies.total,
            "node_energy": energies.node,
            "forces": forces,
            "virials": virials,
            "stress": stress,
            "hessian": hessian,
            "displacement": graph.displacement,
            "node_feats": torch.cat(layers.node_feats, dim=-1),
        }
        return Evaluation(graph, layers, node_energies, energies, output)
