"""The symmetric contraction against its defining formula."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from e3nn import o3
from e3nn.util.jit import compile as e3nn_compile

from mace.exceptions import InputError
from mace.modules.symmetric_contraction import Contraction, SymmetricContraction
from mace.tools.torch_tools import default_dtype
from tests.data.reference.load import cases
from tests.reference import case, state_dict
from tests.tolerances import relative

ELEMENTS = 3
CHANNELS = 2


def formula(contraction: Contraction, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What a contraction is, term by term: x [N, C, D], y [N, Z] to [N, C * (2l+1)]."""
    weights = [contraction.weights_max, *contraction.weights]
    total = torch.zeros((), dtype=x.dtype)
    for weight, order in zip(weights, range(contraction.correlation, 0, -1), strict=True):
        coupling = contraction.U_tensors(order)
        value = coupling if contraction.irrep_out != o3.Irrep("0e") else coupling.unsqueeze(0)
        letters = "abcd"[:order]
        operands = ",".join(f"nv{letter}" for letter in letters)
        factors = torch.einsum("nz,zkv->nkv", y, weight)
        total = total + torch.einsum(f"m{letters}k,nkv,{operands}->nvm", value, factors, *[x] * order)
    return total.flatten(1)


def contraction_of(max_ell: int, outputs: str, correlation: int, dtype=torch.float64) -> SymmetricContraction:
    irreps_in = o3.Irreps([(CHANNELS, ir) for _, ir in o3.Irreps.spherical_harmonics(max_ell)])
    irreps_out = o3.Irreps([(CHANNELS, ir) for _, ir in o3.Irreps(outputs)])
    with default_dtype(dtype), torch.random.fork_rng():
        torch.manual_seed(4)
        return SymmetricContraction(irreps_in, irreps_out, correlation, num_elements=ELEMENTS)


