"""The models: arguments they refuse, states they read, precision they follow, and repaired defects."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mace import modules
from mace.exceptions import InputError
from mace.modules import MACE, ScaleShiftMACE
from mace.tools.rebuild import rebuild
from mace.tools.torch_geometric import Data
from mace.tools.torch_tools import default_dtype
from tests import small_models
from tests.reference import case, state_dict
from tests.reference_models import batch as reference_batch
from tests.reference_models import build as reference_model
from tests.small_models import arguments
from tests.tolerances import relative

_SCALING = {"scale": 1.7, "shift": 0.3}
PLAIN_SCALINGTATE = ("node_updates", "state_updates", "mean_")


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
        ({"heads": [None]}, "the name of a head is text"),
        ({"max_ell": 12}, "max_ell is 12: e3nn has spherical harmonics up to 11"),
        ({"atomic_numbers": [1, 6, 8]}, "atomic_numbers has 3"),
        ({"use_so3": True}, "use_so3=True is not supported"),
        ({"keep_last_layer_irreps": True}, "not supported for several layers"),
        ({"interaction_cls": None}, "None is not an interaction block"),
    ],
)
def test_b12_arguments_that_cannot_work_are_refused_in_one_line(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        MACE(**arguments(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("keep", "expected"), [(None, 8), (True, 8), (False, 2)])
def test_a_single_layer_keeps_scalars_only_where_mace_torch_says_so(keep: bool | None, expected: int) -> None:
    option = {} if keep is None else {"keep_last_layer_irreps": keep}
    model = MACE(**arguments(num_interactions=1, **option))
    assert model.products[0].linear.irreps_out.dim == expected
    assert rebuild(model).products[0].linear.irreps_out.dim == expected


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
    MACE(**arguments(), hidden_scalar_dim=256, apply_cutoff=True)


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
    assert [key for key in stored if key.startswith(PLAIN_SCALINGTATE)]
    model = reference_model(name)
    plain = {key: value for key, value in stored.items() if not key.startswith(PLAIN_SCALINGTATE)}
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


# Two-body messages


@pytest.mark.parametrize("name", ["BOTNet", "ScaleShiftBOTNet"])
def test_b8_botnet_is_built_and_takes_a_batch_object(name: str) -> None:
    model = small_models.MODELS[name]()
    data = small_models.batch()
    output = model(Data(**data))
    assert all(torch.equal(output[key], value) for key, value in model(data).items() if value is not None)


def test_botnet_has_elements_and_cutoff_as_attributes_and_not_in_its_state() -> None:
    model = small_models.botnet(r_max=4.1)
    assert model.r_max == 4.1 and model.num_interactions == 2 and model.atomic_numbers.tolist() == [1, 8]
    assert not {"r_max", "num_interactions", "atomic_numbers"} & set(model.state_dict())


def test_botnet_scale_and_shift() -> None:
    plain, scaled = (
        small_models.botnet(),
        small_models.scale_shift_botnet(interaction_cls="AgnosticResidualNonlinearInteractionBlock"),
    )
    scaled.load_state_dict(
        {**plain.state_dict(), **{f"scale_shift.{k}": torch.tensor(v) for k, v in _SCALING.items()}}
    )
    plain_output, output = plain(small_models.batch()), scaled(small_models.batch())
    e0, counts = torch.tensor([-4.0, -6.0]).double(), torch.tensor([3.0, 4.0]).double()
    expected = _SCALING["scale"] * (plain_output["energy"] - e0) + _SCALING["shift"] * counts
    torch.testing.assert_close(output["interaction_energy"], expected)
    torch.testing.assert_close(output["energy"], e0 + expected)
    torch.testing.assert_close(output["forces"], _SCALING["scale"] * plain_output["forces"])
    torch.testing.assert_close(plain_output["contributions"].sum(1), plain_output["energy"])
    assert plain_output["contributions"].shape == (2, 3)


@pytest.mark.parametrize(
    ("build", "block", "message"),
    [
        (small_models.botnet, "RealAgnosticInteractionBlock", "is a block of MACE models only; .*Element"),
        (small_models.mace, "AgnosticNonlinearInteractionBlock", "is a block of BOTNet models only; .*Real"),
        (small_models.energy_dipoles, "ResidualElementDependentInteractionBlock", "is .* BOTNet models only"),
    ],
)
@pytest.mark.parametrize("place", ["interaction_cls", "interaction_cls_first"])
def test_blocks_of_the_other_family_are_refused(
    build: Callable[..., torch.nn.Module], block: str, message: str, place: str
) -> None:
    with pytest.raises(InputError, match=f"{place} {block} {message}"):
        build(**{place: block})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_ell": 0}, "max_ell 0"),
        ({"atomic_energies": [[-1.0, -2.0], [-3.0, -4.0]]}, "1 heads"),
        ({"atomic_inter_scale": [1.0, 2.0]}, "atomic_inter_scale .*one number"),
        ({"hidden_irreps": "4x1o"}, "must start with scalars"),
    ],
)
def test_botnet_refuses_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        small_models.scale_shift_botnet(**changes)
    assert "\n" not in str(caught.value)


# Dipoles


@pytest.mark.parametrize("name", ["AtomicDipolesMACE", "EnergyDipolesMACE"])
def test_b10_every_layer_contributes_to_the_dipole(name: str) -> None:
    model = small_models.MODELS[name]()
    data = small_models.batch()
    whole = model(data)["atomic_dipoles"]
    with torch.no_grad():
        model.readouts[0].linear.weight.zero_()
    last = model(data)["atomic_dipoles"]
    assert 1e-6 < float((last.norm() / whole.norm()).detach()) < 1.0  # new weights make the last ones small


@pytest.mark.parametrize(
    ("build", "changes", "message"),
    [
        (small_models.atomic_dipoles, {"MLP_irreps": "16x0e"}, "must be scalars and vectors, like 16x0e"),
        (small_models.energy_dipoles, {"MLP_irreps": "16x0e"}, "must be scalars and vectors, like 16x0e"),
        (small_models.energy_dipoles, {"MLP_irreps": "16x1o"}, "must be scalars and vectors, like 16x0e"),
        (small_models.energy_dipoles, {"MLP_irreps": "4x0e + 4x1o + 4x2e"}, "must be scalars and vectors"),
        (small_models.atomic_dipoles, {"hidden_irreps": "4x0e"}, "like 32x0e . 32x1o: dipoles"),
        (small_models.atomic_dipoles, {"atomic_energies": [1.0, 2.0]}, "atomic_energies must be None"),
    ],
)
def test_b10_dipole_models_refuse_in_one_line(
    build: Callable[..., torch.nn.Module], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        build(**changes)
    assert "\n" not in str(caught.value)


def test_b10_the_readout_of_upstream_is_there_for_its_weights(caplog: pytest.LogCaptureFixture) -> None:
    model = small_models.atomic_dipoles(MLP_irreps="2x1o")  # runs upstream, so its weights have to load
    assert "give 16x0e + 16x1o" in caplog.text and "\n" not in caplog.records[0].getMessage()
    data = small_models.batch()
    before = model(data)["atomic_dipoles"]
    with torch.no_grad():
        model.readouts[0].linear.weight.zero_()
    assert before.any() and not model(data)["atomic_dipoles"].any()
    caplog.clear()
    small_models.atomic_dipoles(MLP_irreps="2x1o", upstream_readout=True)
    assert not caplog.records


def test_b9_dipole_models_take_what_all_models_take() -> None:
    for build in (small_models.atomic_dipoles, small_models.energy_dipoles, small_models.botnet):
        keywords = list(inspect.signature(build().forward).parameters)
        assert keywords == list(inspect.signature(ScaleShiftMACE.forward).parameters)[1:]
    model = small_models.atomic_dipoles()
    off = dict.fromkeys(("compute_force", "compute_virials", "compute_stress"), False)
    assert model(small_models.batch(), training=True, compute_potential=True, **off)["dipole"].shape == (2, 3)


@pytest.mark.parametrize(
    "flag",
    ["compute_force", "compute_virials", "compute_stress", "compute_displacement", "compute_hessian"],
)
def test_dipoles_alone_have_no_derivatives(flag: str) -> None:
    with pytest.raises(ValueError, match="no energy"):
        small_models.atomic_dipoles()(small_models.batch(), **{flag: True})


@pytest.mark.parametrize("build", [small_models.atomic_dipoles, small_models.energy_dipoles])
def test_dipole_models_name_what_is_missing(build: Callable[..., torch.nn.Module]) -> None:
    data = small_models.batch()
    del data["charges"]
    with pytest.raises(ValueError, match="charges"):
        build()(data)


def test_b11_energies_of_the_atoms_are_whole() -> None:
    output = small_models.energy_dipoles()(small_models.batch())
    expected = torch.stack([output["node_energy"][:3].sum(), output["node_energy"][3:].sum()])
    torch.testing.assert_close(output["energy"], expected)
    torch.testing.assert_close(output["contributions"].sum(1), expected)
    assert not torch.allclose(output["contributions"][:, 0], expected)


@pytest.mark.parametrize("build", [small_models.atomic_dipoles, small_models.energy_dipoles])
def test_the_dipole_is_that_of_the_charges_and_of_the_atoms(build: Callable[..., torch.nn.Module]) -> None:
    data = small_models.batch()
    output = build()(data)
    debye = 1.602176634e-29 / (1e-21 / 299792458)  # 1 e Angstrom, over 1e-21 C m^2/s / c
    moments = debye * data["charges"].unsqueeze(1) * data["positions"] + output["atomic_dipoles"]
    torch.testing.assert_close(output["dipole"], torch.stack([moments[:3].sum(0), moments[3:].sum(0)]))
    data["charges"] = 0.0 * data["charges"]
    dipoles = build()(data)["atomic_dipoles"]
    assert torch.equal(dipoles, output["atomic_dipoles"])


def test_registries() -> None:
    assert len(modules.interaction_classes) == 8
    assert set(modules.gate_dict) == {"abs", "tanh", "silu", "None"}
    assert set(modules.scaling_classes) == {"std_scaling", "rms_forces_scaling", "rms_dipoles_scaling"}
    assert all(name == cls.__name__ for name, cls in modules.interaction_classes.items())
