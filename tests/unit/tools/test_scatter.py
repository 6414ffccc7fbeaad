"""Sums, means and spreads by index."""

from __future__ import annotations

import pytest
import torch

from mace.tools.scatter import scatter_mean, scatter_std, scatter_sum

VALUES = torch.tensor([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0], [2.0, 2.0]], dtype=torch.float64)
INDEX = torch.tensor([0, 2, 2, 2])


def test_sum_fills_absent_rows_with_zero() -> None:
    assert scatter_sum(VALUES, INDEX, 0, dim_size=4).tolist() == [[1, 2], [0, 0], [12, 18], [0, 0]]
    assert scatter_sum(VALUES, INDEX, 0).shape == (3, 2)


def test_sum_along_the_last_dimension_and_with_a_full_index() -> None:
    assert scatter_sum(VALUES.T, INDEX).tolist() == [[1, 0, 12], [2, 0, 18]]
    full = INDEX.unsqueeze(1).expand(4, 2)
    assert scatter_sum(VALUES, full, 0).tolist() == [[1, 2], [0, 0], [12, 18]]


def test_sum_adds_to_a_given_tensor() -> None:
    out = torch.ones(3, 2, dtype=torch.float64)
    assert scatter_sum(VALUES, INDEX, 0, out) is out
    assert out.tolist() == [[2, 3], [1, 1], [13, 19]]


def test_nothing_to_sum() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    assert scatter_sum(VALUES[:0], empty, 0).shape == (0, 2)
    assert scatter_sum(VALUES[:0], empty, 0, dim_size=2).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("index", [INDEX, INDEX.unsqueeze(1).expand(4, 2)])
def test_mean_and_std(index: torch.Tensor) -> None:
    assert scatter_mean(VALUES, index, 0, dim_size=4).tolist() == [[1, 2], [0, 0], [4, 6], [0, 0]]
    expected = (VALUES[1:].sub(VALUES[1:].mean(0)).square().sum(0) / (2 + 1e-6)).sqrt()
    assert torch.allclose(scatter_std(VALUES, index, 0)[2], expected, rtol=1e-14, atol=0.0)
    assert not scatter_std(VALUES, index, 0)[:2].any()


@pytest.mark.parametrize("function", [scatter_sum, scatter_mean, scatter_std])
def test_torchscript_and_dtype(function) -> None:
    scripted = torch.jit.script(function)
    assert torch.equal(scripted(VALUES, INDEX, 0), function(VALUES, INDEX, 0))
    assert function(VALUES.float(), INDEX, 0).dtype == torch.float32
