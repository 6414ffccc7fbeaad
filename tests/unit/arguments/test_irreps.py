"""Irreps read without e3nn are the ones e3nn reads."""

from itertools import islice

import pytest
from e3nn import o3

from mace.arguments.irreps import feature_irreps, format_irreps, parse_irreps, scalar_irreps, spherical_irreps
from mace.exceptions import InputError

TEXTS = [
    "16x0e",
    "8x1o + 8x0e",
    "3x2e+2x1e + 1o+4x0o+ 5x0e+1o",
    "64x0e+64x0e",
    "2x0y + 2x1y + 2x2y + 2x3y",
    "10x3e+10x10o",
    "0x1o+4x0e",
]


@pytest.mark.parametrize("text", TEXTS)
def test_same_irreps_as_e3nn_in_the_order_of_its_iterator(text):
    order = list(islice(o3.Irrep.iterator(), 30))
    expected = sorted(o3.Irreps(text), key=lambda term: order.index(term.ir))
    assert format_irreps(parse_irreps(text, "--x")) == str(o3.Irreps(expected).simplify())


@pytest.mark.parametrize("text", ["16x0e", "8x1o + 8x0e", "4x2e+4x0e+4x1o"])
def test_natural_parities_are_sorted_as_e3nn_does(text):
    assert format_irreps(parse_irreps(text, "--x")) == str(o3.Irreps(text).sort().irreps.simplify())


@pytest.mark.parametrize("max_L", range(4))
def test_spherical(max_L):
    harmonics = o3.Irreps.spherical_harmonics(max_L)
    assert spherical_irreps(8, max_L) == str((harmonics * 8).sort().irreps.simplify())


@pytest.mark.parametrize("text", ["", "8x", "8x0", "x0e", "8*0e", "8x0e+", "8x0e,8x1o", "-1x0e", "16"])
def test_what_does_not_parse(text):
    with pytest.raises(InputError, match="--hidden_irreps"):
        parse_irreps(text, "--hidden_irreps")


@pytest.mark.parametrize("text", ["8x1o", "8x2e+8x1o", "0x0e+8x1o"])
def test_features_need_scalars(text):
    with pytest.raises(InputError, match="no scalars"):
        feature_irreps(text, "--hidden_irreps")


@pytest.mark.parametrize("text", ["8x0e+8x0o", "8x0e+8x1e"])
def test_features_have_natural_parity(text):
    with pytest.raises(InputError, match="no layer gives"):
        feature_irreps(text, "--hidden_irreps")


def test_features_have_equal_multiplicities():
    with pytest.raises(InputError, match="unequal multiplicities"):
        feature_irreps("8x0e+4x1o", "--hidden_irreps")


@pytest.mark.parametrize("text", ["16x1o", "16x0e+16x1o", "0x0e", "16x0o"])
def test_readouts_are_scalars(text):
    with pytest.raises(InputError, match="scalars only"):
        scalar_irreps(text, "--MLP_irreps")
