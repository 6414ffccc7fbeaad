"""Radial functions against their formulas, written out for numpy."""

from __future__ import annotations

import math
from collections.abc import Callable

import ase.data
import e3nn.util.jit
import numpy as np
import pytest
import torch

from mace.exceptions import InputError
from mace.modules.blocks import RadialEmbeddingBlock
from mace.modules.radial import (
    AgnesiTransform,
    BesselBasis,
    ChebychevBasis,
    GaussianBasis,
    LegacySoftTransform,
    PolynomialCutoff,
    SoftTransform,
    ZBLBasis,
)
from mace.tools.torch_tools import default_dtype
from tests.harness import run
from tests.tolerances import relative

R_MAX = 4.5
X = np.array([[0.4], [1.1], [2.7], [4.4]])
ELEMENTS = torch.tensor([1, 8])
# atoms O, H, H; edges O-H, H-O, H-H, O-O
EDGES = torch.tensor([[0, 1, 1, 0], [1, 0, 2, 0]])
ONE_HOT = torch.eye(2)[[1, 0, 0]]
CHARGES = np.array([[8.0, 1.0], [1.0, 8.0], [1.0, 1.0], [8.0, 8.0]])
RADII = ase.data.covalent_radii[CHARGES.astype(int)].sum(1, keepdims=True)


def envelope(u: np.ndarray, p: int) -> np.ndarray:
    inside = 1 - (p + 1) * (p + 2) / 2 * u**p + p * (p + 2) * u ** (p + 1) - p * (p + 1) / 2 * u ** (p + 2)
    return np.where(u < 1, inside, 0.0)


def agnesi(x: np.ndarray) -> np.ndarray:
    s = 2.0 * x / RADII
    return 1.0 / (1.0 + 1.0805 * s**0.9183 / (1.0 + s ** (0.9183 - 4.5791)))


def soft(x: np.ndarray) -> np.ndarray:
    p_0, p_1 = 0.75 * RADII, 4 / 3 * RADII
    return p_0 + (x - p_0) * (1 + np.tanh(4.0 / (p_1 - p_0) * (x - (p_0 + p_1) / 2))) / 2


def legacy_soft(x: np.ndarray) -> np.ndarray:
    s = 4.0 * x / RADII
    return x + np.tanh(-s - 0.2 * s**3) / 2 + 0.5


BASES: list[tuple[Callable[[], torch.nn.Module], Callable[[np.ndarray], np.ndarray]]] = [
    (
        lambda: BesselBasis(R_MAX, 5),
        lambda x: math.sqrt(2 / R_MAX) * np.sin(np.arange(1, 6) * math.pi * x / R_MAX) / x,
    ),
    (
        lambda: GaussianBasis(R_MAX, 5),
        lambda x: np.exp(-((x - np.linspace(0, R_MAX, 5)) ** 2) / 2 / (R_MAX / 4) ** 2),
    ),
    (lambda: ChebychevBasis(R_MAX, 5), lambda x: np.cos(np.arange(1, 6) * np.arccos(2 * x / R_MAX - 1))),
    (lambda: PolynomialCutoff(R_MAX, 5), lambda x: envelope(x / R_MAX, 5)),
]
TRANSFORMS = [(AgnesiTransform, agnesi), (SoftTransform, soft), (LegacySoftTransform, legacy_soft)]


