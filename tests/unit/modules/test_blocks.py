"""Blocks: what they refuse, how several heads share them, and old shapes of their tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from e3nn import o3

from mace import modules
from mace.exceptions import InputError
from mace.modules.blocks import (
    AtomicEnergiesBlock,
    EquivariantProductBasisBlock,
    LinearDipoleReadoutBlock,
    LinearReadoutBlock,
    NonLinearDipoleReadoutBlock,
    NonLinearReadoutBlock,
    ScaleShiftBlock,
    TensorProductWeightsBlock,
)


def test_atomic_energies_of_every_head() -> None:
    block = AtomicEnergiesBlock(np.array([[-1.0, -2.0], [-3.0, -4.0]]))
    assert block(torch.eye(2)).tolist() == [[-1.0, -3.0], [-2.0, -4.0]]
    assert AtomicEnergiesBlock([-1.0, -2.0])(torch.eye(2)).tolist() == [[-1.0], [-2.0]]
    assert "-3.0000" in repr(block)


def test_scale_and_shift_belong_to_the_head() -> None:
    block = ScaleShiftBlock([2.0, 3.0], [0.5, -0.5])
    assert block(torch.tensor([1.0, 1.0]), torch.tensor([1, 0])).tolist() == [2.5, 2.5]
    assert "scale=2.0" in repr(block)


def test_b18_no_shift_is_a_shift_of_zero() -> None:
    assert ScaleShiftBlock(2.0, None)(torch.ones(1), torch.zeros(1, dtype=torch.long)).tolist() == [2.0]


@pytest.mark.parametrize(("own", "given"), [(1.5, torch.tensor([2.0])), ([1.5], torch.tensor(2.0))])
def test_scale_of_one_head_is_read_in_both_shapes(own: float | list[float], given: torch.Tensor) -> None:
    block = ScaleShiftBlock(own, own)
    block.load_state_dict({"scale": given, "shift": given})
    assert block.scale.shape == np.shape(own) and float(block.scale) == 2.0


def test_other_numbers_of_heads_are_refused() -> None:
    with pytest.raises(RuntimeError, match="scale"):
        ScaleShiftBlock(1.0, 0.0).load_state_dict({"scale": torch.ones(2), "shift": torch.tensor(0.0)})


def test_readout_of_a_head_ignores_the_others() -> None:
    torch.manual_seed(0)
    block = NonLinearReadoutBlock("4x0e", "6x0e", torch.nn.functional.silu, "2x0e", num_heads=2)
    features = torch.randn(3, 4)
    by_head = [block(features, torch.full((3,), head))[:, head] for head in (0, 1)]
    with torch.no_grad():
        block.linear_1.weight.view(4, 2, 3)[:, 1] = 0.0  # the hidden columns of the second head
    assert torch.equal(block(features, torch.zeros(3, dtype=torch.long))[:, 0], by_head[0])
    assert not torch.equal(block(features, torch.ones(3, dtype=torch.long))[:, 1], by_head[1])


def test_linear_readout_has_a_column_per_head() -> None:
    assert LinearReadoutBlock("4x0e + 4x1o", "3x0e")(torch.randn(5, 16)).shape == (5, 3)


@pytest.mark.parametrize("use_sc", [True, False])
def test_product_adds_the_self_connection_if_it_shall(use_sc: bool) -> None:
    block = EquivariantProductBasisBlock("2x0e + 2x1o", "2x0e", 2, use_sc=use_sc, num_elements=1)
    messages, connection, one_hot = torch.randn(3, 2, 4), torch.randn(3, 2), torch.ones(3, 1)
    difference = block(messages, connection, one_hot) - block(messages, None, one_hot)
    torch.testing.assert_close(difference, connection if use_sc else torch.zeros(3, 2))


def test_product_refuses_mixed_multiplicities() -> None:
    with pytest.raises(InputError, match="multiplicity"):
        EquivariantProductBasisBlock("2x0e + 2x1o", "2x0e + 3x1o", 2, num_elements=1)


@pytest.mark.parametrize("name", modules.interaction_classes)
def test_interaction_blocks_keep_the_attributes_that_other_programs_read(name: str) -> None:
    block = modules.interaction_classes[name](
        node_attrs_irreps=o3.Irreps("2x0e"),
        node_feats_irreps=o3.Irreps("4x0e + 4x1o"),
        edge_attrs_irreps=o3.Irreps("0e + 1o"),
        edge_feats_irreps=o3.Irreps("3x0e"),
        target_irreps=o3.Irreps("4x0e + 4x1o"),
        hidden_irreps=o3.Irreps("4x0e"),
        avg_num_neighbors=2.5,
        radial_MLP=[5],
    )
    by_element = "ElementDependent" in name
    widths = block.conv_tp_weights.weights.shape if by_element else block.conv_tp_weights.hs
    assert block.avg_num_neighbors == 2.5 and widths[-1] == block.conv_tp.weight_numel
    assert str(block.linear.irreps_out) == "4x0e+4x1o" and str(block.linear_up.irreps_in) == "4x0e+4x1o"
    assert hasattr(block, "density_fn") == ("Density" in name)
    assert str(block.irreps_out) == "4x0e+4x1o"
    assert block.feeds_product == name.startswith("Real")
    assert block.self_connection_is_returned == ("Residual" in name)


def test_weights_by_element_are_linear_in_the_features_of_the_edge() -> None:
    block = TensorProductWeightsBlock(num_elements=2, num_edge_feats=3, num_feats_out=4)
    edge_feats, one_hot = torch.randn(5, 3), torch.eye(2)[[0, 1, 1, 0, 1]]
    expected = torch.einsum("ef,efk->ek", edge_feats, block.weights[one_hot.argmax(1)])
    torch.testing.assert_close(block(one_hot, edge_feats), expected)
    limit = (6.0 / (3 * 4 + 2 * 4)) ** 0.5  # Xavier's, of a tensor of three axes
    assert 0.5 * limit < float(block.weights.detach().abs().max()) <= limit
    assert "(2, 3, 4)" in repr(block)


def interaction(name: str, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    keywords = {
        "node_attrs_irreps": o3.Irreps("2x0e"),
        "node_feats_irreps": o3.Irreps("4x0e"),
        "edge_attrs_irreps": o3.Irreps("0e + 1o"),
        "edge_feats_irreps": o3.Irreps("3x0e"),
        "target_irreps": o3.Irreps("4x0e + 4x1o"),
        "hidden_irreps": o3.Irreps("4x0e + 4x1o"),
        "avg_num_neighbors": 2.0,
        **changes,
    }
    return modules.interaction_classes[name](**keywords)


@pytest.mark.parametrize(
    "name", [name for name, cls in modules.interaction_classes.items() if not cls.feeds_product]
)
def test_two_body_blocks_are_equivariant_and_divide_by_the_neighbours(name: str) -> None:
    block = interaction(name).double()
    node_attrs = torch.eye(2, dtype=torch.float64)[[0, 1, 0]]
    node_feats = torch.randn(3, 4, dtype=torch.float64)
    edge_index = torch.tensor([[0, 1, 2, 0], [1, 0, 0, 2]])
    edge_feats = torch.randn(4, 3, dtype=torch.float64)
    edge_attrs = torch.randn(4, 4, dtype=torch.float64)
    features = block(node_attrs, node_feats, edge_attrs, edge_feats, edge_index)
    assert features.shape == (3, block.irreps_out.dim)
    turn = -o3.angles_to_matrix(*torch.tensor([0.3, 1.1, -2.0], dtype=torch.float64))
    turned = torch.cat([edge_attrs[:, :1], edge_attrs[:, 1:] @ turn.T], dim=1)
    expected = torch.cat([features[:, :4], (features[:, 4:].reshape(3, 4, 3) @ turn.T).flatten(1)], dim=1)
    torch.testing.assert_close(block(node_attrs, node_feats, turned, edge_feats, edge_index), expected)
    alone = block(node_attrs, node_feats, edge_attrs[:0], edge_feats[:0], edge_index[:, :0])
    assert alone.any() == ("Residual" in name)  # the self connection remains
    block.avg_num_neighbors = 1.0
    torch.testing.assert_close(
        block(node_attrs, node_feats, edge_attrs, edge_feats, edge_index) - alone, 2.0 * (features - alone)
    )


def test_weights_depend_on_the_element_of_the_sender() -> None:
    block = interaction("ResidualElementDependentInteractionBlock")
    node_feats, edge_feats, edge_attrs = torch.randn(2, 4), torch.randn(1, 3), torch.randn(1, 4)
    edge_index = torch.tensor([[0], [1]])

    def message(sender: int, receiver: int) -> torch.Tensor:
        one_hot = torch.eye(2)[[sender, receiver]]
        none = block(one_hot, node_feats, edge_attrs[:0], edge_feats[:0], edge_index[:, :0])
        return (block(one_hot, node_feats, edge_attrs, edge_feats, edge_index) - none)[1]

    torch.testing.assert_close(message(0, 0), message(0, 1))
    assert not torch.allclose(message(0, 0), message(1, 0))


def test_two_body_blocks_have_the_order_of_the_tensor_product() -> None:
    block = interaction("AgnosticNonlinearInteractionBlock", target_irreps=o3.Irreps("2x1o + 3x0e"))
    assert str(block.irreps_out) == "3x0e+2x1o"


@pytest.mark.parametrize("dipole_only", [True, False])
def test_linear_dipole_readout(dipole_only: bool) -> None:
    block = LinearDipoleReadoutBlock("4x0e + 4x1o", dipole_only=dipole_only)
    assert block(torch.randn(5, 16)).shape == (5, 3 if dipole_only else 4)


@pytest.mark.parametrize("gate", ["silu", "tanh", "abs", "None"])
@pytest.mark.parametrize("dipole_only", [True, False])
def test_b10_vectors_are_gated_by_scalars(gate: str, dipole_only: bool) -> None:
    torch.manual_seed(0)
    function = modules.gate_dict[gate]
    block = NonLinearDipoleReadoutBlock("4x0e + 4x1o", "3x0e + 2x1o", function, dipole_only).double()
    features = torch.randn(5, 16, dtype=torch.float64)
    scalars, vectors = features[:, :4], features[:, 4:].reshape(5, 4, 3)
    hidden = 0 if dipole_only else 3
    to_scalars = block.linear_1.weight[: 4 * (hidden + 2)].reshape(4, hidden + 2) / 2.0
    to_vectors = block.linear_1.weight[4 * (hidden + 2) :].reshape(4, 2) / 2.0
    constant = {"silu": 1.6791767923989418, "tanh": 1.5937334472592695, "abs": 1.001110600838467}
    inner = scalars @ to_scalars
    gates = inner if function is None else constant[gate] * function(inner)
    gated = gates[:, hidden:, None] * torch.einsum("nui,uv->nvi", vectors, to_vectors)
    weights = block.linear_2.weight
    expected = torch.einsum("nvi,v->ni", gated, weights[hidden:]) / 2**0.5
    if not dipole_only:
        energy = gates[:, :3] @ weights[:3] / 3**0.5
        expected = torch.cat([energy[:, None], expected], dim=1)
    torch.testing.assert_close(block(features), expected)
