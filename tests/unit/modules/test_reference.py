"""Numbers that the original programs returned for the same weights: energies, forces, Fermi levels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from mace import modules
from mace.modules import loss as losses
from mace.tools.kernels import to_cueq
from mace.tools.rebuild import extract_config_mace_model, rebuild
from mace.tools.torch_tools import default_dtype
from tests.data.reference.load import max_rel_dev
from tests.reference import case, labels
from tests.reference_models import (
    GOLDEN,
    GOLDEN_MODELS,
    MODEL_CASES,
    batch,
    build,
    golden_batch,
    golden_model,
)
from tests.small_models import derivatives
from tests.tolerances import relative
from tests.unit.modules.test_loss import as_upstream, upstream_evidential_regression_loss

Array = np.ndarray
# Deviations from the original on purpose: key -> what of ours has to equal the stored array.
RULES: dict[str, Callable[[Array, Array], Array]] = {
    # B15: the original cuts the features of ScaleShiftMACE down to the first and the last C columns
    "node_feats": lambda ours, stored: (
        ours
        if ours.shape == stored.shape
        else np.concatenate([ours[:, : stored.shape[1] // 2], ours[:, -stored.shape[1] // 2 :]], axis=1)
    ),
    # A13: these have no dimension in the original when there is one graph
    **{
        f"{quantity}_{suffix}": lambda ours, stored: ours.reshape(stored.shape)
        for quantity in ("potential", "energy")
        for suffix in ("logvar", "nu", "alpha", "beta")
    },
}


# B11: the original gives E0 as the energies of the atoms; ours are whole, see test_models.py
E0_ALONE = modules.EnergyDipolesMACE


def same(key: str, ours: torch.Tensor, stored: Array) -> bool:
    values = ours.detach().numpy()
    return max_rel_dev(RULES.get(key, lambda given, _: given)(values, stored), stored) < relative("reference")


def evaluate(model: torch.nn.Module, data: dict[str, torch.Tensor], stored: dict[str, Array]) -> list[str]:
    """Names of the stored outputs that ours are not equal to."""
    output = model(data, **derivatives(model))
    if isinstance(model, E0_ALONE):
        output["node_energy"] = model.atomic_energies_fn(data["node_attrs"]).squeeze(1)
    return [key for key in stored if key != "hessian" and not same(key, output[key], stored[key])]


@pytest.mark.parametrize("name", MODEL_CASES)
def test_outputs_of_the_batch(name: str) -> None:
    assert evaluate(build(name), batch(name), case(name)["batch"]) == []


@pytest.mark.parametrize("name", MODEL_CASES)
def test_the_state_has_the_names_and_the_order_of_the_original(name: str) -> None:
    stored = list(case(name)["state_dict"])
    ours = [key for key in build(name).state_dict() if key in stored]
    assert ours == [key for key in stored if key in ours]


@pytest.mark.upstream
@pytest.mark.parametrize("name", MODEL_CASES)
def test_outputs_of_every_structure_alone(name: str) -> None:
    model = build(name)
    for index, structure in enumerate(case(name)["structures"]):
        data = batch(name, [index])
        assert data["edge_index"].shape[1] == structure["n_edges"]
        assert evaluate(model, data, structure["out"]) == [], structure["label"]


@pytest.mark.upstream
@pytest.mark.parametrize(
    "name", [name for name in MODEL_CASES if case(name)["config"]["hessian_on"] is not None]
)
def test_hessian(name: str) -> None:
    index = case(name)["config"]["hessian_on"]
    output = build(name)(batch(name, [index]), compute_hessian=True)
    assert same("hessian", output["hessian"], case(name)["structures"][index]["out"]["hessian"])


@pytest.mark.upstream
@pytest.mark.parametrize("name", MODEL_CASES)
def test_gradients_of_the_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, stored = case(name)["config"], case(name)["grad"]
    # A5, A9: the gradients are those of the original's loss, which is another one for Fermi levels
    monkeypatch.setattr(losses, "evidential_regression_loss", upstream_evidential_regression_loss)
    with default_dtype("float64"):
        loss = getattr(losses, config["grad_loss"])(**config["losses"][config["grad_loss"]])
    model = build(name)
    output = model(batch(name), training=True, **derivatives(model))
    loss(as_upstream(labels(name)), output).backward()
    largest = max(norm for norm, _ in stored.values())
    for key, parameter in model.named_parameters():
        gradient = (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).flatten()
        norm, projection = stored[key]
        pattern = torch.cos(torch.arange(gradient.numel(), dtype=torch.float64))
        allowed = relative("reference") * max(norm, 1e-12 * largest)
        assert abs(float(gradient.norm()) - norm) <= allowed, key
        assert abs(float(gradient @ pattern) - projection) <= allowed * gradient.numel() ** 0.5, key
    assert set(config["grad_none"]) == set(stored) - {key for key, _ in model.named_parameters()} | {
        key for key, parameter in model.named_parameters() if parameter.grad is None
    }


@pytest.mark.parametrize("name", GOLDEN_MODELS)
def test_golden_numbers(name: str) -> None:
    stored = {key: np.array(value) for key, value in GOLDEN["results"][name].items() if key != "desc"}
    assert evaluate(golden_model(name), golden_batch(name), stored) == []


def test_more_couplings_than_the_reduced_basis_are_taken_over_by_copies() -> None:
    """The case asks for the reduced basis, and its weights are those of the full one (B14)."""
    name = "m16_ssm_reduced_cg"
    with default_dtype("float64"):
        fresh = getattr(modules, case(name)["config"]["class"])(**case(name)["config"]["args"])
    key = "products.0.symmetric_contractions.contractions.0.weights_max"
    assert fresh.state_dict()[key].shape[1] == 8 and build(name).state_dict()[key].shape[1] == 23
    for copy in (rebuild(build(name)), to_cueq(build(name), extract_config_mace_model(build(name)))):
        assert evaluate(copy, batch(name), case(name)["batch"]) == []
