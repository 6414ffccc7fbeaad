"""Models on both back ends: same state to the bit, same numbers, and nothing else changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from e3nn import o3

from mace.cli import convert_cueq_e3nn, convert_e3nn_cueq
from mace.exceptions import InputError
from mace.modules.models import ScaleShiftMACE
from mace.tools.kernels import to_cueq, to_e3nn
from mace.tools.rebuild import extract_config_mace_model, rebuild
from mace.tools.same import same_bits
from tests import small_models
from tests.tolerances import relative

FERMI_LEVEL = {"electron_input": True, "potential_output": True, "mean_electron": 0.2, "mean_potential": -4.0}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "MACE": (small_models.mace, {}),
    "ScaleShiftMACE": (small_models.scale_shift, {}),
    "FermiMACE": (small_models.scale_shift, FERMI_LEVEL),
    "FermiMACE_2": (
        small_models.scale_shift,
        {**FERMI_LEVEL, "electron_input": False, "use_global_state": True},
    ),
    "FermiMACE_uncertainty": (small_models.scale_shift, {**FERMI_LEVEL, "pred_uncertainty": True}),
    "FermiMACE_evidential": (small_models.scale_shift, {**FERMI_LEVEL, "pred_evidential": True}),
    "reduced couplings": (
        small_models.scale_shift,
        {"max_ell": 2, "correlation": 3, "use_reduced_cg": True},
    ),
    "one layer, correlation 1": (small_models.mace, {"num_interactions": 1, "correlation": 1}),
    "three layers, list of correlations": (
        small_models.scale_shift,
        {**FERMI_LEVEL, "num_interactions": 3, "correlation": [1, 3, 2], "max_ell": 2},
    ),
    "correlation 4": (small_models.scale_shift, {"correlation": 4}),
    "degree 2 and 3": (
        small_models.mace,
        {"hidden_irreps": "2x0e + 2x1o + 2x2e", "max_ell": 3, "correlation": 3},
    ),
    "heads": (
        small_models.scale_shift,
        {
            "heads": ["a", "b"],
            "atomic_energies": np.array([[-1.0, -2.0], [-3.0, -4.0]]),
            "atomic_inter_scale": [1.0, 2.0],
            "atomic_inter_shift": [0.1, 0.2],
        },
    ),
}


def arguments_of(name: str) -> dict[str, Any]:
    build, changes = MODELS[name]
    scaling = (
        {"atomic_inter_scale": 1.7, "atomic_inter_shift": 0.3} if build is small_models.scale_shift else {}
    )
    return small_models.arguments(**{**scaling, **changes})


def model_of(name: str, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    build, changes = MODELS[name]
    return build(dtype, **changes)


def state_bits_equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(same_bits(ours[key], theirs[key]) for key in ours)


def assert_same_outputs(model: torch.nn.Module, other: torch.nn.Module, dtype=torch.float64) -> None:
    expected, found = model(small_models.batch(dtype)), other(small_models.batch(dtype))
    for name in (
        "energy",
        "forces",
        "node_energy",
        "node_feats",
        "potential",
        "potential_logvar",
        "energy_nu",
    ):
        if expected.get(name) is not None:
            scale = expected[name].detach().abs().max().item()
            torch.testing.assert_close(
                found[name], expected[name], rtol=0, atol=scale * relative("back end", dtype)
            )


FAST = ("MACE", "three layers, list of correlations")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_there_and_back(name):
    model, config = model_of(name), arguments_of(name)
    fast = to_cueq(model, config)
    assert any("Cueq" in type(module).__name__ for module in fast.modules())
    assert state_bits_equal(model, fast)
    assert_same_outputs(model, fast)
    back = to_e3nn(fast, config)
    assert not any("Cueq" in type(module).__name__ for module in back.modules())
    assert state_bits_equal(model, back)
    assert torch.equal(back(small_models.batch())["energy"], model(small_models.batch())["energy"])


@pytest.fixture(scope="module")
def fermi() -> tuple[torch.nn.Module, torch.nn.Module]:
    """A model and the same on cuEquivariance, not to be changed."""
    model = model_of("FermiMACE")
    return model, to_cueq(model, arguments_of("FermiMACE"))


def test_every_operation_of_a_converted_model_is_cuequivariance(fermi):
    _, fast = fermi
    left = [
        name
        for name, module in fast.named_modules()
        if type(module) in (o3.Linear, o3.TensorProduct, o3.FullyConnectedTensorProduct)
    ]
    assert left == []


def test_b14_other_signs_of_the_couplings_are_carried_along():
    name = "degree 2 and 3"
    model, config = model_of(name), arguments_of(name)
    before = model(small_models.batch())["forces"]
    state = model.state_dict()
    for key, columns in (("0.U_matrix_3", [5]), ("1.U_matrix_3", [17, 18, 21]), ("2.U_matrix_3", [16, 20])):
        state[f"products.0.symmetric_contractions.contractions.{key}"][..., columns] *= -1
    model.load_state_dict(state)
    assert (model(small_models.batch())["forces"] - before).abs().max() > 1e-9
    fast = to_cueq(model, config)
    assert_same_outputs(model, fast)
    assert state_bits_equal(to_e3nn(fast, config), model)


def test_single_precision():
    model, config = model_of("FermiMACE", torch.float32), arguments_of("FermiMACE")
    fast = to_cueq(model, config)
    assert all(value.dtype != torch.float64 for value in fast.state_dict().values())
    assert state_bits_equal(model, fast)
    assert_same_outputs(model, fast, torch.float32)


def test_flags_of_the_input_are_kept_and_the_input_is_left_alone():
    model, config = model_of("ScaleShiftMACE").eval(), arguments_of("ScaleShiftMACE")
    model.products.train()
    model.readouts.requires_grad_(False)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    given = dict(config)
    random_state, default = torch.get_rng_state(), torch.get_default_dtype()
    fast = to_cueq(model, config)
    assert torch.equal(torch.get_rng_state(), random_state) and torch.get_default_dtype() == default
    assert given.keys() == config.keys() and config.get("cueq_config") is None
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not fast.training and fast.products.training
    trains = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    assert trains == {name: parameter.requires_grad for name, parameter in fast.named_parameters()}
    shared = {value.data_ptr() for value in model.parameters()} & {
        value.data_ptr() for value in fast.parameters()
    }
    assert not shared


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Of a loss of energy, forces and Fermi level: the second derivatives that training needs."""
    output = model(small_models.batch(), training=True)
    loss = (
        output["energy"].square().sum() + output["forces"].square().sum() + output["potential"].square().sum()
    )
    names, parameters = zip(*model.named_parameters(), strict=True)
    values = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def test_trains(fermi):
    expected, found = (gradients(model) for model in fermi)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        scale = value.abs().max().item()
        torch.testing.assert_close(found[name], value, rtol=0, atol=scale * relative("back end"))


def test_rebuilt_from_its_configuration(fermi):
    _, fast = fermi
    assert extract_config_mace_model(fast)["cueq_config"]["enabled"]
    copy = rebuild(fast)
    assert state_bits_equal(fast, copy)
    assert_same_outputs(fast, copy)


def test_class_without_another_back_end_is_named():
    with pytest.raises(InputError, match="Linear has no cuEquivariance form"):
        to_cueq(torch.nn.Linear(2, 2), {"in_features": 2, "out_features": 2})


def test_configuration_of_another_model_is_refused():
    with pytest.raises(InputError, match="ScaleShiftMACE was not built from the given configuration"):
        to_cueq(
            model_of("ScaleShiftMACE"), {**arguments_of("ScaleShiftMACE"), "hidden_irreps": "4x0e + 4x1o"}
        )


def test_conversion_of_files_and_live_models(fermi, tmp_path):
    model, _ = fermi
    assert convert_e3nn_cueq.run(model, tmp_path / "fast.model", return_model=False) is None
    back = convert_cueq_e3nn.run(tmp_path / "fast.model")
    assert isinstance(back, ScaleShiftMACE) and state_bits_equal(model, back)