def inputs(max_ell: int, elements=(2, 0, 2, 1, 0), dtype=torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(len(elements), CHANNELS, (max_ell + 1) ** 2, generator=generator, dtype=torch.float64)
    return x.to(dtype), torch.eye(ELEMENTS, dtype=dtype)[list(elements)]


def assert_equal_to_formula(module: SymmetricContraction, x: torch.Tensor, y: torch.Tensor) -> None:
    expected = torch.cat([formula(contraction, x, y) for contraction in module.contractions], dim=1)
    scale = expected.detach().abs().max().item()
    torch.testing.assert_close(module(x, y), expected, rtol=0, atol=scale * relative("contraction", x.dtype))


SIZES = [
    (max_ell, outputs, correlation)
    for max_ell, outputs in ((0, "0e"), (1, "0e + 1o"), (2, "0e + 1o + 2e"), (3, "0e + 1o"))
    for correlation in (1, 2, 3, 4)
    if (max_ell, correlation) != (3, 4)
]


@pytest.mark.parametrize(("max_ell", "outputs", "correlation"), SIZES)
def test_equal_to_the_formula(max_ell, outputs, correlation):
    assert_equal_to_formula(contraction_of(max_ell, outputs, correlation), *inputs(max_ell))


@pytest.mark.parametrize("correlation", [1, 2, 3])
def test_one_contraction_alone(correlation):
    module, (x, y) = contraction_of(2, "1o", correlation), inputs(2)
    torch.testing.assert_close(module.contractions[0](x, y), module(x, y), rtol=0, atol=0)


@pytest.mark.upstream
@pytest.mark.parametrize(
    "name", [name for name in cases() if any("contractions.0.weights_max" in key for key in state_dict(name))]
)
def test_b14_stored_couplings_are_taken_over(name):
    """A state dict brings its own signs; the result is that of the stored tensors."""
    arguments = case(name)["config"]["args"]
    prefix = "products.0.symmetric_contractions."
    state = {key[len(prefix) :]: value for key, value in state_dict(name).items() if key.startswith(prefix)}
    state = {key: value for key, value in state.items() if not key.endswith("_zeroed")}
    hidden = o3.Irreps(arguments["hidden_irreps"])
    blocks = hidden[: 1 + max(int(key.split(".")[1]) for key in state)]
    correlation = max(int(key[-1]) for key in state if "U_matrix" in key)
    features = o3.Irreps(
        [(hidden[0].mul, ir) for _, ir in o3.Irreps.spherical_harmonics(arguments["max_ell"])]
    )
    with default_dtype("float64"):
        module = SymmetricContraction(features, blocks, correlation, num_elements=arguments["num_elements"])
    module.load_state_dict(state)
    for key, value in state.items():
        assert torch.equal(module.state_dict()[key], value)
    x = torch.randn(4, hidden[0].mul, features.dim // hidden[0].mul, dtype=torch.float64)
    y = torch.eye(arguments["num_elements"], dtype=torch.float64)[[0, 1, 1, 0]]
    assert_equal_to_formula(module, x, y)


def test_state_has_the_published_names_and_shapes():
    state = contraction_of(2, "0e + 1o", 3).state_dict()
    c0, c1 = "contractions.0", "contractions.1"
    assert {key: tuple(value.shape) for key, value in state.items()} == {
        f"{c0}.weights_max": (3, 11, 2),
        f"{c0}.U_matrix_1": (9, 1),
        f"{c0}.U_matrix_2": (9, 9, 3),
        f"{c0}.U_matrix_3": (9, 9, 9, 11),
        f"{c0}.weights.0": (3, 3, 2),
        f"{c0}.weights.1": (3, 1, 2),
        f"{c1}.weights_max": (3, 21, 2),
        f"{c1}.U_matrix_1": (3, 9, 1),
        f"{c1}.U_matrix_2": (3, 9, 9, 4),
        f"{c1}.U_matrix_3": (3, 9, 9, 9, 21),
        f"{c1}.weights.0": (3, 4, 2),
        f"{c1}.weights.1": (3, 1, 2),
    }


@pytest.mark.parametrize("correlation", [1, 2, 3, 4])
def test_first_and_second_derivatives(correlation):
    module, (x, y) = contraction_of(1, "1o", correlation), inputs(1, (1, 0))
    arguments = [x.requires_grad_(), *module.parameters()]

    def evaluate(x, *_):
        return module(x, y)

    assert torch.autograd.gradcheck(evaluate, arguments)
    assert torch.autograd.gradgradcheck(evaluate, arguments)


@pytest.mark.parametrize("elements", [(0,), (1, 1, 1), (2, 0), (2, 1, 0, 1, 2, 0, 0)])
def test_order_of_nodes_and_absent_elements(elements):
    assert_equal_to_formula(contraction_of(2, "0e + 1o", 3), *inputs(2, elements))


def test_nodes_do_not_see_each_other():
    module, (x, y) = contraction_of(2, "0e + 1o", 3), inputs(2)
    alone = torch.cat([module(x[n : n + 1], y[n : n + 1]) for n in range(len(x))])
    torch.testing.assert_close(
        alone, module(x, y), rtol=relative("contraction"), atol=relative("contraction")
    )


def test_equivariant():
    module, (x, y) = contraction_of(2, "0e + 1o + 2e", 3), inputs(2)
    with default_dtype("float64"):
        transformation = -o3.rand_matrix()
        before = o3.Irreps.spherical_harmonics(2).D_from_matrix(transformation)
        after = module.irreps_out.D_from_matrix(transformation)
    torch.testing.assert_close(module(x @ before.T, y), module(x, y) @ after.T, rtol=0, atol=1e-10)


@pytest.mark.parametrize("correlation", [1, 3, 4])
@pytest.mark.parametrize("compile_module", [torch.jit.script, e3nn_compile])
def test_scripted_and_saved(correlation, compile_module):
    module, (x, y) = contraction_of(1, "0e + 1o", correlation), inputs(1)
    expected = module(x, y)
    scripted = compile_module(copy.deepcopy(module))
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    assert torch.equal(torch.jit.load(buffer)(x, y), expected)


def test_single_precision():
    double, single = contraction_of(2, "0e + 1o", 3), contraction_of(2, "0e + 1o", 3, torch.float32)
    x, y = inputs(2, dtype=torch.float32)
    assert single(x, y).dtype == torch.float32
    assert_equal_to_formula(single, x, y)
    converted = double.float()
    assert_equal_to_formula(converted, x, y)
    reloaded = contraction_of(2, "0e + 1o", 3, torch.float32)
    reloaded.load_state_dict(converted.state_dict())
    assert torch.equal(reloaded(x, y), converted(x, y))


@pytest.mark.parametrize(("max_ell", "outputs", "correlation"), [(0, "0e + 1o", 3), (1, "0e + 2e", 1)])
def test_b12_output_that_cannot_be_made_is_named(max_ell, outputs, correlation):
    with pytest.raises(InputError, match=outputs.split(" + ")[-1]):
        contraction_of(max_ell, outputs, correlation)


def test_b12_output_beyond_the_harmonics_comes_from_products():
    module = contraction_of(1, "0e + 2e", 3)
    assert module.contractions[1].weights[1].shape == (ELEMENTS, 0, CHANNELS)
    assert_equal_to_formula(module, *inputs(1))


def test_given_weights_are_used():
    own = contraction_of(1, "0e", 3).contractions[0]
    given = [*own.weights, own.weights_max]
    with default_dtype("float64"):
        shared = Contraction(
            o3.Irreps("2x0e + 2x1o"), o3.Irreps("2x0e"), 3, internal_weights=False, weights=given
        )
    assert [id(weight) for weight in shared.parameters()] == [id(weight) for weight in own.parameters()]
    assert torch.equal(shared(*inputs(1)), own(*inputs(1)))
