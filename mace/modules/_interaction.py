"""The message-passing step that all interaction blocks share, and the parts in which they differ.

A block is `MessagePassing` plus one part per question: by what is the sum over neighbours divided
(`AverageNorm`, `DensityNorm`), what bypasses the sum (`ElementMixing`, `ElementSkip`, `LinearSkip`), what the
radial weights depend on (`MessagePassing` itself: the edge; `AttendedEdges`: the edge and features of both
ends; `SenderElement`: the edge and the element of its sender), and what is done with the sum: `ManyBody`
prepares it for a product block, `TwoBody` makes it the layer's features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from e3nn import nn, o3
from e3nn.util.jit import compile_mode
from torch import Tensor

from mace.modules._convolution import Convolution, group_edges
from mace.modules.irreps_tools import linear_out_irreps, reshape_irreps, tp_out_irreps_with_instructions
from mace.modules.wrapper_ops import FullyConnectedTensorProduct, Linear, TensorProduct
from mace.tools.scatter import scatter_sum


class InteractionBlock(torch.nn.Module):
    """What every interaction block is given.

    Args:
        node_attrs_irreps: Zx0e, one-hot elements.
        node_feats_irreps: features of the layer before.
        edge_attrs_irreps: spherical harmonics of the edges.
        edge_feats_irreps: radial embedding of the edges.
        target_irreps: irreps of the messages.
        hidden_irreps: irreps of the layer's features; what a self connection maps to. `TwoBody` blocks do
            not need it: their features have the irreps of the message.
        avg_num_neighbors: sums over neighbours are divided by it (not part of the state dict).
        radial_MLP: hidden widths of the radial network, [64, 64, 64] if None.
        cueq_config: back end, see `wrapper_ops`.
    """

    self_connection_is_returned = (
        False  # True: forward returns one, and the first layer's product block adds it
    )
    feeds_product = True  # False: forward returns the features of the layer

    def __init__(
        self,
        node_attrs_irreps: o3.Irreps,
        node_feats_irreps: o3.Irreps,
        edge_attrs_irreps: o3.Irreps,
        edge_feats_irreps: o3.Irreps,
        target_irreps: o3.Irreps,
        hidden_irreps: o3.Irreps,
        avg_num_neighbors: float,
        radial_MLP: Sequence[int] | None = None,  # noqa: N803 (public name)
        cueq_config: Any | None = None,
    ) -> None:
        super().__init__()
        self.node_attrs_irreps = o3.Irreps(node_attrs_irreps)
        self.node_feats_irreps = o3.Irreps(node_feats_irreps)
        self.edge_attrs_irreps = o3.Irreps(edge_attrs_irreps)
        self.edge_feats_irreps = o3.Irreps(edge_feats_irreps)
        self.target_irreps = o3.Irreps(target_irreps)
        self.hidden_irreps = o3.Irreps(hidden_irreps)
        self.avg_num_neighbors = float(avg_num_neighbors)
        self.radial_MLP = [64, 64, 64] if radial_MLP is None else list(radial_MLP)
        self.cueq_config = cueq_config
        self._setup()

    def _setup(self) -> None:
        """Build the submodules; the order here is their order in the state dict."""
        raise NotImplementedError

    def _radial_network(self, num_inputs: int, widths: Sequence[int]) -> nn.FullyConnectedNet:
        sizes = [num_inputs, *widths, self.conv_tp.weight_numel]
        return nn.FullyConnectedNet(sizes, torch.nn.functional.silu)


class MessagePassing(InteractionBlock):
    """linear(sum over neighbours of weights(edge) features(sender) x harmonics(edge)) / normaliser."""

    __constants__ = ["sums_edges"]

    def _setup(self) -> None:
        self._setup_convolution()
        self.irreps_out = self._message_irreps()
        self.linear = Linear(self.conv_tp.irreps_out, self.irreps_out, cueq_config=self.cueq_config)
        self._setup_skip()
        self._setup_norm()

    def _setup_convolution(self) -> None:
        self.linear_up = Linear(self.node_feats_irreps, self.node_feats_irreps, cueq_config=self.cueq_config)
        irreps_mid, instructions = tp_out_irreps_with_instructions(
            self.node_feats_irreps, self.edge_attrs_irreps, self.target_irreps
        )
        self.conv_tp = TensorProduct(
            self.node_feats_irreps,
            self.edge_attrs_irreps,
            irreps_mid,
            instructions=instructions,
            shared_weights=False,
            internal_weights=False,
            cueq_config=self.cueq_config,
        )
        self.sums_edges = isinstance(self.conv_tp, Convolution)
        self._setup_radial()

    def _setup_radial(self) -> None:
        self.conv_tp_weights = self._radial_network(self.edge_feats_irreps.num_irreps, self.radial_MLP)

    def _message_irreps(self) -> o3.Irreps:
        """Irreps of the message."""
        raise NotImplementedError

    def _connection_irreps(self) -> o3.Irreps:
        """Irreps that a self connection maps to."""
        raise NotImplementedError

    def _setup_norm(self) -> None:
        pass

    def _setup_skip(self) -> None:
        pass

    def radial_weights(
        self, node_attrs: Tensor, node_feats: Tensor, edge_feats: Tensor, edge_index: Tensor
    ) -> Tensor:
        """Weights of the tensor product, [n_edges, conv_tp.weight_numel]."""
        return self.conv_tp_weights(edge_feats)

    def messages(
        self,
        node_attrs: Tensor,
        node_feats: Tensor,
        edge_attrs: Tensor,
        edge_feats: Tensor,
        edge_index: Tensor,
    ) -> Tensor:
        """Normalised sums over neighbours, [n_atoms, irreps_out.dim]; arguments as `ManyBody.forward`."""
        upped = self.linear_up(node_feats)
        if self.sums_edges:
            groups = group_edges(edge_index[1], node_feats.shape[0], edge_feats)
            at_places, ends = edge_feats[groups.edges], edge_index[:, groups.edges]
            weights = self.radial_weights(node_attrs, node_feats, at_places, ends)
            summed = self.conv_tp.summed(upped, edge_attrs, weights, edge_index[0], groups)
        else:
            weights = self.radial_weights(node_attrs, node_feats, edge_feats, edge_index)
            on_edges = self.conv_tp(upped[edge_index[0]], edge_attrs, weights)
            summed = scatter_sum(on_edges, edge_index[1], 0, None, node_feats.shape[0])
        return self.normalised(self.linear(summed), edge_feats, edge_index)


class ManyBody(MessagePassing):
    """The message has all channels for every harmonic, one beside the other: what a product block takes."""

    def _setup(self) -> None:
        super()._setup()
        self.reshape = reshape_irreps(self.irreps_out, cueq_config=self.cueq_config)

    def _message_irreps(self) -> o3.Irreps:
        return self.target_irreps

    def _connection_irreps(self) -> o3.Irreps:
        return self.hidden_irreps

    def forward(
        self,
        node_attrs: Tensor,
        node_feats: Tensor,
        edge_attrs: Tensor,
        edge_feats: Tensor,
        edge_index: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """Messages and self connection.

        Args:
            node_attrs: [n_atoms, Z].
            node_feats: [n_atoms, node_feats_irreps.dim].
            edge_attrs: [n_edges, edge_attrs_irreps.dim].
            edge_feats: [n_edges, n_radial].
            edge_index: int64 [2, n_edges], sender and receiver.

        Returns:
            messages [n_atoms, channels, sum (2l+1)]; self connection [n_atoms, hidden_irreps.dim] or None.
        """
        message = self.messages(node_attrs, node_feats, edge_attrs, edge_feats, edge_index)
        return self.reshape(self.mixed(message, node_attrs)), self.self_connection(node_feats, node_attrs)


class TwoBody(MessagePassing):
    """The message and the self connection are the features of the layer; there is no product block."""

    feeds_product = False

    def _message_irreps(self) -> o3.Irreps:
        """What of the target irreps the tensor product reaches, sorted as its output is."""
        return linear_out_irreps(self.conv_tp.irreps_out.simplify(), self.target_irreps)

    def _connection_irreps(self) -> o3.Irreps:
        return self.irreps_out

    def forward(
        self,
        node_attrs: Tensor,
        node_feats: Tensor,
        edge_attrs: Tensor,
        edge_feats: Tensor,
        edge_index: Tensor,
    ) -> Tensor:
        """Features of the layer, [n_atoms, irreps_out.dim]; arguments as `ManyBody.forward`."""
        message = self.messages(node_attrs, node_feats, edge_attrs, edge_feats, edge_index)
        message = self.mixed(message, node_attrs)
        connection = self.self_connection(node_feats, node_attrs)
        return message if connection is None else message + connection


class AverageNorm(MessagePassing):
    """Sums over neighbours are divided by the average number of neighbours of the training set."""

    def normalised(self, message: Tensor, edge_feats: Tensor, edge_index: Tensor) -> Tensor:
        return message / self.avg_num_neighbors


class DensityNorm(MessagePassing):
    """Sums over neighbours are divided by 1 + a learned, smooth count of the atom's own neighbours."""

    def _setup_norm(self) -> None:
        self.density_fn = nn.FullyConnectedNet(
            [self.edge_feats_irreps.num_irreps, 1], torch.nn.functional.silu
        )

    def normalised(self, message: Tensor, edge_feats: Tensor, edge_index: Tensor) -> Tensor:
        on_edges = torch.tanh(self.density_fn(edge_feats).square())
        density = scatter_sum(on_edges, edge_index[1], 0, None, message.shape[0])
        return message / (density + 1.0)


