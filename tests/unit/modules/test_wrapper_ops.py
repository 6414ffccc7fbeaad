"""The back ends: which one is chosen, and that they compute the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict

import pytest
import torch
from e3nn import o3

from mace.exceptions import InputError
from mace.modules import wrapper_ops
from mace.modules.irreps_tools import tp_out_irreps_with_instructions
from mace.modules.symmetric_contraction import SymmetricContraction
from mace.modules.wrapper_ops import (
    CuEquivarianceConfig,
    FullyConnectedTensorProduct,
    Linear,
    SymmetricContractionWrapper,
    TensorProduct,
)
from mace.tools.torch_tools import default_dtype
from tests.tolerances import relative

CUEQ = {"enabled": True, "group": "O3_e3nn", "optimize_all": True}
ROWS, ELEMENTS = 5, 3
HARMONICS = o3.Irreps.spherical_harmonics(2)


def draw(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


def linear(irreps_in: str, irreps_out: str) -> tuple[Callable, Callable]:
    irreps_in = o3.Irreps(irreps_in)
    return (
        lambda config: Linear(irreps_in, o3.Irreps(irreps_out), cueq_config=config),
        lambda _: [draw(ROWS, irreps_in.dim)],
    )


def fully_connected(irreps_in: str, irreps_out: str) -> tuple[Callable, Callable]:
    irreps_in = o3.Irreps(irreps_in)
    attributes = o3.Irreps(f"{ELEMENTS}x0e")
    return (
        lambda config: FullyConnectedTensorProduct(
            irreps_in, attributes, o3.Irreps(irreps_out), cueq_config=config
        ),
        lambda _: [draw(ROWS, irreps_in.dim), draw(ROWS, ELEMENTS)],
    )


def channelwise(irreps_in: str, harmonics: o3.Irreps = HARMONICS) -> tuple[Callable, Callable]:
    irreps_in = o3.Irreps(irreps_in)
    irreps_out, instructions = tp_out_irreps_with_instructions(irreps_in, harmonics, harmonics)
    return (
        lambda config: TensorProduct(irreps_in, harmonics, irreps_out, instructions, cueq_config=config),
        lambda module: [
            draw(ROWS, irreps_in.dim),
            draw(ROWS, harmonics.dim),
            draw(ROWS, module.weight_numel),
        ],
    )


def symmetric(irreps_in: str, irreps_out: str, correlation: int) -> tuple[Callable, Callable]:
    irreps_in = o3.Irreps(irreps_in)
    channels = irreps_in[0].mul
    one_hot = torch.eye(ELEMENTS, dtype=torch.float64)[[0, 2, 2, 1, 0]].requires_grad_()
    return (
        lambda config: SymmetricContractionWrapper(
            irreps_in, o3.Irreps(irreps_out), correlation, num_elements=ELEMENTS, cueq_config=config
        ),
        lambda _: [draw(ROWS, channels, irreps_in.dim // channels), one_hot],
    )


OPERATIONS = {
    "linear": linear("4x0e + 4x1o + 3x1o + 4x2e + 4x0e", "6x0e + 3x1o + 2x2e"),
    "linear with an output without input": linear("4x0e", "4x0e + 4x1o"),
    "fully connected": fully_connected("4x0e + 4x1o + 4x2e", "4x0e + 4x1o + 4x2e"),
    "fully connected with an output without input": fully_connected("4x0e", "4x0e + 4x1o"),
    "channelwise scalars": channelwise("4x0e"),
    "channelwise": channelwise("4x0e + 4x1o + 4x2e"),
    "channelwise unnatural parity": channelwise("4x0e + 4x0o + 4x1o + 4x1e"),
    "symmetric": symmetric("4x0e + 4x1o", "4x0e + 4x1o", 3),
}


@pytest.fixture(autouse=True)
def float64():
    with default_dtype("float64"), torch.random.fork_rng():
        torch.manual_seed(8)
        yield


def derivatives(module: torch.nn.Module, arguments: list[torch.Tensor]) -> list[torch.Tensor]:
    """The value, the first derivatives, and derivatives of those by arguments and parameters."""
    value = module(*arguments)
    inputs = [argument for argument in arguments if argument.requires_grad]
    first = torch.autograd.grad(value.sin().sum(), inputs, create_graph=True, allow_unused=True)
    first = [gradient for gradient in first if gradient is not None]
    total = sum(gradient.square().sum() for gradient in first)
    second = torch.autograd.grad(total, [*inputs, *module.parameters()], allow_unused=True)
    return [value, *first, *(gradient for gradient in second if gradient is not None)]


def assert_same_numbers(
    module: torch.nn.Module, other: torch.nn.Module, arguments: list[torch.Tensor]
) -> None:
    found, expected = derivatives(other, arguments), derivatives(module, arguments)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        scale = max(b.abs().max().item(), 1.0) if b.numel() else 1.0
        torch.testing.assert_close(a, b, rtol=0, atol=scale * relative("back end"))


@pytest.mark.parametrize("name", OPERATIONS)
def test_both_back_ends_have_the_same_state_and_the_same_numbers(name):
    build, draw_inputs = OPERATIONS[name]
    ours, theirs = build(None), build(CUEQ)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    theirs.load_state_dict(ours.state_dict())
    assert_same_numbers(ours, theirs, draw_inputs(ours))


@pytest.fixture
def without_kernels(monkeypatch):
    """The contraction of cuEquivariance itself, evaluated without its CUDA kernels."""
    from mace.modules._cueq import CueqSymmetricContraction

    monkeypatch.setattr(CueqSymmetricContraction, "method", "naive")


@pytest.mark.parametrize(("outputs", "correlation"), [("2x0e + 2x1o", 2), ("2x0e", 3), ("2x0e + 2x1o", 1)])
def test_cuequivariance_contraction_takes_the_couplings_of_the_model(without_kernels, outputs, correlation):
    build, draw_inputs = symmetric("2x0e + 2x1o", outputs, correlation)
    ours, theirs = build(None), build(CUEQ)
    theirs.load_state_dict(ours.state_dict())
    assert_same_numbers(ours, theirs, draw_inputs(ours))
    state = ours.state_dict()
    for key in [key for key in state if "U_matrix" in key]:
        state[key] = -3 * state[key].flip(-1)
    ours.load_state_dict(state)
    theirs.load_state_dict(state)
    assert_same_numbers(ours, theirs, draw_inputs(ours))


def test_constants_keep_their_precision(without_kernels):
    for name in ("linear", "fully connected", "channelwise"):
        build, draw_inputs = OPERATIONS[name]
        ours, theirs = build(None), build(CUEQ)
        theirs.load_state_dict(ours.state_dict())
        converted = theirs.float()
        arguments = draw_inputs(ours)
        assert converted(*[argument.float() for argument in arguments]).dtype == torch.float32
        theirs.double().load_state_dict(ours.state_dict())
        assert_same_numbers(ours, theirs, arguments)


@pytest.mark.parametrize("operation", ["linear", "channelwise", "fctp", "symmetric"])
def test_each_operation_can_be_switched(operation):
    config = {"enabled": True, "group": "O3_e3nn", f"optimize_{operation}": True}
    chosen = {
        name: wrapper_ops.backend(config, name) is not wrapper_ops.E3NN
        for name in ("linear", "channelwise", "fctp", "symmetric")
    }
    assert chosen == {name: name == operation for name in chosen}


@pytest.mark.parametrize(
    "config", [None, {}, {"enabled": False, "optimize_all": True}, CuEquivarianceConfig()]
)
def test_e3nn_is_the_default(config):
    assert wrapper_ops.backend(config, "linear") is wrapper_ops.E3NN
    assert (
        type(SymmetricContractionWrapper(o3.Irreps("2x0e"), o3.Irreps("2x0e"), 1, 2, config))
        is SymmetricContraction
    )


def test_configuration_and_its_dictionary_are_the_same():
    config = CuEquivarianceConfig.coerce(CUEQ)
    assert CuEquivarianceConfig.coerce(asdict(config)) == CuEquivarianceConfig.coerce(config) == config


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"optimise_all": True}, "optimise_all"),
        ({"layout": "ir"}, "'ir'"),
        ({"enabled": True, "group": "SO3"}, "'SO3'"),
    ],
)
def test_unusable_configuration_is_named(config, named):
    with pytest.raises(InputError, match=named):
        Linear(o3.Irreps("1x0e"), o3.Irreps("1x0e"), cueq_config=config)


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuequivariance_torch", None)
    monkeypatch.delitem(sys.modules, "mace.modules._cueq", raising=False)
    with pytest.raises(InputError, match="cuequivariance_torch.*pip install cuequivariance-torch"):
        Linear(o3.Irreps("1x0e"), o3.Irreps("1x0e"), cueq_config=CUEQ)