def built(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    with default_dtype("float64"):
        return make()


def assert_same(ours: torch.Tensor, expected: np.ndarray) -> None:
    assert ours.dtype == torch.float64
    np.testing.assert_allclose(
        ours.detach().numpy(), expected, rtol=relative("linear"), atol=relative("linear")
    )


@pytest.mark.parametrize(("make", "formula"), BASES)
def test_basis(make, formula) -> None:
    module = built(make)
    for function in (module, e3nn.util.jit.compile(built(make))):
        assert_same(function(torch.from_numpy(X)), formula(X))
    assert repr(module)


@pytest.mark.parametrize(("make", "formula"), TRANSFORMS)
def test_transform(make, formula) -> None:
    module = built(make)
    for function in (module, e3nn.util.jit.compile(built(make))):
        assert_same(function(torch.from_numpy(X), ONE_HOT, EDGES, ELEMENTS), formula(X))
    assert repr(module)


def test_zbl_sums_the_screened_repulsion_on_the_receivers() -> None:
    x = np.array([[0.4], [0.7], [0.5], [0.9]])
    z_u, z_v = CHARGES[:, :1], CHARGES[:, 1:]
    t = x * (z_u**0.3 + z_v**0.3) / (0.4543 * 0.529)
    screening = sum(
        c * np.exp(-b * t)
        for c, b in zip((0.1818, 0.5099, 0.2802, 0.02817), (3.2, 0.9423, 0.4028, 0.2016), strict=True)
    )
    on_edges = 0.5 * 14.3996 * z_u * z_v / x * screening * envelope(x / RADII, 6)
    expected = [on_edges[1, 0] + on_edges[3, 0], on_edges[0, 0], on_edges[2, 0]]
    module = built(ZBLBasis)
    for function in (module, e3nn.util.jit.compile(built(ZBLBasis))):
        assert_same(function(torch.from_numpy(x), ONE_HOT, EDGES, ELEMENTS), np.array(expected))
    assert repr(module)


def test_zbl_compiles_before_any_other_class(tmp_path) -> None:
    compiles = (
        "from e3nn.util.jit import compile; from mace.modules.radial import ZBLBasis; compile(ZBLBasis())"
    )
    run(["-c", compiles], tmp_path).succeeded()


def test_zbl_takes_its_cutoff_from_the_radii() -> None:
    with pytest.warns(DeprecationWarning, match="r_max"):
        ZBLBasis(r_max=5.0)


def test_cutoff_and_its_first_two_derivatives_vanish_at_the_end() -> None:
    x = torch.tensor([R_MAX - 1e-9], dtype=torch.float64, requires_grad=True)
    value = built(lambda: PolynomialCutoff(R_MAX, 6))(x)
    for _ in range(2):
        assert value.detach().abs() < relative("cutoff")
        (value,) = torch.autograd.grad(value, x, create_graph=True)
    assert value.detach().abs() < relative("cutoff")


def test_b13_chebyshev_basis_is_bounded_unless_the_old_one_is_asked_for() -> None:
    x = torch.tensor([[2.0], [4.0]], dtype=torch.float64, requires_grad=True)
    assert built(lambda: ChebychevBasis(R_MAX, 8))(x).abs().max() <= 1.0
    old = built(lambda: ChebychevBasis(R_MAX, 3, rescale=False))(x)
    assert old.tolist() == [[2.0, 7.0, 26.0], [4.0, 31.0, 244.0]]
    assert not old.requires_grad  # forces of models made by MACE do not contain its derivative


@pytest.mark.parametrize(
    "make", [lambda: BesselBasis(R_MAX, 4, trainable=True), lambda: AgnesiTransform(trainable=True)]
)
def test_trainable_coefficients(make) -> None:
    assert list(make().parameters())


def test_embedding_cuts_off_the_plain_distance() -> None:
    block = built(lambda: RadialEmbeddingBlock(R_MAX, 5, 6, distance_transform="Agnesi"))
    output = block(torch.from_numpy(X), ONE_HOT, EDGES, ELEMENTS)
    assert_same(output, BASES[0][1](agnesi(X)) * envelope(X / R_MAX, 6))
    assert block.out_dim == output.shape[1] == 5


@pytest.mark.parametrize("names", [{"radial_type": "fourier"}, {"distance_transform": "Tersoff"}])
def test_embedding_refuses_unknown_names(names: dict[str, str]) -> None:
    with pytest.raises(InputError, match=next(iter(names.values()))):
        RadialEmbeddingBlock(R_MAX, 5, 6, **names)
