"""A model of one head computes what the model of several computes for that head, for any number of layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mace.exceptions import InputError
from mace.tools.head_selection import remove_pt_head
from tests import small_models
from tests.tolerances import relative

HEADS: dict[str, Any] = {
    "heads": ["pt_head", "a", "b"],
    "atomic_energies": [[-1.0, -2.0], [-3.0, -4.0], [-5.0, -6.5]],
    "atomic_inter_scale": [1.7, 0.6, 0.9],
    "atomic_inter_shift": [0.3, -0.2, 0.1],
}
MODELS = {
    "one layer": {"num_interactions": 1},
    "two layers": {},
    "three layers": {"num_interactions": 3},
    "Fermi level": {"electron_input": True, "potential_output": True},
    "four scalars": {"MLP_irreps": "4x0e", "hidden_irreps": "3x0e + 3x1o"},
}


@pytest.mark.parametrize("kept", ["pt_head", "a", "b", None])
@pytest.mark.parametrize("name", MODELS)
def test_c8_one_head_of_several(name: str, kept: str | None) -> None:
    model = small_models.scale_shift(**HEADS, **MODELS[name])
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    found = remove_pt_head(model, kept)
    index = HEADS["heads"].index(kept) if kept else 1
    assert found.heads == [HEADS["heads"][index]]
    batch = small_models.batch()
    expected = model({**batch, "head": torch.full((2,), index)})
    output = found({**batch, "head": torch.zeros(2, dtype=torch.long)})
    for key in ("energy", "forces", "node_energy", "potential"):
        if expected[key] is not None:
            largest = expected[key].abs().max()
            assert (output[key] - expected[key]).abs().max() <= relative("back end") * largest, key
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def test_a_plain_mace_keeps_its_dtype_and_what_trains() -> None:
    options = {key: HEADS[key] for key in ("heads", "atomic_energies")}
    model = small_models.mace(torch.float32, **options).eval()
    model.node_embedding.requires_grad_(False)
    found = remove_pt_head(model, "b")
    assert {tensor.dtype for tensor in found.parameters()} == {torch.float32} and not found.training
    assert [name for name, parameter in found.named_parameters() if not parameter.requires_grad] == [
        "node_embedding.linear.weight"
    ]


def test_heads_that_are_not_there() -> None:
    with pytest.raises(InputError, match="one head only, 'default'"):
        remove_pt_head(small_models.scale_shift())
    with pytest.raises(ValueError, match="'c' is not one of the model's: pt_head, a, b"):
        remove_pt_head(small_models.scale_shift(**HEADS), "c")
