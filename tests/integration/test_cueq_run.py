"""A training with cuEquivariance on two ranks ends with e3nn models equal to the live model."""

from __future__ import annotations

import pytest
import torch

from mace.tools.kernels import to_cueq
from mace.tools.loading import load_model
from mace.tools.rebuild import extract_config_mace_model, recorded_config
from mace.tools.same import same_bits
from tests import small_models
from tests.harness import CP, tiny_data, two
from tests.tolerances import relative

MODELS = {
    "FermiMACE": CP,
    "ScaleShiftMACE": ("--model=ScaleShiftMACE", "--num_interactions=3", "--correlation=3"),
}


@pytest.mark.multirank
@pytest.mark.parametrize("name", ["FermiMACE", pytest.param("ScaleShiftMACE", marks=pytest.mark.slow)])
def test_what_is_saved_equals_the_live_model(name, tmp_path):
    tiny_data(tmp_path)
    two([*MODELS[name], "--name=m", "--enable_cueq=True"], tmp_path).succeeded()
    saved = load_model(tmp_path / "m.model")
    assert recorded_config(saved)["arguments"]["cueq_config"] is None
    live = to_cueq(saved, extract_config_mace_model(saved))
    checkpoints = (tmp_path / "checkpoints").glob("m_run-1_epoch-*.pt")
    newest = max(checkpoints, key=lambda path: int(path.stem.rpartition("-")[2]))
    trained = torch.load(newest, weights_only=True)["model"]
    assert trained.keys() == saved.state_dict().keys()
    assert all(same_bits(tensor, saved.state_dict()[key]) for key, tensor in trained.items())
    live.load_state_dict(trained)
    expected, found = live(small_models.batch()), saved(small_models.batch())
    for key in ("energy", "forces", "potential"):
        if expected.get(key) is not None:
            allowed = relative("back end") * expected[key].detach().abs().max().clamp(min=1.0)
            assert (found[key] - expected[key]).abs().max() <= allowed, key