class ElementMixing(MessagePassing):
    """The message passes a linear map that depends on the atom's element; there is no self connection."""

    def _setup_skip(self) -> None:
        self.skip_tp = FullyConnectedTensorProduct(
            self.irreps_out, self.node_attrs_irreps, self.irreps_out, cueq_config=self.cueq_config
        )

    def mixed(self, message: Tensor, node_attrs: Tensor) -> Tensor:
        return self.skip_tp(message, node_attrs)

    def self_connection(self, node_feats: Tensor, node_attrs: Tensor) -> Tensor | None:
        return None


class ElementSkip(MessagePassing):
    """The features of the layer before reach the next one through a linear map for each element."""

    self_connection_is_returned = True

    def _setup_skip(self) -> None:
        self.skip_tp = FullyConnectedTensorProduct(
            self.node_feats_irreps,
            self.node_attrs_irreps,
            self._connection_irreps(),
            cueq_config=self.cueq_config,
        )

    def mixed(self, message: Tensor, node_attrs: Tensor) -> Tensor:
        return message

    def self_connection(self, node_feats: Tensor, node_attrs: Tensor) -> Tensor | None:
        return self.skip_tp(node_feats, node_attrs)


class LinearSkip(MessagePassing):
    """The features of the layer before reach the next one through one linear map for all elements."""

    self_connection_is_returned = True

    def _setup_skip(self) -> None:
        self.skip_linear = Linear(
            self.node_feats_irreps, self._connection_irreps(), cueq_config=self.cueq_config
        )

    def mixed(self, message: Tensor, node_attrs: Tensor) -> Tensor:
        return message

    def self_connection(self, node_feats: Tensor, node_attrs: Tensor) -> Tensor | None:
        return self.skip_linear(node_feats)


