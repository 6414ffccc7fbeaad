"""Coupling tensors: signs, order and shapes against stored models, equivariance, dtype."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from e3nn import o3

from mace.tools import cg
from mace.tools.cg import U_matrix_real, reduced_U_matrix, wigner_3j
from mace.tools.torch_tools import default_dtype
from tests.data.reference.load import cases
from tests.reference import case, state_dict
from tests.tolerances import relative

# Last-axis entries whose sign differs between e3nn 0.4.4 and 0.5 on, by (max_ell, output), for three factors.
COLUMNS_OF_OTHER_SIGN = {
    (2, "1o"): [12],
    (2, "2e"): [7],
    (3, "1o"): [17, 18, 21, 22, 44, 46],
    (3, "2e"): [16, 20, 22, 23, 25, 53, 55],
}
E3NN_044 = ("ssm_e3nn044_corr3", "m16_ssm_corr3", "m16_mace_soft_zbl", "m16_ssm_reduced_cg")
NUMBERS = {
    (1, "0e"): [1, 2, 4],
    (1, "1o"): [1, 2, 6],
    (2, "0e"): [1, 3, 11],
    (2, "1o"): [1, 4, 21],
    (2, "2e"): [1, 4, 23],
    (3, "0e"): [1, 4, 23],
    (3, "1o"): [1, 6, 51],
    (3, "2e"): [1, 7, 65],
    (3, "3o"): [1, 6, 65],
}


def coupling(max_ell: int, irrep: str, correlation: int) -> torch.Tensor:
    return U_matrix_real(o3.Irreps.spherical_harmonics(max_ell), irrep, correlation, dtype=torch.float64)[-1]


def stored(name: str) -> list[tuple[int, str, torch.Tensor]]:
    """Correlation, output irrep and tensor of every coupling tensor of a case."""
    found = []
    for key, value in state_dict(name).items():
        if "U_matrix_" in key:
            correlation = int(key[-1])
            degree = 0 if value.dim() == correlation + 1 else (len(value) - 1) // 2
            found.append((correlation, f"{degree}{'eo'[degree % 2]}", value))
    return found


@pytest.mark.upstream
@pytest.mark.parametrize("name", [name for name in cases() if stored(name)])
def test_b14_signs_are_those_of_e3nn_044_whatever_is_installed(name):
    max_ell = case(name)["config"]["args"]["max_ell"]
    for correlation, irrep, tensor in stored(name):
        signs = torch.ones(tensor.shape[-1], dtype=torch.float64)
        if name not in E3NN_044 and correlation == 3:
            signs[COLUMNS_OF_OTHER_SIGN.get((max_ell, irrep), [])] = -1
        torch.testing.assert_close(
            coupling(max_ell, irrep, correlation) * signs, tensor, rtol=0, atol=relative("coupling")
        )


@pytest.mark.parametrize(("max_ell", "irrep"), NUMBERS)
def test_number_of_couplings(max_ell, irrep):
    dim = (max_ell + 1) ** 2
    for order, number in enumerate(NUMBERS[max_ell, irrep], start=1):
        components = () if irrep == "0e" else (o3.Irrep(irrep).dim,)
        assert coupling(max_ell, irrep, order).shape == (*components, *[dim] * order, number)


def test_correlation_four_keeps_intermediates_of_natural_parity():
    natural = [o3.Irrep(degree, (-1) ** degree) for degree in range(12)]
    irreps = o3.Irreps.spherical_harmonics(2)
    default, filtered, every = (
        U_matrix_real(irreps, "1o", 4, filter_ir_mid=chosen)[-1].shape[-1]
        for chosen in (
            None,
            natural,
            [o3.Irrep(degree, parity) for degree in range(12) for parity in (-1, 1)],
        )
    )
    assert default == filtered < every


@pytest.mark.parametrize(("irrep", "correlation"), [("0e", 3), ("1o", 3), ("2e", 2), ("1o", 4)])
def test_equivariant(irrep, correlation):
    irreps, out = o3.Irreps.spherical_harmonics(2), o3.Irreps(irrep)
    couplings = coupling(2, irrep, correlation)
    couplings = couplings if irrep != "0e" else couplings.unsqueeze(0)
    with default_dtype("float64"):
        transformation = -o3.rand_matrix()
        before, after = irreps.D_from_matrix(transformation), out.D_from_matrix(transformation)

    def evaluate(x):
        value = couplings
        for _ in range(correlation):
            value = torch.tensordot(value, x, ([1], [0]))
        return value

    x = torch.randn(irreps.dim, dtype=torch.float64)
    torch.testing.assert_close(evaluate(before @ x), after @ evaluate(x), rtol=0, atol=1e-11)


def test_several_outputs_in_turn():
    result = U_matrix_real("0e + 1o", "0e + 1o", 2)
    assert result[0] == o3.Irrep("0e") and result[2] == o3.Irrep("1o")
    assert result[1].shape == (4, 4, 2) and result[3].shape == (3, 4, 4, 2)


def test_norm_normalization_counts_the_factors():
    component, norm = (
        U_matrix_real("0e + 1o", "0e", 2, normalization=name)[-1] for name in ("component", "norm")
    )
    torch.testing.assert_close(norm[1:, 1:], 3 * component[1:, 1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_what_is_asked_for(dtype):
    assert U_matrix_real("0e + 1o", "1o", 2, dtype=dtype)[-1].dtype == dtype


def test_a_result_can_be_changed_without_changing_the_next():
    U_matrix_real("0e + 1o", "0e", 2, dtype=torch.float64)[-1].zero_()
    assert U_matrix_real("0e + 1o", "0e", 2, dtype=torch.float64)[-1].any()


def test_impossible_output_has_no_couplings():
    assert coupling(0, "1o", 3).shape == (3, 1, 1, 1, 0)


def test_wigner_3j_is_e3nn_044s():
    """A few components as release 0.4.4 has them: two triples that changed later, two that did not."""
    assert wigner_3j(1, 2, 2)[0, 0, 1] == pytest.approx(0.18257418583505536)
    assert wigner_3j(2, 2, 1)[0, 1, 0] == pytest.approx(0.18257418583505536)
    for degrees in ((1, 1, 1), (1, 1, 2)):
        np.testing.assert_array_equal(
            wigner_3j(*degrees), o3.wigner_3j(*degrees, dtype=torch.float64).numpy()
        )


def test_every_triple_of_the_table_is_sorted_and_couples():
    for l1, l2, l3 in cg._SIGN_DIFFERS:
        assert l1 <= l2 <= l3 <= l1 + l2 and (l1 + l2 + l3) % 2 == 1


# Independent symmetric couplings, by (max_ell, output); mace-torch has the same for max_ell 2.
REDUCED_NUMBERS = {
    (1, "0e"): [1, 2, 2],
    (1, "1o"): [1, 1, 2],
    (2, "0e"): [1, 3, 5],
    (2, "1o"): [1, 2, 5],
    (2, "2e"): [1, 3, 6],
    (3, "1o"): [1, 3, 12],
}


@pytest.mark.parametrize(("max_ell", "irrep"), REDUCED_NUMBERS)
def test_reduced_couplings_span_the_symmetric_part_and_no_more(max_ell, irrep):
    irreps = o3.Irreps.spherical_harmonics(max_ell)
    for order, number in enumerate(REDUCED_NUMBERS[max_ell, irrep], start=1):
        reduced = reduced_U_matrix(irreps, irrep, order, dtype=torch.float64)
        full = coupling(max_ell, irrep, order)
        assert reduced.shape == (*full.shape[:-1], number)
        first = full.dim() - 1 - order  # the first axis of a factor
        axes = [
            (*range(first), *(first + place for place in places), full.dim() - 1)
            for places in itertools.permutations(range(order))
        ]
        for permutation in axes:
            torch.testing.assert_close(reduced.permute(permutation), reduced, rtol=0, atol=1e-14)
        symmetric = (sum(full.permute(permutation) for permutation in axes) / len(axes)).flatten(0, -2)
        columns = reduced.flatten(0, -2)
        dim = o3.Irrep(irrep).dim
        torch.testing.assert_close(columns.T @ columns, dim * torch.eye(number, dtype=torch.float64))
        torch.testing.assert_close(columns @ (columns.T @ symmetric) / dim, symmetric, rtol=0, atol=1e-13)


def test_reduced_couplings_have_the_dtype_that_is_asked_for():
    irreps = o3.Irreps.spherical_harmonics(1)
    assert reduced_U_matrix(irreps, "0e", 2, dtype=torch.float32).dtype == torch.float32
    assert reduced_U_matrix(irreps, "0e", 2).dtype == torch.get_default_dtype()
