"""Symmetric contraction: products of a node's features, coupled to equivariant outputs.

Reference: I. Batatia et al., "MACE: Higher Order Equivariant Message Passing Neural Networks for Fast and
Accurate Force Fields", NeurIPS 2022, equations 10-11.

What is computed, for node n of element z, channel c, output component m and correlation nu, with x [D] the
features of one channel:

    out[n, c, m] = sum_{q = 1..nu} sum_k W_q[z, k, c] sum_{i1..iq} U_q[m, i1, ..., iq, k] x[i1] ... x[iq]

It is a polynomial of degree nu in x. Its monomials are split into a "row" factor and a "column" factor (three
factors: one and two), so that the polynomial is a bilinear form between a few products of features, whose
coefficients depend on the element and channel only. Nodes are sorted by element and one batched matrix
product per element evaluates the form: no tensor is larger than nodes x channels x columns. Monomials of the
wrong parity never occur, and columns of odd parity are avoided where a monomial can be split otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from e3nn import o3
from e3nn.util.jit import compile_mode

from mace.exceptions import InputError
from mace.tools.cg import U_matrix_real, symmetric_U_matrix


@lru_cache(maxsize=16)
def _parities(irreps: o3.Irreps) -> np.ndarray:
    """0 (even) or 1 (odd) for the constant 1 and then for every feature, [1 + D]."""
    return np.array([0] + [(1 - ir.p) // 2 for mul, ir in irreps for _ in range(mul * ir.dim)])


@lru_cache(maxsize=16)
def _columns(irreps: o3.Irreps, correlation: int) -> list[tuple[int, ...]]:
    """The larger half of ``correlation`` factors, as sorted tuples of indices into (1, features).

    Of any three factors (1 is even) two have the same parity, so that pairs of even parity suffice when
    columns are pairs.
    """
    size = correlation - correlation // 2
    parity = _parities(irreps)
    every = itertools.combinations_with_replacement(range(len(parity)), size)
    return [column for column in every if size != 2 or sum(parity[list(column)]) % 2 == 0]


def _split(
    monomial: tuple[int, ...], rows: int, columns: dict[tuple[int, ...], int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first way to take a row of ``rows`` factors out of a monomial such that the rest is a column."""
    for row in itertools.combinations(range(len(monomial)), rows):
        column = tuple(factor for place, factor in enumerate(monomial) if place not in row)
        if column in columns:
            return tuple(monomial[place] for place in row), column
    raise AssertionError(f"monomial {monomial} has no column")


