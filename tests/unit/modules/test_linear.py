"""Linear maps against e3nn's, which are the slow and obvious version: same names, shapes and numbers."""

from __future__ import annotations

import e3nn.util.jit
import pytest
import torch
from e3nn import o3

from mace.modules._linear import ElementLinear, Linear
from tests.tolerances import relative

IRREPS = [
    ("8x0e + 8x1o", "8x0e + 8x1o"),
    (
        "4x0e + 4x0e + 4x1o + 4x1o + 4x1o + 4x2e",
        "4x0e + 4x1o + 4x2e + 4x3o",
    ),  # merged inputs, an empty output
    ("3x0e + 2x1o + 5x0e", "2x0e + 2x0e + 3x1o"),  # blocks of one irrep that are not neighbours, two goals
    ("4x0e", "1x1o"),  # nothing is connected
    ("16x0e", "1x0e"),
]
ELEMENTS = 3


def pair(irreps_in: str, irreps_out: str, with_elements: bool) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Ours and e3nn's, in float64 with the same weights."""
    if with_elements:
        attributes = f"{ELEMENTS}x0e"
        ours = ElementLinear(irreps_in, attributes, irreps_out)
        theirs = o3.FullyConnectedTensorProduct(irreps_in, attributes, irreps_out)
    else:
        ours, theirs = Linear(irreps_in, irreps_out), o3.Linear(irreps_in, irreps_out)
    ours, theirs = ours.double(), theirs.double()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def inputs(irreps_in: str, with_elements: bool, one_hot: bool = True) -> list[torch.Tensor]:
    features = torch.randn(7, o3.Irreps(irreps_in).dim, dtype=torch.float64, requires_grad=True)
    if not with_elements:
        return [features]
    attributes = torch.eye(ELEMENTS, dtype=torch.float64)[[0, 2, 2, 0, 0, 2, 0]]  # element 1 does not occur
    return [features, attributes if one_hot else torch.randn(7, ELEMENTS, dtype=torch.float64)]


@pytest.mark.parametrize("scripted", [False, True])
@pytest.mark.parametrize("with_elements", [False, True])
@pytest.mark.parametrize(("irreps_in", "irreps_out"), IRREPS)
def test_equal_to_e3nn(irreps_in: str, irreps_out: str, with_elements: bool, scripted: bool) -> None:
    ours, theirs = pair(irreps_in, irreps_out, with_elements)
    if scripted:
        ours = e3nn.util.jit.compile(ours)
    for one_hot in (True, False):
        given = inputs(irreps_in, with_elements, one_hot)
        torch.testing.assert_close(
            ours(*given), theirs(*given), rtol=relative("linear"), atol=relative("linear")
        )


@pytest.mark.parametrize("with_elements", [False, True])
@pytest.mark.parametrize(("irreps_in", "irreps_out"), IRREPS)
def test_state_has_the_names_and_shapes_of_e3nn(irreps_in: str, irreps_out: str, with_elements: bool) -> None:
    ours, theirs = pair(irreps_in, irreps_out, with_elements)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: v.shape for k, v in theirs.state_dict().items()
    }
    assert torch.equal(ours.output_mask, theirs.output_mask)
    assert {name for name, _ in ours.named_parameters()} == {name for name, _ in theirs.named_parameters()}


@pytest.mark.parametrize("with_elements", [False, True])
def test_second_derivatives(with_elements: bool) -> None:
    ours, _ = pair(*IRREPS[1], with_elements)
    features, *attributes = inputs(IRREPS[1][0], with_elements)
    assert torch.autograd.gradgradcheck(
        lambda x: ours(x, *attributes).square(), [features[:2]] if not attributes else [features]
    )


def test_no_rows() -> None:
    ours, _ = pair(*IRREPS[1], True)
    assert ours(*(value[:0] for value in inputs(IRREPS[1][0], True))).shape == (0, ours.irreps_out.dim)
