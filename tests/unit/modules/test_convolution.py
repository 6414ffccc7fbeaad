"""The tensor product summed over neighbours against e3nn's product and a plain sum."""

from __future__ import annotations

import copy
import pickle

import e3nn.util.jit
import pytest
import torch
from e3nn import o3

from mace.modules._convolution import Convolution, group_edges
from mace.modules.irreps_tools import tp_out_irreps_with_instructions
from mace.tools.scatter import scatter_sum
from mace.tools.torch_tools import default_dtype
from tests.tolerances import relative

NODES = 5
CASES = [("4x0e", 2), ("4x0e + 4x1o", 2), ("3x0e + 3x1o + 3x2e", 3), ("2x0e", 0)]


def operands(irreps: str, max_ell: int) -> tuple[o3.Irreps, o3.Irreps, o3.Irreps, list]:
    features, harmonics = o3.Irreps(irreps), o3.Irreps.spherical_harmonics(max_ell)
    target = o3.Irreps([(features[0].mul, ir) for _, ir in harmonics])
    return features, harmonics, *tp_out_irreps_with_instructions(features, harmonics, target)


def pair(irreps: str, max_ell: int) -> tuple[Convolution, o3.TensorProduct]:
    with default_dtype("float64"):
        *given, instructions = operands(irreps, max_ell)
        theirs = o3.TensorProduct(*given, instructions, shared_weights=False, internal_weights=False)
        return Convolution(*given, instructions), theirs


def graph(module: torch.nn.Module, num_edges: int = 17) -> tuple[torch.Tensor, ...]:
    """Features, harmonics, weights per edge, edge index; one node has no edge."""
    draw = torch.Generator().manual_seed(num_edges)
    sizes = (
        (NODES, module.irreps_in1.dim),
        (num_edges, module.irreps_in2.dim),
        (num_edges, module.weight_numel),
    )
    tensors = [torch.randn(*size, dtype=torch.float64, generator=draw, requires_grad=True) for size in sizes]
    return *tensors, torch.randint(0, NODES - 1, (2, num_edges), generator=draw)


def summed(module: torch.nn.Module, features, harmonics, weights, edge_index) -> torch.Tensor:
    groups = group_edges(edge_index[1], NODES, harmonics)
    return module.summed(features, harmonics, weights[groups.edges], edge_index[0], groups)


def plain_sum(theirs: o3.TensorProduct, features, harmonics, weights, edge_index) -> torch.Tensor:
    return scatter_sum(theirs(features[edge_index[0]], harmonics, weights), edge_index[1], 0, None, NODES)


def assert_same(ours: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=relative("linear"), atol=relative("linear"))


@pytest.mark.parametrize("num_edges", [0, 1, 17])
@pytest.mark.parametrize(("irreps", "max_ell"), CASES)
def test_sum_over_neighbours(irreps: str, max_ell: int, num_edges: int) -> None:
    ours, theirs = pair(irreps, max_ell)
    given = graph(ours, num_edges)
    assert_same(summed(ours, *given), plain_sum(theirs, *given))


@pytest.mark.parametrize(("irreps", "max_ell"), CASES)
def test_product_alone(irreps: str, max_ell: int) -> None:
    ours, theirs = pair(irreps, max_ell)
    features, harmonics, weights, edge_index = graph(ours)
    rows = features[edge_index[0]]
    assert_same(ours(rows, harmonics, weights), theirs(rows, harmonics, weights))


@pytest.mark.parametrize(("irreps", "max_ell"), CASES)
def test_state_has_the_names_and_shapes_of_e3nn(irreps: str, max_ell: int) -> None:
    ours, theirs = pair(irreps, max_ell)
    state = theirs.state_dict()
    assert {key: value.shape for key, value in ours.state_dict().items()} == {
        k: v.shape for k, v in state.items()
    }
    for key, value in ours.state_dict().items():
        assert_same(value, state[key])
    assert list(ours.parameters()) == []


def test_derivatives_of_first_and_second_order() -> None:
    ours, theirs = pair("2x0e + 2x1o", 1)
    *given, edge_index = graph(ours, 6)
    first = [
        torch.autograd.grad(function(module, *given, edge_index).square().sum(), given)
        for function, module in ((summed, ours), (plain_sum, theirs))
    ]
    for value, expected in zip(*first, strict=True):
        assert_same(value, expected)
    assert torch.autograd.gradgradcheck(lambda *tensors: summed(ours, *tensors, edge_index), given)


def test_groups_keep_every_edge_once() -> None:
    receivers = torch.tensor([3, 0, 3, 3, 1, 3, 3, 0])
    groups = group_edges(receivers, 5, torch.zeros(1), size=4)
    real = groups.is_edge[:, 0] == 1.0
    assert sorted(groups.edges[real].tolist()) == list(range(8))
    owners = groups.receivers.repeat_interleave(4)
    assert torch.equal(receivers[groups.edges[real]], owners[real])
    assert len(groups.receivers) == 4  # 2 + 1 + 5 edges


def test_torchscript() -> None:
    ours, theirs = pair("4x0e + 4x1o", 2)
    given = graph(ours)
    assert_same(summed(e3nn.util.jit.compile(ours), *given), plain_sum(theirs, *given))


def test_symbols_follow_the_state_and_its_precision() -> None:
    ours, theirs = pair("4x0e + 4x1o", 2)
    given = graph(ours)
    theirs.float().double()  # the symbols of a float32 model
    ours.load_state_dict(theirs.state_dict())
    assert_same(summed(ours, *given), plain_sum(theirs, *given))
    ours, _ = pair("4x0e + 4x1o", 2)
    assert_same(summed(ours.float().double(), *given), plain_sum(theirs, *given))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies(copied) -> None:
    ours, _ = pair("4x0e + 4x1o", 2)
    given = graph(ours)
    assert torch.equal(summed(copied(ours), *given), summed(ours, *given))
