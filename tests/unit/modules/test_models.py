"""The models: arguments they refuse, states they read, precision they follow, and repaired defects."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch

from mace import modules
from mace.exceptions import InputError
from mace.modules import MACE, ScaleShiftMACE
from mace.tools.torch_tools import default_dtype
from tests import small_models
from tests.reference import case, state_dict
from tests.reference_models import batch as reference_batch
from tests.reference_models import build as reference_model
from tests.small_models import arguments
from tests.tolerances import relative

PLAIN_STATE = ("node_updates", "state_updates", "mean_")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"max_ell": 1, "hidden_irreps": "4x0e + 4x1o + 4x2e"},
            "max_ell 1 is smaller than the largest degree 2",
        ),
        ({"max_ell": 0}, "max_ell 0"),
        ({"hidden_irreps": "4x0e + 8x1o"}, "same multiplicity"),
        ({"hidden_irreps": "4x1o"}, "must start with scalars"),
        ({"hidden_irreps": ""}, "must start with scalars"),
        ({"hidden_irreps": "4x0e + 4x1e"}, "1e cannot be reached"),
        ({"hidden_irreps": "nonsense"}, "cannot be read as irreps"),
        ({"MLP_irreps": "4x1o"}, "must be scalars"),
        ({"num_interactions": 0}, "at least one interaction"),
        ({"correlation": [1, 2, 3]}, "one per layer"),
        ({"r_max": 0.0}, "must be positive"),
        ({"r_max": math.nan}, "must be positive"),
        ({"interaction_cls": "NoSuchBlock"}, "NoSuchBlock"),
        ({"gate": "relu6"}, "relu6"),
        ({"radial_type": "fourier"}, "fourier"),
        ({"atomic_energies": [1.0, 2.0, 3.0]}, "one energy per head and element"),
        ({"heads": ["a", "b"]}, "2 heads"),
        ({"atomic_numbers": [1, 6, 8]}, "atomic_numbers has 3"),
        ({"use_so3": True}, "use_so3=True is not supported"),
    ],
)
def test_b12_arguments_that_cannot_work_are_refused_in_one_line(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        MACE(**arguments(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "option", ["electron_input", "potential_output", "use_global_state", "pred_uncertainty"]
)
def test_electrons_need_the_scaled_model(option: str) -> None:
    with pytest.raises(InputError, match=option):
        MACE(**arguments(**{option: True}))


@pytest.mark.parametrize(
    "options",
    [
        {"pred_uncertainty": True},
        {"pred_evidential": True, "use_global_state": True, "potential_output": True},
        {"pred_uncertainty": True, "pred_evidential": True, "potential_output": True},
    ],
)
def test_contradictory_outputs_are_refused(options: dict[str, bool]) -> None:
    with pytest.raises(InputError, match="pred_"):
        small_models.scale_shift(**options)


@pytest.mark.parametrize("name", ["atomic_inter_scale", "atomic_inter_shift"])
def test_scaling_has_one_number_per_head(name: str) -> None:
    with pytest.raises(InputError, match=name):
        small_models.scale_shift(**{name: [1.0, 2.0]})


def test_an_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="hiden_irreps"):
        MACE(**arguments(), hiden_irreps="4x0e")


def test_b17_keywords_of_other_versions_pass_where_they_change_nothing() -> None:
    MACE(**arguments(), hidden_scalar_dim=256, apply_cutoff=True, use_reduced_cg=False)


def test_names_classes_and_irreps_are_the_same() -> None:
    by_name = arguments(
        interaction_cls="RealAgnosticResidualInteractionBlock",
        interaction_cls_first="RealAgnosticInteractionBlock",
        gate="silu",
        atomic_energies=[-1.0, -2.0],
    )
    torch.manual_seed(0)
    first = MACE(**by_name)
    torch.manual_seed(0)
    second = MACE(**arguments(atomic_energies=torch.tensor([-1.0, -2.0])))
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


def test_a16_compute_potential_is_the_last_argument_and_is_honoured() -> None:
    forward = list(inspect.signature(ScaleShiftMACE.forward).parameters)
    assert forward == [*inspect.signature(MACE.forward).parameters, "compute_potential"]
    model = small_models.fermi()
    assert model(small_models.batch(), compute_potential=False)["potential"] is None
    assert model(small_models.batch())["potential"].shape == (2,)
    assert small_models.scale_shift()(small_models.batch())["potential"] is None


def test_a8_a_model_that_takes_electrons_names_what_is_missing() -> None:
    with pytest.raises(ValueError, match="electron"):
        small_models.fermi()(small_models.batch(electron=None))


def test_a10_the_readout_starts_at_the_mean_and_nothing_is_added() -> None:
    model = small_models.fermi(mean_potential=-4.0)
    assert model.potential_output_layer[-1].bias.tolist() == [-4.0]
    before = model(small_models.batch())["potential"]
    model.mean_potential.fill_(7.0)
    assert torch.equal(model(small_models.batch())["potential"], before)


def test_a4_evidential_outputs_take_the_scalars_of_both_layers() -> None:
    model = small_models.fermi(pred_evidential=True)
    assert model.energy_evidential_output_layer[0].in_features == 2 * model.num_channels
    output = model(small_models.batch())
    for quantity in ("energy", "potential"):
        assert all((output[f"{quantity}_{name}"] > 0.0).all() for name in ("nu", "alpha", "beta"))


def test_a13_a_batch_of_one_graph_keeps_its_dimension() -> None:
    data = reference_batch("fermi_unc_16", [0])
    output = reference_model("fermi_unc_16")(data)
    assert {output[key].shape for key in ("potential", "potential_logvar", "energy_logvar", "energy")} == {
        (1,)
    }


def test_a14_one_layer_reads_its_scalars_twice() -> None:
    model = small_models.fermi(num_interactions=1)
    output = model(small_models.batch())
    scalars = output["node_feats"][:3, : model.num_channels].mean(0)
    expected = model.potential_output_layer(torch.cat([scalars, scalars]))
    torch.testing.assert_close(output["potential"][:1], expected)


def test_b15_node_feats_are_the_features_of_all_layers() -> None:
    output = small_models.scale_shift(num_interactions=3)(small_models.batch())
    assert output["node_feats"].shape == (7, 8 + 8 + 2)


def test_b7_unused_networks_are_not_built() -> None:
    assert not [
        key for key in small_models.fermi().state_dict() if key.startswith(("node_updates", "state_updates"))
    ]
    model = small_models.fermi(electron_input=False, use_global_state=True)
    assert [key for key in model.state_dict() if key.startswith(("node_updates", "state_updates"))]


def test_b7_state_with_unused_networks_loads_strictly() -> None:
    name = "ssm_corr2"
    stored = state_dict(name)
    assert [key for key in stored if key.startswith(PLAIN_STATE)]
    model = reference_model(name)
    plain = {key: value for key, value in stored.items() if not key.startswith(PLAIN_STATE)}
    model.load_state_dict(plain)  # the state of MACE's own ScaleShiftMACE
    with pytest.raises(RuntimeError, match="node_updates_"):
        model.load_state_dict({**stored, "node_updates_": torch.ones(1)})
    with pytest.raises(RuntimeError, match="products.0.linear.weight"):
        model.load_state_dict(
            {key: value for key, value in stored.items() if key != "products.0.linear.weight"}
        )


def test_b7_an_electron_model_needs_its_mean() -> None:
    stored = state_dict("fermi_16")
    del stored["mean_electron"]
    with pytest.raises(RuntimeError, match="mean_electron"):
        reference_model("fermi_16").load_state_dict(stored)


def test_b7_loading_leaves_the_given_state_alone() -> None:
    stored = state_dict("m16_ssm_reduced_cg")
    keys = list(stored)
    reference_model("m16_ssm_reduced_cg").load_state_dict(stored)
    assert list(stored) == keys and any(key.endswith("_zeroed") for key in keys)


@pytest.mark.parametrize(
    "name", ["ssm_default", "fermi_2heads", "fermi2_16", "fermi_unc_16", "ssm_density_residual"]
)
def test_state_has_the_names_and_shapes_of_the_original(name: str) -> None:
    def used(key: str) -> bool:
        return name == "fermi2_16" or not key.startswith(("node_updates.", "state_updates."))

    model = reference_model(name)
    ours = {key: value.shape for key, value in model.state_dict().items()}
    assert ours == {key: value.shape for key, value in state_dict(name).items() if used(key)}
    assert {key for key, _ in model.named_parameters()} == set(
        filter(used, case(name)["config"]["parameters"])
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_b20_tensors_follow_the_model_and_not_the_default(dtype: torch.dtype) -> None:
    model = small_models.fermi(dtype, pair_repulsion=True, distance_transform="Agnesi", pred_uncertainty=True)
    tensors = [*model.parameters(), *model.buffers()]
    assert {tensor.dtype for tensor in tensors if tensor.is_floating_point()} == {dtype}
    data = small_models.batch(dtype)
    outputs = []
    for default in ("float32", "float64"):
        with default_dtype(default):
            outputs.append(model(data, compute_stress=True))
    for key, value in outputs[0].items():
        if value is not None:
            assert value.dtype == dtype and torch.equal(value, outputs[1][key]), key


def test_single_precision_is_close_to_double() -> None:
    double = small_models.fermi()
    single = small_models.fermi().float()
    tolerance = relative("back end", torch.float32)
    for key in ("energy", "forces", "potential"):
        ours = single(small_models.batch(torch.float32))[key].double()
        torch.testing.assert_close(ours, double(small_models.batch())[key], rtol=tolerance, atol=tolerance)


def test_positions_that_require_gradient_stay_connected() -> None:
    data = small_models.batch()
    data["positions"].requires_grad_(True)
    output = small_models.scale_shift()(data, compute_force=False)
    (gradient,) = torch.autograd.grad(output["energy"].sum(), data["positions"])
    data["positions"] = data["positions"].detach()
    torch.testing.assert_close(-gradient, small_models.scale_shift()(data)["forces"])


def test_contributions_add_up() -> None:
    output = small_models.mace(pair_repulsion=True)(small_models.batch())
    assert output["contributions"].shape == (2, 4)
    torch.testing.assert_close(output["contributions"].sum(1), output["energy"])


def test_energies_of_the_atoms_add_up() -> None:
    output = small_models.fermi()(small_models.batch())
    expected = torch.stack([output["node_energy"][:3].sum(), output["node_energy"][3:].sum()])
    torch.testing.assert_close(output["energy"], expected)
    e0 = torch.tensor([-4.0, -6.0], dtype=torch.float64)
    torch.testing.assert_close(output["energy"] - output["interaction_energy"], e0)


def test_registries() -> None:
    assert set(modules.gate_dict) == {"abs", "tanh", "silu", "None"}
    assert set(modules.scaling_classes) == {"std_scaling", "rms_forces_scaling", "rms_dipoles_scaling"}
    assert all(name == cls.__name__ for name, cls in modules.interaction_classes.items())
