"""From a plan and statistics to a model: class, keywords, dtype, log lines."""

import json
import logging

import numpy as np
import pytest
import torch

from mace.modules import ScaleShiftMACE
from mace.modules.blocks import RealAgnosticInteractionBlock, RealAgnosticResidualInteractionBlock
from mace.tools.model_building import READOUT_GAIN, build_model, log_model, model_class_and_config
from mace.tools.statistics import Statistics
from mace.tools.utils import AtomicNumberTable
from tests.tiny_run import FERMI, make_plan, write_frames

pytestmark = pytest.mark.filterwarnings("ignore:The TorchScript type system:UserWarning")


@pytest.fixture
def folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 1)
    return tmp_path


def two_head_statistics(**changes):
    values = {
        "z_table": AtomicNumberTable([1, 8]),
        "heads": ("a", "b"),
        "atomic_energies": np.array([[-1.0, -2.0], [-1.5, -2.5]]),
        "avg_num_neighbors": 3.5,
        "mean": np.array([-0.25, -0.5]),
        "std": np.array([1.5, 2.5]),
        "mean_electron": 0.125,
        "mean_potential": -3.5,
    }
    return Statistics(**{**values, **changes})


def config_of(folder, **flags):
    return model_class_and_config(make_plan(folder, **flags).model, two_head_statistics())


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One model of every name; building takes its time."""
    folder = tmp_path_factory.mktemp("data")
    write_frames(folder / "train.xyz", 1)
    flags = {"MACE": {}, "ScaleShiftMACE": {"model": "ScaleShiftMACE"}, "FermiMACE": FERMI}
    return {name: build_model(*config_of(folder, **given), "float64") for name, given in flags.items()}


def test_the_keywords_are_plain_json(folder):
    _, config = config_of(folder, **FERMI)
    assert json.loads(json.dumps(config)) == config


@pytest.mark.parametrize("name", ["MACE", "ScaleShiftMACE", "FermiMACE"])
def test_statistics_and_heads_reach_the_model(models, name):
    model = models[name]
    assert type(model) is ScaleShiftMACE
    assert model.scale_shift.scale.tolist() == [1.5, 2.5]
    assert model.scale_shift.shift.tolist() == ([-0.25, -0.5] if name == "ScaleShiftMACE" else [0.0, 0.0])
    assert model.heads == ["a", "b"]
    assert model.atomic_numbers.tolist() == [1, 8]
    assert model.atomic_energies_fn.atomic_energies.tolist() == [[-1.0, -2.0], [-1.5, -2.5]]
    assert model.interactions[0].avg_num_neighbors == 3.5


def test_scale_shift_alone_keeps_a_residual_in_its_first_block(models):
    first = {name: type(model.interactions[0]) for name, model in models.items()}
    assert first == {
        "MACE": RealAgnosticInteractionBlock,
        "FermiMACE": RealAgnosticInteractionBlock,
        "ScaleShiftMACE": RealAgnosticResidualInteractionBlock,
    }
    for model in models.values():
        assert type(model.interactions[1]) is RealAgnosticResidualInteractionBlock


def test_a_fermi_model_has_electron_input_potential_output_and_the_means(models):
    model = models["FermiMACE"]
    assert model.electron_input and model.potential_output
    assert (model.mean_electron.item(), model.mean_potential.item()) == (0.125, -3.5)


def test_the_fermi_readout_starts_at_the_mean_and_sees_its_input(folder):
    cls, config = config_of(folder, **FERMI)
    torch.manual_seed(0)
    usual = cls(**config).double()
    torch.manual_seed(0)
    layers = build_model(cls, config, "float32").double().potential_output_layer
    inputs = torch.randn(5, layers[0].in_features, dtype=torch.float64)
    assert layers(inputs).squeeze(-1).tolist() == [-3.5] * 5
    torch.testing.assert_close(layers[0].weight, READOUT_GAIN * usual.potential_output_layer[0].weight)
    assert all(parameter.requires_grad for parameter in layers.parameters())


def test_readouts_of_the_global_state_keep_their_first_layer(folder):
    cls, config = config_of(folder, **{**FERMI, "model": "FermiMACE_2"})
    torch.manual_seed(0)
    usual = cls(**config).double()
    torch.manual_seed(0)
    layers = build_model(cls, config, "float32").double().potential_output_layer
    torch.testing.assert_close(layers[0].weight, usual.potential_output_layer[0].weight)
    assert not layers[-1].weight.any()


@pytest.mark.parametrize("variant", ["uncertainty", "evidential"])
def test_the_uncertainties_see_their_input_too(folder, variant):
    names = {"model": f"FermiMACE_{variant}", "loss": f"fermi_weighted_{variant}"}
    cls, config = config_of(folder, **{**FERMI, **names})
    torch.manual_seed(0)
    usual = dict(cls(**config).double().named_children())
    torch.manual_seed(0)
    built = dict(build_model(cls, config, "float32").double().named_children())
    readouts = [name for name in built if name.endswith("_output_layer")]
    assert len(readouts) == 3
    for name in readouts:
        torch.testing.assert_close(built[name][0].weight, READOUT_GAIN * usual[name][0].weight)
        assert not built[name][-1].weight.any() and torch.equal(built[name][-1].bias, usual[name][-1].bias)


@pytest.mark.parametrize("name", ["BOTNet", "ScaleShiftBOTNet", "AtomicDipolesMACE", "EnergyDipolesMACE"])
def test_the_other_classes_are_given_what_they_take(folder, name):
    losses = {"AtomicDipolesMACE": "dipole", "EnergyDipolesMACE": "energy_forces_dipole"}
    flags = {"model": name, "loss": losses.get(name), "MLP_irreps": None, "correlation": None}
    plan = make_plan(folder, **flags).model
    one_head = {"heads": ("a",), "atomic_energies": np.array([[-1.0, -2.0]])}
    statistics = two_head_statistics(**one_head, mean=np.array([-0.25]), std=np.array([1.5]))
    cls, config = model_class_and_config(plan, statistics)
    assert cls.__name__ == name and json.loads(json.dumps(config)) == config
    model = build_model(cls, config, "float64")
    assert model.interactions[1].avg_num_neighbors == 3.5 and float(model.r_max) == 4.0
    if name == "ScaleShiftBOTNet":
        assert (model.scale_shift.scale.tolist(), model.scale_shift.shift.tolist()) == ([1.5], [-0.25])
    if name == "AtomicDipolesMACE":
        assert config["atomic_energies"] is None and not hasattr(model, "atomic_energies_fn")
    else:
        assert model.atomic_energies_fn.atomic_energies.tolist() == [[-1.0, -2.0]]


def test_a_plain_model_has_neither(folder):
    _, config = config_of(folder)
    assert not {"electron_input", "potential_output", "mean_electron", "mean_potential"} & set(config)


def test_every_tensor_follows_the_dtype_and_the_default_is_restored(folder):
    before = torch.get_default_dtype()
    for dtype in ("float32", "float64"):
        model = build_model(*config_of(folder, **FERMI), dtype)
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        of_dtype = {name: t.dtype for name, t in tensors.items() if t.is_floating_point()}
        assert set(of_dtype.values()) == {getattr(torch, dtype)}
        assert torch.get_default_dtype() == before


def test_architecture_flags_reach_the_model(folder):
    flags = {
        "num_radial_basis": 6,
        "num_cutoff_basis": 7,
        "r_max": 4.5,
        "num_interactions": 1,
        "radial_MLP": "[16, 32]",
        "pair_repulsion": True,
        "distance_transform": "Agnesi",
        "radial_type": "gaussian",
        "gate": "tanh",
        "correlation": 1,
    }
    cls, config = config_of(folder, **flags)
    assert (config["gate"], config["correlation"], config["MLP_irreps"]) == ("tanh", 1, "4x0e")
    model = build_model(cls, config, "float64")
    state = model.state_dict()
    assert model.radial_embedding.out_dim == 6
    assert state["radial_embedding.cutoff_fn.p"] == 7
    assert state["r_max"] == 4.5 and state["num_interactions"] == 1
    assert state["interactions.0.conv_tp_weights.layer1.weight"].shape == (16, 32)
    for key in ("pair_repulsion_fn.c", "radial_embedding.distance_transform.q"):
        assert key in state
    assert "radial_embedding.bessel_fn.gaussian_weights" in state


def test_reduced_couplings_have_fewer_weights(folder):
    numbers = []
    for flags in ({}, {"use_reduced_cg": "True"}):
        model = build_model(*config_of(folder, correlation=3, **flags), "float64")
        numbers.append(sum(parameter.numel() for parameter in model.products.parameters()))
    assert numbers[1] < 0.7 * numbers[0]


def test_no_gate_is_none(folder):
    assert config_of(folder, gate="None")[1]["gate"] is None


def test_the_log_describes_the_model(folder, caplog):
    caplog.set_level(logging.INFO)
    log_model(make_plan(folder, scaling="no_scaling").model)
    assert caplog.messages == [
        "===========MODEL DETAILS===========",
        "No scaling selected",
        "Building model",
        "Message passing with 8 channels and max_L=1 (8x0e+8x1o)",
        "2 layers, each with correlation order: 2 (body order: 3) and spherical harmonics up to: l=2",
        "4 radial and 5 basis functions",
        "Radial cutoff: 4.0 A (total receptive field for each atom: 8.0 A)",
        "Distance transform for radial basis functions: None",
        "Hidden irreps: 8x0e+8x1o",
    ]
