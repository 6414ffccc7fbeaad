"""What checkpoints say about their model: plain data, compared entry by entry."""

import numpy as np
import pytest
import torch
from e3nn import o3

from mace.exceptions import InputError
from mace.modules.blocks import RealAgnosticInteractionBlock
from mace.tools.description import describe, require_same_model
from tests.small_models import fermi, scale_shift
from tests.toy_training import ToyModel

pytestmark = pytest.mark.filterwarnings("ignore:The TorchScript type system:UserWarning")


def complaint(checkpoint, model, description=None):
    with pytest.raises(InputError) as caught:
        require_same_model(checkpoint, model, description)
    message = str(caught.value)
    assert "\n" not in message and "use another --name" in message
    return message


def compare(saved, present):
    """Restart from a checkpoint that is described by ``saved``."""
    require_same_model({"description": saved}, ToyModel(), present)


def test_a_description_is_plain(tmp_path):
    config = {
        "interaction_cls": RealAgnosticInteractionBlock,
        "gate": torch.nn.functional.silu,
        "hidden_irreps": o3.Irreps("8x0e + 8x1o"),
        "atomic_energies": np.array([[-1.0, -2.0]]),
        "atomic_numbers": (np.int64(1), 8),
        "scale": torch.tensor(1.5),
        "heads": ["a"],
        "correlation": None,
        "pair_repulsion": True,
    }
    description = describe(ToyModel(), config)
    torch.save(description, tmp_path / "d.pt")
    assert torch.load(tmp_path / "d.pt", weights_only=True) == {
        "class": "ToyModel",
        "dtype": "float64",
        "interaction_cls": "RealAgnosticInteractionBlock",
        "gate": "silu",
        "hidden_irreps": "8x0e+8x1o",
        "atomic_energies": [[-1.0, -2.0]],
        "atomic_numbers": [1, 8],
        "scale": 1.5,
        "heads": ["a"],
        "correlation": None,
        "pair_repulsion": True,
    }


@pytest.mark.parametrize(
    ("saved", "present", "text"),
    [
        ({"r_max": 4.0}, {"r_max": 5.0}, "r_max 4.0 in the checkpoint, 5.0 in this run;"),
        ({"gate": "silu"}, {"gate": None}, "gate silu in the checkpoint, None in this run;"),
        (
            {"num_polynomial_cutoff": 5},
            {"num_polynomial_cutoff": 6},
            "num_polynomial_cutoff (--num_cutoff_basis) 5 in the checkpoint, 6 in this run;",
        ),
        (
            {"atomic_energies": [[-1.0, -2.0], [-1.0, -2.0]]},
            {"atomic_energies": [[-1.0, -2.5], [-1.0, -3.0]]},
            "atomic_energies[0][1] (--E0s) -2.0 in the checkpoint, -2.5 in this run and 1 more;",
        ),
        ({"heads": ["a"]}, {"heads": ["a", "b"]}, "heads ['a'] in the checkpoint, ['a', 'b'] in this run;"),
        ({}, {"mean_electron": 0.1}, "mean_electron None in the checkpoint, 0.1 in this run;"),
        (
            {"avg_num_neighbors": 10.0, "atomic_inter_scale": [1.0], "same": 1},
            {"avg_num_neighbors": 10.1, "atomic_inter_scale": [1.001], "same": 1},
            "atomic_inter_scale[0] (--scaling, --std) 1.0 in the checkpoint, 1.001 in this run, "
            "avg_num_neighbors 10.0 in the checkpoint, 10.1 in this run;",
        ),
    ],
)
def test_every_entry_that_differs_is_named(saved, present, text):
    assert f"another model: {text}" in complaint({"description": saved}, ToyModel(), present)


def test_long_values_are_shortened():
    saved, present = {"heads": ["a" * 500]}, {"heads": ["a"]}
    assert len(complaint({"description": saved}, ToyModel(), present)) < 300


def test_statistics_that_were_summed_in_another_order_are_the_same():
    compare({"avg_num_neighbors": 10.0}, {"avg_num_neighbors": 10.000001})
    compare({"atomic_inter_shift": [3e-16]}, {"atomic_inter_shift": [-1e-15]})
    compare({"avg_num_neighbors": 10}, {"avg_num_neighbors": 10.0})


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"r_max": 4.5}, "r_max 4.0 in the checkpoint, 4.5"),
        ({"atomic_numbers": [1, 6]}, "atomic_numbers[1] 8 in the checkpoint, 6"),
        ({"atomic_energies": [-1.0, -3.0]}, "atomic_energies_fn.atomic_energies[1] -2.0"),
        ({"atomic_inter_scale": 1.8}, "scale_shift.scale 1.7"),
        ({"num_polynomial_cutoff": 6}, "radial_embedding.cutoff_fn.p 5"),
    ],
)
def test_without_a_description_the_constants_in_the_state_are_compared(changes, name):
    assert name in complaint({"model": scale_shift().state_dict()}, scale_shift(**changes))


def test_constants_in_another_precision_or_shape_and_those_of_the_weights_are_the_same():
    saved = scale_shift(torch.float32).state_dict()
    saved["scale_shift.scale"] = saved["scale_shift.scale"].reshape(1)
    for name in saved:
        if "U_matrix" in name:
            saved[name] = -saved[name]  # e3nn 0.5 and later
    require_same_model({"model": saved}, scale_shift(), None)
    # Upstream measured them otherwise; what was trained with is in the state.
    require_same_model({"model": fermi().state_dict()}, fermi(mean_potential=-3.0, mean_electron=0.1), None)
