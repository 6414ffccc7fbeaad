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
    LinearReadoutBlock,
    NonLinearReadoutBlock,
    ScaleShiftBlock,
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
    assert block.avg_num_neighbors == 2.5 and block.conv_tp_weights.hs[-1] == block.conv_tp.weight_numel
    assert str(block.linear.irreps_out) == "4x0e+4x1o" and str(block.linear_up.irreps_in) == "4x0e+4x1o"
    assert hasattr(block, "density_fn") == ("Density" in name)
    assert block.self_connection_is_returned == ("Residual" in name)