@lru_cache(maxsize=16)
def _layout(
    irreps: o3.Irreps, parity: int, correlation: int
) -> tuple[list[tuple[int, ...]], list[tuple[np.ndarray, np.ndarray]]]:
    """Where the entries of U go, for outputs of one parity; U is flattened over its features.

    Returns:
        rows: sorted tuples of indices into (1, features);
        per order: the entries of this parity, and for each the flat index row * number of columns + column.
    """
    columns = {column: index for index, column in enumerate(_columns(irreps, correlation))}
    rows: dict[tuple[int, ...], int] = {}
    moves = []
    for order in range(1, correlation + 1):
        features = 1 + np.indices((irreps.dim,) * order).reshape(order, -1).T
        entries = np.flatnonzero(_parities(irreps)[features].sum(1) % 2 == parity)
        monomials, which = np.unique(np.sort(features[entries], 1), axis=0, return_inverse=True)
        splits = [
            _split((0,) * (correlation - order) + tuple(m), correlation // 2, columns)
            for m in monomials.tolist()
        ]
        targets = np.array(
            [rows.setdefault(row, len(rows)) * len(columns) + columns[column] for row, column in splits],
            dtype=int,
        )
        moves.append((entries, targets[which.reshape(-1)]))
    return list(rows), moves


def _sort_by_element(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Order of the nodes by element [N], nodes per element [Z], (1, features) in that order [1 + D, C, N]."""
    element = y.argmax(dim=1)
    order = torch.argsort(element)
    features = x.index_select(0, order).permute(2, 1, 0)
    ones = torch.ones(1, x.size(1), x.size(0), dtype=x.dtype, device=x.device)
    return order, torch.bincount(element, minlength=y.size(1)), torch.cat([ones, features], dim=0)


def _products(factors: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    """Products of factors [F, C, N] listed in the columns of which [degree, P]: [P, C, N]."""
    product = factors.index_select(0, which[0])
    for degree in range(1, which.size(0)):
        product = product * factors.index_select(0, which[degree])
    return product


@compile_mode("script")
class Contraction(torch.nn.Module):
    """The contraction to one output irrep.

    Args:
        irreps_in: features, C copies of each irrep; a channel has D components.
        irrep_out: the output irrep (a multiplicity is ignored).
        correlation: highest number nu of factors, >= 1.
        internal_weights: False to use ``weights`` instead of creating them.
        num_elements: Z.
        weights: parameters [Z, K_q, C] for q = nu-1 .. 1 and then q = nu, when ``internal_weights`` is False.
        use_reduced_cg: start from a basis of the symmetric couplings, which has fewer elements K.

    State: ``weights_max`` [Z, K_nu, C], ``weights.{i}`` [Z, K_q, C] for q = nu-1 .. 1, buffers
        ``U_matrix_{q}`` [(2l+1), D, ..., D, K_q].
    The stored U matrices fix what the weights mean; loading a state dict takes them over, with as many basis
    elements as there are in it.

    Raises:
        InputError: no product of features has the symmetry of the output.
    """

    def __init__(
        self,
        irreps_in: o3.Irreps,
        irrep_out: o3.Irreps,
        correlation: int,
        internal_weights: bool = True,
        num_elements: int | None = None,
        weights: Sequence[torch.nn.Parameter] | None = None,
        use_reduced_cg: bool = False,
    ) -> None:
        super().__init__()
        irreps_in = o3.Irreps(irreps_in)
        self.irrep_out = o3.Irreps(str(irrep_out))[0].ir
        self.num_features = irreps_in[0].mul
        self.coupling_irreps = o3.Irreps([(1, ir) for _, ir in irreps_in])
        self.correlation = correlation
        for order in range(1, correlation + 1):
            if use_reduced_cg:
                coupling = symmetric_U_matrix(self.coupling_irreps, self.irrep_out, order)
            else:
                coupling = U_matrix_real(self.coupling_irreps, self.irrep_out, order)[-1]
            self.register_buffer(f"U_matrix_{order}", coupling)
        sizes = [self.U_tensors(order).shape[-1] for order in range(correlation, 0, -1)]
        if not any(sizes):
            raise InputError(
                f"no product of up to {correlation} features {self.coupling_irreps} has the symmetry of the "
                f"hidden irrep {self.irrep_out}: raise max_ell or drop it from hidden_irreps"
            )
        if internal_weights:
            drawn = [
                torch.nn.Parameter(torch.randn(num_elements, size, self.num_features) / max(size, 1))
                for size in sizes
            ]
        else:
            assert weights is not None and len(weights) == correlation
            drawn = [weights[-1], *weights[:-1]]
        self.weights_max = drawn[0]
        self.weights = torch.nn.ParameterList(drawn[1:])
        columns = _columns(self.coupling_irreps, correlation)
        rows, _ = _layout(self.coupling_irreps, (1 - self.irrep_out.p) // 2, correlation)
        self.dim, self.num_rows, self.num_columns = self.irrep_out.dim, len(rows), len(columns)
        self.register_buffer("columns", torch.tensor(columns).T.contiguous(), persistent=False)
        self.register_buffer(
            "rows", torch.tensor(rows).reshape(len(rows), -1).T.contiguous(), persistent=False
        )
        self.register_buffer("form", None, persistent=False)
        self._refresh()

    def U_tensors(self, nu: int) -> torch.Tensor:  # noqa: N802 - the name other projects use
        """The coupling tensor of ``nu`` factors."""
        return getattr(self, f"U_matrix_{nu}")

    def form_of(self, couplings: Sequence[torch.Tensor]) -> torch.Tensor:
        """Couplings as bilinear forms between the rows and the columns.

        Args:
            couplings: for 1 .. nu factors, [2l+1, D ** factors, K].

        Returns:
            [K_nu + ... + K_1, (2l+1) * rows * columns], float64 on the CPU.
        """
        _, moves = _layout(self.coupling_irreps, (1 - self.irrep_out.p) // 2, self.correlation)
        forms = []
        for coupling, move in reversed(list(zip(couplings, moves, strict=True))):
            entries, targets = (torch.from_numpy(array) for array in move)
            source = coupling.cpu().double()[:, entries]
            form = source.new_zeros(self.dim, self.num_rows * self.num_columns, coupling.shape[-1])
            forms.append(form.index_add_(1, targets, source).flatten(0, 1).T)
        return torch.cat(forms)

    def _refresh(self) -> None:
        """Derive from the U matrices what the evaluation needs; the result depends on nothing else."""
        if not self.U_matrix_1.is_meta:
            orders = range(1, self.correlation + 1)
            couplings = [self.U_tensors(order) for order in orders]
            flat = [
                u.reshape(self.dim, u.shape[-2] ** order, u.shape[-1])
                for order, u in zip(orders, couplings, strict=True)
            ]
            self.form = self.form_of(flat).to(self.U_matrix_1)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        self._take_sizes(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self._refresh()

    def _take_sizes(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Make room for the basis elements of a state dict, if its U matrices and weights agree on them."""
        for index in range(self.correlation):
            weight, order = f"weights.{index - 1}" if index else "weights_max", self.correlation - index
            stored = [state_dict.get(prefix + name) for name in (f"U_matrix_{order}", weight)]
            coupling, own = self.U_tensors(order), self.get_parameter(weight)
            if not all(isinstance(tensor, torch.Tensor) for tensor in stored):
                continue
            wanted = (*coupling.shape[:-1], size := stored[0].shape[-1]), (own.shape[0], size, own.shape[2])
            if size != coupling.shape[-1] and tuple(tuple(tensor.shape) for tensor in stored) == wanted:
                coupling.data = coupling.new_empty(wanted[0])
                own.data = own.data.new_empty(wanted[1])

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Contraction:
        super()._apply(fn, recurse)
        self._refresh()
        return self

    def contract(self, factors: torch.Tensor, columns: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """The contraction of nodes that are sorted by element.

        Args:
            factors: 1 and the features, [1 + D, C, N].
            columns: the column factors, [P, C, N].
            counts: number of nodes of each element.

        Returns:
            [N, C, 2l+1]
        """
        weights = [self.weights_max]
        for weight in self.weights:
            weights.append(weight)
        # [Z, C, K]
        weight_per_element = torch.cat(weights, dim=1).transpose(1, 2)
        parts = torch.split(columns.transpose(0, 1), counts, dim=2)
        sums: list[torch.Tensor] = []
        for element, part in enumerate(parts):
            if part.size(2) > 0:
                form = torch.mm(weight_per_element[element], self.form).view(
                    factors.size(1), -1, self.num_columns
                )
                sums.append(torch.bmm(form, part))
        by_row = torch.cat(sums, dim=2).view(factors.size(1), self.dim, -1, factors.size(2))
        if self.rows.size(0) == 0:
            return by_row.squeeze(2).permute(2, 0, 1)
        rows = _products(factors, self.rows).transpose(0, 1).unsqueeze(1)
        return (by_row * rows).sum(dim=2).permute(2, 0, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Features x [N, C, D] and element one-hot y [N, Z] to [N, C * (2l+1)]."""
        order, counts, factors = _sort_by_element(x, y)
        nodes_per_element: list[int] = counts.tolist()
        out = self.contract(factors, _products(factors, self.columns), nodes_per_element)
        return out.flatten(1).index_select(0, torch.argsort(order))


@compile_mode("script")
class SymmetricContraction(torch.nn.Module):
    """Contractions to every block of the output irreps.

    There are no normalisation factors other than those inside the coupling tensors.

    Args:
        irreps_in: features, C copies of each irrep.
        irreps_out: outputs, C copies of each irrep.
        correlation: highest number of factors.
        irrep_normalization, path_normalization: only "component" and "element" exist.
        internal_weights, shared_weights: only True (or None, the same) exists.
        num_elements: number of elements, each with its own weights.
        use_reduced_cg: see `Contraction`.

    Raises:
        InputError: an output irrep that no product of the features has.
    """

    def __init__(
        self,
        irreps_in: o3.Irreps,
        irreps_out: o3.Irreps,
        correlation: int,
        irrep_normalization: str = "component",
        path_normalization: str = "element",
        internal_weights: bool | None = None,
        shared_weights: bool | None = None,
        num_elements: int | None = None,
        use_reduced_cg: bool = False,
    ) -> None:
        super().__init__()
        assert (irrep_normalization, path_normalization) == ("component", "element")
        assert internal_weights in (None, True) and shared_weights in (None, True)
        self.irreps_in, self.irreps_out = o3.Irreps(irreps_in), o3.Irreps(irreps_out)
        self.internal_weights = self.shared_weights = True
        self.contractions = torch.nn.ModuleList(
            Contraction(
                self.irreps_in,
                o3.Irreps([block]),
                correlation,
                num_elements=num_elements,
                use_reduced_cg=use_reduced_cg,
            )
            for block in self.irreps_out
        )
        self.register_buffer("columns", self.contractions[0].columns, persistent=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Features x [N, C, D] and element one-hot y [N, Z] to [N, irreps_out.dim]."""
        order, counts, factors = _sort_by_element(x, y)
        nodes_per_element: list[int] = counts.tolist()
        columns = _products(factors, self.columns)
        outputs: list[torch.Tensor] = []
        for contraction in self.contractions:
            outputs.append(contraction.contract(factors, columns, nodes_per_element).flatten(1))
        return torch.cat(outputs, dim=1).index_select(0, torch.argsort(order))
