"""Sums, means and spreads of rows that share an index (graph sums over atoms, atom sums over edges)."""

from __future__ import annotations

import torch
from torch import Tensor


def _broadcast(index: Tensor, src: Tensor, dim: int) -> Tensor:
    """The one-dimensional ``index``, stretched to the shape of ``src`` along every dimension but ``dim``."""
    if index.dim() == 1:
        shape = [1] * src.dim()
        shape[dim] = -1
        index = index.view(shape)
    return index.expand_as(src)


def scatter_sum(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> Tensor:
    """Sum the slices of ``src`` that carry the same ``index``.

    Args:
        src: values, any shape.
        index: int64, one-dimensional of length ``src.shape[dim]`` (or the full shape of ``src``).
        dim: the dimension that is summed over.
        out: tensor that the sums are added to, in place; a new one of zeros otherwise.
        dim_size: number of slices of the result; the largest index plus one otherwise.
        reduce: only "sum".

    Returns:
        Tensor with the shape of ``src``, except ``dim_size`` slices along ``dim``; absent indices give zero.
    """
    assert reduce == "sum"
    if dim < 0:
        dim = dim + src.dim()
    if out is None:
        size = list(src.shape)
        if dim_size is not None:
            size[dim] = dim_size
        elif index.numel() == 0:
            size[dim] = 0
        else:
            size[dim] = int(index.max()) + 1
        out = torch.zeros(size, dtype=src.dtype, device=src.device)
    if index.dim() == 1:
        return out.index_add_(dim, index, src)
    return out.scatter_add_(dim, index.expand_as(src), src)


def scatter_mean(
    src: Tensor, index: Tensor, dim: int = -1, out: torch.Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """Mean of the slices of ``src`` that carry the same ``index``; see `scatter_sum`.

    Absent indices give zero.
    """
    if dim < 0:
        dim = dim + src.dim()
    total = scatter_sum(src, index, dim, out, dim_size)
    rows = index if index.dim() == 1 else index.transpose(dim, 0).flatten(1)[:, 0]
    count = scatter_sum(torch.ones_like(rows, dtype=src.dtype), rows, 0, None, total.shape[dim]).clamp(
        min=1.0
    )
    shape = [1] * total.dim()
    shape[dim] = -1
    return total / count.view(shape)


def scatter_std(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    unbiased: bool = True,
) -> Tensor:
    """Standard deviation of the slices of ``src`` that carry the same ``index``.

    The sum of squared deviations is divided by (n - 1, at least 1) + 1e-6 (``unbiased``) or by n + 1e-6.
    Arguments as `scatter_sum`.
    """
    if dim < 0:
        dim = dim + src.dim()
    index = _broadcast(index, src, dim)
    count = scatter_sum(torch.ones_like(src), index, dim, None, dim_size)
    mean = scatter_sum(src, index, dim, None, dim_size) / count.clamp(min=1.0)
    deviation = src - mean.gather(dim, index)
    squares = scatter_sum(deviation * deviation, index, dim, out, dim_size)
    if unbiased:
        count = (count - 1.0).clamp(min=1.0)
    return (squares / (count + 1e-6)).sqrt()
