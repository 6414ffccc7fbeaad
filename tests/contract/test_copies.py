"""Every way to get a second model from a first one, for every class: it is the same model."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mace.tools.kernels import to_cueq, to_e3nn
from mace.tools.loading import load_model
from mace.tools.rebuild import disable_e3nn_codegen, extract_config_mace_model, rebuild
from mace.tools.same import differences
from mace.tools.saving import save_compiled, save_model
from tests import small_models
from tests.small_models import MODELS
from tests.tolerances import relative

Copier = Callable[[torch.nn.Module], torch.nn.Module]
COPIERS: dict[str, Copier] = {
    "rebuild": rebuild,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}
ROOT = Path(__file__).resolve().parents[2]
# What another process does with the saved models of a folder.
READER = """
import sys
from pathlib import Path
import torch
from mace.tools.loading import load_model
from tests import small_models
for path in sorted(Path(sys.argv[1]).glob("*.model")):
    model = load_model(path)
    state = {name: tensor for name, tensor in model.state_dict().items()}
    outputs = small_models.outputs(model, small_models.batch())
    trains = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    training = {name: module.training for name, module in model.named_modules()}
    torch.save((state, outputs, trains, training), path.with_suffix(".read"))
"""


def marked(model: torch.nn.Module) -> torch.nn.Module:
    """With one frozen part and one part in training mode, which a copy has to keep."""
    model.eval()
    model.interactions[0].train()
    model.node_embedding.requires_grad_(False)
    return model


def same_outputs(ours: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    if ours.keys() != expected.keys():
        return False
    return all(
        value.dtype == expected[key].dtype
        and float((value - expected[key]).abs().max())
        <= relative("another program") * max(float(expected[key].abs().max()), 1.0)
        for key, value in ours.items()
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("copier", COPIERS)
def test_copies_in_memory(name: str, copier: str) -> None:
    model = marked(MODELS[name]())
    twin = COPIERS[copier](model)
    assert type(twin) is type(model) and not differences(model, twin)
    data = small_models.batch()
    assert same_outputs(small_models.outputs(twin, data), small_models.outputs(model, data))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of every model, and with what another process read and computed from it."""
    folder = tmp_path_factory.mktemp("models")
    for name, build in MODELS.items():
        model = marked(build())
        save_model(rebuild(model), folder / f"{name}.model", live=model, probe=small_models.batch())
    subprocess.run([sys.executable, "-c", READER, str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_save_and_load_in_a_fresh_process(name: str, saved: Path) -> None:
    model = marked(MODELS[name]())
    state, outputs, trains, training = torch.load(saved / f"{name}.read", weights_only=True)
    assert list(state) == list(model.state_dict())
    assert all(torch.equal(tensor, state[key]) for key, tensor in model.state_dict().items())
    assert trains == {key: parameter.requires_grad for key, parameter in model.named_parameters()}
    kept = dict(model.named_modules()).keys() & training.keys()
    assert "interactions.0" in kept and all(
        dict(model.named_modules())[key].training == training[key] for key in kept
    )
    assert same_outputs(outputs, small_models.outputs(model, small_models.batch()))


@pytest.mark.parametrize("name", MODELS)
def test_torchscript(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    path, probe = tmp_path / "compiled.model", small_models.batch()
    assert save_compiled(rebuild(model), path, live=model, probe=probe)
    compiled = load_model(path)
    assert isinstance(compiled, torch.jit.ScriptModule)
    expected = small_models.outputs(model, probe)
    flags = small_models.derivatives(model)
    for _ in range(3):  # TorchScript optimises the second and third call
        found = {key: value for key, value in compiled(probe, **flags).items() if value is not None}
        assert same_outputs({key: value.detach() for key, value in found.items()}, expected)


@pytest.mark.parametrize("name", MODELS)
def test_single_precision_and_back(name: str) -> None:
    model = MODELS[name]()
    single = rebuild(model).float()
    assert {t.dtype for t in single.state_dict().values() if t.is_floating_point()} == {torch.float32}
    assert not differences(single, rebuild(single))
    expected = small_models.outputs(model, small_models.batch())
    found = small_models.outputs(single, small_models.batch(torch.float32))
    tolerance = relative("back end", torch.float32)
    for key, value in found.items():
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), expected[key], rtol=tolerance, atol=tolerance)
    double = small_models.outputs(single.double(), small_models.batch())
    for key, value in double.items():
        assert value.dtype == torch.float64
        torch.testing.assert_close(value, expected[key], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_on_the_other_back_end_and_back(name: str) -> None:
    model = marked(MODELS[name]())
    config, data = extract_config_mace_model(model), small_models.batch()
    other = to_cueq(model, config)
    assert same_outputs(small_models.outputs(other, data), small_models.outputs(model, data))
    with disable_e3nn_codegen():
        assert not differences(model, to_e3nn(other, config))