class AttendedEdges(MessagePassing):
    """The radial network also sees 64 scalars of both ends of the edge; its hidden widths are 3 x 256."""

    num_attended = 64

    def _setup_radial(self) -> None:
        scalars = o3.Irreps([(self.num_attended, (0, 1))])
        self.linear_down = Linear(self.node_feats_irreps, scalars, cueq_config=self.cueq_config)
        num_inputs = self.edge_feats_irreps.num_irreps + 2 * self.num_attended
        self.conv_tp_weights = self._radial_network(num_inputs, [256, 256, 256])

    def radial_weights(
        self, node_attrs: Tensor, node_feats: Tensor, edge_feats: Tensor, edge_index: Tensor
    ) -> Tensor:
        ends = self.linear_down(node_feats)
        return self.conv_tp_weights(torch.cat([edge_feats, ends[edge_index[0]], ends[edge_index[1]]], dim=-1))


@compile_mode("script")
class TensorProductWeightsBlock(torch.nn.Module):
    """Radial weights that are linear in the features of the edge, with own coefficients for every element.

    State: weights [num_elements, num_edge_feats, num_feats_out].
    """

    def __init__(self, num_elements: int, num_edge_feats: int, num_feats_out: int) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.empty(num_elements, num_edge_feats, num_feats_out))
        torch.nn.init.xavier_uniform_(self.weights)

    def forward(self, sender_or_receiver_node_attrs: Tensor, edge_feats: Tensor) -> Tensor:
        """One-hot elements [n_edges, num_elements], features [n_edges, num_edge_feats] -> weights.

        Returns:
            [n_edges, num_feats_out]
        """
        by_element = torch.einsum("ez,ef->ezf", sender_or_receiver_node_attrs, edge_feats)
        return by_element.flatten(1) @ self.weights.flatten(0, 1)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(shape={tuple(self.weights.shape)}, weights={self.weights.numel()})"


class SenderElement(MessagePassing):
    """The weights are linear in the radial features, with own coefficients for the element of the sender."""

    def _setup_radial(self) -> None:
        self.conv_tp_weights = TensorProductWeightsBlock(
            self.node_attrs_irreps.num_irreps, self.edge_feats_irreps.num_irreps, self.conv_tp.weight_numel
        )

    def radial_weights(
        self, node_attrs: Tensor, node_feats: Tensor, edge_feats: Tensor, edge_index: Tensor
    ) -> Tensor:
        return self.conv_tp_weights(node_attrs[edge_index[0]], edge_feats)
