"""Coupling tensors of the symmetric contraction, with signs that do not depend on the installed e3nn.

Reference: I. Batatia et al., "MACE: Higher Order Equivariant Message Passing Neural Networks for Fast and
Accurate Force Fields", NeurIPS 2022, equations 9-11 (generalised Clebsch-Gordan coefficients).
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import permutations

import numpy as np
import torch
from e3nn import o3

# e3nn 0.4.4 and later releases disagree about the sign of the Wigner 3j symbols of these triples in every
# order (compared symbol by symbol for all l <= 11; triples with an even sum agree). Weights of a symmetric
# contraction mean something only together with the signs, and released models were trained with 0.4.4's, so
# those are ours.
# fmt: off
_SIGN_DIFFERS = frozenset(
    [
        (1, 2, 2), (1, 3, 3), (1, 4, 4), (1, 5, 5), (1, 6, 6), (1, 7, 7), (1, 8, 8), (1, 9, 9),
        (1, 10, 10), (1, 11, 11), (3, 4, 6), (3, 5, 7), (3, 6, 8), (3, 7, 9), (3, 8, 10), (3, 9, 11),
        (4, 4, 5), (4, 5, 6), (4, 6, 7), (4, 7, 8), (4, 8, 9), (4, 9, 10), (4, 10, 11), (5, 5, 5),
        (5, 6, 6), (5, 6, 10), (5, 7, 7), (5, 7, 11), (5, 8, 8), (5, 9, 9), (5, 10, 10), (5, 11, 11),
        (6, 6, 9), (6, 7, 10), (6, 8, 11), (7, 7, 9), (7, 8, 10), (7, 9, 11), (8, 8, 9), (8, 9, 10),
        (8, 10, 11), (9, 9, 9), (9, 10, 10), (9, 11, 11),
    ]
)
# fmt: on


@cache
def _installed_signs_differ() -> bool:
    """Whether the installed e3nn's signs are not those of 0.4.4, read off a symbol that changed."""
    return bool(o3.wigner_3j(1, 2, 2, dtype=torch.float64)[0, 0, 1] < 0)


@cache
def wigner_3j(l1: int, l2: int, l3: int) -> np.ndarray:
    """Real Wigner 3j symbol with the signs of e3nn 0.4.4.

    Returns:
        [2 l1 + 1, 2 l2 + 1, 2 l3 + 1] in float64, Frobenius norm 1.
    """
    symbol = o3.wigner_3j(l1, l2, l3, dtype=torch.float64).numpy()
    return -symbol if _installed_signs_differ() and tuple(sorted((l1, l2, l3))) in _SIGN_DIFFERS else symbol


def U_matrix_real(  # noqa: N802 - the name other projects import
    irreps_in: o3.Irreps | str,
    irreps_out: o3.Irreps | o3.Irrep | str,
    correlation: int,
    normalization: str = "component",
    filter_ir_mid: list[o3.Irrep] | None = None,
    dtype: torch.dtype | None = None,
) -> list[o3.Irrep | torch.Tensor]:
    """Bases of the equivariant maps from ``correlation`` copies of a feature vector to each output irrep.

    Coupling is from the left, ((1 x 2) x 3) ..., so a basis element is a sequence of intermediate irreps;
    elements are ordered by that sequence, the first intermediate being the slowest. With correlation 4 and no
    filter given, only intermediates of natural parity are kept (0e, 1o, 2e, ... 11o), as in released models.

    Args:
        irreps_in: the feature vector of one channel, dimension D.
        irreps_out: one irrep, or several.
        correlation: number of factors nu >= 1.
        normalization: "component" (factor sqrt(2 l + 1) of the coupled irrep at every step) or "norm" (those
            of its two factors).
        filter_ir_mid: irreps allowed as intermediate and final result of a step; None for all.
        dtype: of the tensors; torch's default if None.

    Returns:
        Irrep and tensor in turn for every output irrep, so that ``[-1]`` is the tensor of the last one: [2 l
        + 1, D, ..., D, K] with nu axes of size D and K basis elements (possibly none), without the first axis
        for scalars.
    """
    irreps_in = o3.Irreps(irreps_in)
    if correlation == 4 and filter_ir_mid is None:
        filter_ir_mid = [o3.Irrep(degree, (-1) ** degree) for degree in range(12)]
    allowed = None if filter_ir_mid is None else frozenset(o3.Irrep(ir) for ir in filter_ir_mid)
    result: list[o3.Irrep | torch.Tensor] = []
    for _, ir in o3.Irreps(str(irreps_out)):
        basis = _basis(irreps_in, ir, correlation, normalization, allowed)
        result += [ir, torch.tensor(basis, dtype=dtype or torch.get_default_dtype())]
    return result


