"""Bookkeeping of irreps."""

from __future__ import annotations

import pytest
import torch
from e3nn import o3

from mace.exceptions import InputError
from mace.modules.irreps_tools import (
    linear_out_irreps,
    mask_head,
    reshape_irreps,
    tp_out_irreps_with_instructions,
    uniform_multiplicity,
)


def test_paths_are_sorted_by_their_output() -> None:
    irreps_out, instructions = tp_out_irreps_with_instructions(
        o3.Irreps("4x0e + 4x1o"), o3.Irreps("0e + 1o + 2e"), o3.Irreps("4x0e + 4x1o + 4x2e")
    )
    assert str(irreps_out) == "4x0e+4x0e+4x1o+4x1o+4x1o+4x2e+4x2e"
    pairs = [(0, 0), (1, 1), (0, 1), (1, 0), (1, 2), (0, 2), (1, 1)]
    assert instructions == [(i, j, k, "uvu", True) for k, (i, j) in enumerate(pairs)]


def test_odd_parity_comes_first() -> None:
    irreps_out, _ = tp_out_irreps_with_instructions(
        o3.Irreps("2x1o + 2x1e"), o3.Irreps("1o"), o3.Irreps("0e + 0o")
    )
    assert str(irreps_out) == "2x0o+2x0e"


def test_linear_out_irreps() -> None:
    assert str(linear_out_irreps(o3.Irreps("5x1o + 3x0e"), o3.Irreps("8x0e + 4x1o"))) == "4x1o+8x0e"
    with pytest.raises(RuntimeError, match="2e"):
        linear_out_irreps(o3.Irreps("2e"), o3.Irreps("0e"))


def test_reshape_puts_components_of_a_channel_together() -> None:
    irreps = o3.Irreps("2x0e + 2x1o")
    features = torch.arange(8.0).unsqueeze(0)
    assert reshape_irreps(irreps)(features).tolist() == [[[0, 2, 3, 4], [1, 5, 6, 7]]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_b20_mask_keeps_the_columns_of_the_head_and_the_dtype(dtype: torch.dtype) -> None:
    masked = mask_head(torch.ones(2, 4, dtype=dtype), torch.tensor([1, 0]), 2)
    assert masked.tolist() == [[0, 0, 1, 1], [1, 1, 0, 0]] and masked.dtype == dtype


def test_uniform_multiplicity() -> None:
    assert uniform_multiplicity(o3.Irreps("4x0e + 4x1o"), "irreps") == 4
    with pytest.raises(InputError, match="8x1o"):
        uniform_multiplicity(o3.Irreps("4x0e + 8x1o"), "irreps")
