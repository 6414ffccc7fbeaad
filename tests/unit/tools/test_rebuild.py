"""Models rebuilt from their configuration and state: faithful, or refused with the reason."""

import copy
import inspect
import json
import pickle

import e3nn
import e3nn.util.jit
import numpy as np
import pytest
import torch
from e3nn import o3
from e3nn.util.jit import compile_mode

from mace.modules.models import MACE, ScaleShiftMACE
from mace.tools import default_dtype
from mace.tools.rebuild import (
    RebuildError,
    disable_e3nn_codegen,
    extract_config_mace_model,
    rebuild,
    recorded_config,
    records_config,
    restore_model,
)
from mace.tools.same import differences, same_bits
from mace.tools.saving import check_copy
from tests import small_models


@records_config
@compile_mode("script")
class Outer(torch.nn.Module):
    """Documented."""

    def __init__(
        self, irreps: o3.Irreps, width: int = 3, gate=torch.nn.functional.silu, labels=("a", "b")
    ) -> None:
        super().__init__()
        self.harmonics = o3.SphericalHarmonics("1x0e + 1x1o", normalize=True, normalization="component")
        self.linear = o3.Linear("1x0e + 1x1o", irreps)
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scaled features."""
        return self.linear(self.harmonics(x)) * self.width


@records_config
@compile_mode("script")
class Inner(Outer):
    def __init__(self, shift: float, **kwargs) -> None:
        super().__init__(labels=("fixed",), **kwargs)
        self.register_buffer("shift", torch.tensor(shift))


class Undecorated(Outer):
    pass


@pytest.fixture(scope="module")
def unchanged():
    return small_models.fermi()


@pytest.fixture
def model(unchanged):
    """A model that the test may change."""
    return rebuild(unchanged)


# ---- recording


def test_the_outermost_constructor_records_all_arguments():
    inner = Inner(0.5, irreps=o3.Irreps("2x0e"), width=4)
    record = recorded_config(inner)
    assert record["class"].endswith("Inner")
    assert record["arguments"] == {
        "shift": 0.5,
        "irreps": {"$irreps": "2x0e"},
        "width": 4,
        "gate": {"$function": "torch.nn.functional.silu"},
    }
    assert record["built_with"]["e3nn"] == e3nn.__version__


def test_positional_arguments_and_defaults_are_recorded_by_name():
    assert extract_config_mace_model(Outer(o3.Irreps("1x0e"), 7)) == {
        "irreps": o3.Irreps("1x0e"),
        "width": 7,
        "gate": torch.nn.functional.silu,
        "labels": ("a", "b"),
    }


def test_the_decorated_class_is_the_same_class():
    assert Outer.__name__ == "Outer" and Outer.__doc__ == "Documented." and Outer.__module__ == __name__
    assert list(inspect.signature(Outer).parameters) == ["irreps", "width", "gate", "labels"]
    assert e3nn.util.jit.get_compile_mode(Outer(o3.Irreps("1x0e"))) == "script"
    with pytest.raises(TypeError, match="wdith"):
        Outer(o3.Irreps("1x0e"), width=1, **{"wdith": 2})


def test_arguments_are_recorded_as_they_were_given():
    labels = ["a"]
    model = Outer(o3.Irreps("1x0e"), labels=labels)
    labels.append("b")
    assert extract_config_mace_model(model)["labels"] == ["a"]


def test_an_argument_without_plain_form_is_named_when_it_matters():
    model = Outer(o3.Irreps("1x0e"), gate=lambda x: x)
    with pytest.raises(RebuildError, match="'gate'"):
        rebuild(model)


@pytest.mark.parametrize("model", [torch.nn.Linear(1, 1), Undecorated(o3.Irreps("1x0e"))])
def test_a_class_that_does_not_record_is_named(model):
    with pytest.raises(RebuildError, match=type(model).__name__):
        rebuild(model)


def test_b4_the_configuration_of_a_fermi_model_is_complete(model):
    config = extract_config_mace_model(model)
    wanted = {"electron_input", "potential_output", "use_global_state", "pred_uncertainty", "pred_evidential"}
    assert wanted | {"mean_electron", "mean_potential", "heads", "radial_type"} <= config.keys()
    with default_dtype("float64"):
        twin = type(model)(**config)
    twin.load_state_dict(model.state_dict(), strict=True)
    batch = small_models.batch()
    for key in ("energy", "forces", "potential"):
        assert torch.equal(twin(dict(batch))[key], model(dict(batch))[key])


@pytest.mark.parametrize("radial_type", ["gaussian", "chebyshev"])
def test_b5_other_radial_bases_have_a_configuration(radial_type):
    model = small_models.scale_shift(radial_type=radial_type)
    assert extract_config_mace_model(model)["num_bessel"] == 4
    assert not differences(model, rebuild(model))


# ---- rebuilding


def test_the_live_model_holds_generated_code_and_the_copy_does_not(unchanged):
    def scripted(model):
        modules = [part for part in model.modules() if isinstance(part, torch.jit.ScriptModule)]
        functions = [
            v
            for part in model.modules()
            for v in vars(part).values()
            if isinstance(v, torch.jit.ScriptFunction)
        ]
        return modules + functions

    assert bool(scripted(unchanged)) == (e3nn.get_optimization_defaults()["jit_mode"] == "script")
    assert not scripted(rebuild(unchanged))


@pytest.mark.parametrize("build", [small_models.mace, small_models.scale_shift, small_models.fermi])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_copy_is_the_same_model(build, dtype):
    model = build(dtype)
    twin = rebuild(model)
    assert type(twin) is type(model) and not differences(model, twin)
    assert all(tensor.dtype == dtype for tensor in twin.state_dict().values() if tensor.is_floating_point())
    assert check_copy(model, twin, small_models.batch(dtype)) <= 1e-6


def test_the_copy_is_independent(model):
    twin = rebuild(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert not differences(model, rebuild(model))
    assert differences(model, twin)


def test_flags_are_kept(model):
    model.eval()
    model.interactions[0].train()
    frozen = [name for name, p in model.named_parameters() if name.startswith("node_embedding")]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    twin = rebuild(model)
    assert [n for n, p in twin.named_parameters() if not p.requires_grad] == frozen
    assert not twin.training and twin.interactions[0].training and twin.interactions[0].linear.training
    assert not differences(model, twin)


def test_mixed_dtypes_are_kept(model):
    model.scale_shift.float()
    assert rebuild(model).scale_shift.scale.dtype == torch.float32
    assert not differences(model, rebuild(model))


@pytest.mark.parametrize("default", ["float32", "float64"])
def test_a_converted_model_is_rebuilt_whatever_the_default_dtype(model, default):
    converted = rebuild(model).float()
    with default_dtype(default):
        assert not differences(converted, rebuild(converted))
        assert not differences(model, rebuild(model))


def test_nothing_of_the_process_changes(model, caplog):
    before = (
        torch.get_rng_state(),
        np.random.get_state()[1].copy(),
        torch.get_default_dtype(),
        e3nn.get_optimization_defaults(),
    )
    rebuild(model)
    after = (
        torch.get_rng_state(),
        np.random.get_state()[1],
        torch.get_default_dtype(),
        e3nn.get_optimization_defaults(),
    )
    assert (
        torch.equal(before[0], after[0]) and np.array_equal(before[1], after[1]) and before[2:] == after[2:]
    )
    assert not caplog.records


def test_code_generation_comes_back_after_an_exception():
    before = e3nn.get_optimization_defaults()
    with pytest.raises(KeyError), disable_e3nn_codegen():
        off = e3nn.get_optimization_defaults()
        assert not off["jit_script_fx"] and off.get("jit_mode", "eager") == "eager"
        raise KeyError
    assert e3nn.get_optimization_defaults() == before


def test_the_wrapper_of_distributed_training_is_taken_off(model, monkeypatch):
    from mace.tools import rebuild as module

    class Wrapper(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    monkeypatch.setattr(module, "DistributedDataParallel", Wrapper)
    assert not differences(model, rebuild(Wrapper(model)))


def _edit(name):
    def change(model):
        edits = {
            "submodule": lambda: model.add_module("extra", torch.nn.Identity()),
            "layer": lambda: model.interactions[0].add_module("lora", torch.nn.Linear(2, 2)),
            "avg_num_neighbors": lambda: setattr(model.interactions[0], "avg_num_neighbors", 11.0),
            "heads": lambda: setattr(model, "heads", ["other"]),
            "new_attribute": lambda: setattr(model, "new_attribute", 3),
            "class": lambda: setattr(model, "scale_shift", torch.nn.Identity()),
            "hooks": lambda: model.products[0].register_forward_hook(lambda *_: None),
            "buffer": lambda: model.register_buffer("buffer", torch.zeros(2), persistent=False),
        }
        edits[name]()

    return change


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ("submodule", "'extra'"),
        ("layer", "lora"),
        ("avg_num_neighbors", r"interactions.0.avg_num_neighbors is 11.0, its configuration gives 3.7"),
        ("heads", "heads"),
        ("new_attribute", "new_attribute"),
        ("class", "scale_shift"),
        ("hooks", "products.0.forward_hooks"),
        ("buffer", "'buffer'"),
    ],
)
def test_what_a_copy_would_lose_is_an_error(model, edit, named):
    _edit(edit)(model)
    with pytest.raises(RebuildError, match=named) as caught:
        rebuild(model)
    assert "\n" not in str(caught.value)
    with pytest.raises(RebuildError):
        pickle.dumps(model)


def test_private_bookkeeping_of_others_is_no_obstacle(model):
    model._their_mark = object()
    rebuild(model)


# ---- pickling


def test_deepcopy_and_pickle_give_the_same_model(model):
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not differences(model, twin)


def test_unfit_descriptions_are_refused():
    model = small_models.scale_shift()
    function, (text, state) = model.__reduce__()
    assert function is restore_model
    good = json.loads(text)
    for change in (
        {"format": 99},
        {"class": "torch.nn.Linear"},
        {"class": 3},
        {"arguments": {}},
        {"arguments": {**good["arguments"], "no_such": 1}},
        {"arguments": {**good["arguments"], "num_interactions": 3}},
    ):
        with pytest.raises(RebuildError) as caught:
            restore_model(json.dumps({**good, **change}), state)
        assert "\n" not in str(caught.value)
    for broken in ("", "[]", "{}", "null", json.dumps({"format": 1}), None, 3):
        with pytest.raises(RebuildError):
            restore_model(broken, state)
    for broken in ({}, [], {"a": 1}, {**state, "extra": torch.zeros(1)}):
        with pytest.raises(RebuildError):
            restore_model(text, broken)


def test_another_e3nn_version_is_reported(model, monkeypatch):
    saved = pickle.dumps(model)
    monkeypatch.setattr(e3nn, "__version__", "9.9")
    with pytest.warns(UserWarning, match=r"built with e3nn .* this is 9.9"):
        twin = pickle.loads(saved)
    assert recorded_config(twin)["built_with"] == recorded_config(model)["built_with"]


def test_both_public_classes_record():
    for cls in (MACE, ScaleShiftMACE):
        assert "r_max" in inspect.signature(MACE).parameters and cls.__reduce__ is not object.__reduce__


def test_bits_of_an_expanded_element_are_compared():
    one = torch.ones(1)
    assert same_bits(one.as_strided((1,), (0,)), one)
    assert not same_bits(one.as_strided((1,), (0,)), -one)