def symmetric_U_matrix(  # noqa: N802 - beside U_matrix_real
    irreps_in: o3.Irreps | str,
    irreps_out: o3.Irrep | str,
    correlation: int,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """An orthonormal basis of the equivariant maps that do not depend on the order of their factors.

    A contraction multiplies a feature vector with itself, so that only this part of `U_matrix_real` counts.
    It spans the same functions with fewer basis elements. Arguments and result as there, with the tensor of
    the one output irrep alone; K is the dimension of the symmetric part.
    """
    basis = _symmetric_basis(o3.Irreps(irreps_in), o3.Irreps(str(irreps_out))[0].ir, correlation)
    return torch.tensor(basis, dtype=dtype or torch.get_default_dtype())


@lru_cache(maxsize=64)
def _symmetric_basis(irreps_in: o3.Irreps, ir_out: o3.Irrep, correlation: int) -> np.ndarray:
    full = U_matrix_real(irreps_in, ir_out, correlation, dtype=torch.float64)[-1].numpy()
    first = full.ndim - 1 - correlation  # the axis of the first factor
    orders = list(permutations(range(first, first + correlation)))
    symmetric = sum(full.transpose(*range(first), *order, full.ndim - 1) for order in orders) / len(orders)
    flat = symmetric.reshape(-1, full.shape[-1])
    # Gram-Schmidt in the order of the couplings: each adds what the ones before lack, many add nothing.
    kept, columns = 0, np.empty_like(flat)
    for column in flat.T:
        rest = column.copy()
        for _ in range(2):  # the second pass removes what rounding left
            rest -= columns[:, :kept] @ (columns[:, :kept].T @ rest)
        size = np.linalg.norm(rest)
        if size > 1e-8:  # couplings have norms of order one
            columns[:, kept] = rest / size
            kept += 1
    return columns[:, :kept].reshape(*full.shape[:-1], kept)


@lru_cache(maxsize=64)
def _basis(
    irreps_in: o3.Irreps,
    ir_out: o3.Irrep,
    correlation: int,
    normalization: str,
    allowed: frozenset[o3.Irrep] | None,
) -> np.ndarray:
    """Stacked coupling tensors of one output irrep; layers of a model share them, hence the cache."""
    couplings = _couplings(irreps_in, correlation, frozenset([ir_out]), normalization, allowed)
    if couplings:
        basis = np.stack([tensor for _, tensor in couplings], axis=-1)
    else:
        basis = np.zeros((ir_out.dim,) + (irreps_in.dim,) * correlation + (0,))
    return basis[0] if ir_out == o3.Irrep("0e") else basis


def _couplings(
    irreps_in: o3.Irreps,
    order: int,
    wanted: frozenset[o3.Irrep],
    normalization: str,
    allowed: frozenset[o3.Irrep] | None,
) -> list[tuple[o3.Irrep, np.ndarray]]:
    """(irrep, [2 l + 1, D, ..., D]) of every coupling of ``order`` factors to a wanted irrep.

    They are sorted by irrep, and for one irrep in the order in which they arise.
    """
    copies = [
        (ir, irreps_in.slices()[index], copy)
        for index, (mul, ir) in enumerate(irreps_in)
        for copy in range(mul)
    ]
    blocks = [
        (ir, slice(where.start + copy * ir.dim, where.start + (copy + 1) * ir.dim))
        for ir, where, copy in copies
    ]
    if order == 1:
        rows = np.eye(irreps_in.dim)
        couplings = [(ir, rows[columns]) for ir, columns in blocks if ir in wanted]
    else:
        # Only what can still reach a wanted irrep is computed: this is what keeps a model's start-up short.
        wanted = wanted if allowed is None else wanted & allowed
        reachable = frozenset(left for ir in wanted for block, _ in blocks for left in ir * block)
        couplings = [
            (ir_out, _couple(left, ir_left, ir, ir_out, normalization, columns, irreps_in.dim))
            for ir_left, left in _couplings(irreps_in, order - 1, reachable, normalization, allowed)
            for ir, columns in blocks
            for ir_out in ir_left * ir
            if ir_out in wanted
        ]
    return sorted(couplings, key=lambda coupling: (coupling[0].l, coupling[0].p))


def _couple(
    left: np.ndarray,
    ir_left: o3.Irrep,
    ir: o3.Irrep,
    ir_out: o3.Irrep,
    normalization: str,
    columns: slice,
    dim: int,
) -> np.ndarray:
    """One more factor: [2 l_left + 1, D, ...] -> [2 l_out + 1, D, ..., D], zero outside its columns."""
    symbol = wigner_3j(ir_out.l, ir_left.l, ir.l) * np.sqrt(
        ir_out.dim if normalization == "component" else ir_left.dim * ir.dim
    )
    tensor = np.zeros((ir_out.dim, *left.shape[1:], dim))
    tensor[..., columns] = np.einsum("oln,l...->o...n", symbol, left)
    return tensor
