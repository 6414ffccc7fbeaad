"""Models between mace-torch 0.3.16 and this package: its pickles in ours, our state dicts in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mace.modules import ScaleShiftMACE
from mace.tools.exporting import export_model
from mace.tools.loading import load_model
from mace.tools.same import same_bits
from mace.tools.torch_tools import default_dtype
from tests import small_models
from tests.graphs import batch_of
from tests.tolerances import relative

pytestmark = pytest.mark.upstream
SCRIPT = Path(__file__).with_name("peer_interchange.py")
DOCUMENT = Path(__file__).parents[2] / "docs" / "interchange.md"
_PLAIN: dict[str, Any] = {
    **small_models.arguments(),
    "interaction_cls": "RealAgnosticResidualInteractionBlock",
    "interaction_cls_first": "RealAgnosticInteractionBlock",
    "atomic_energies": [-1.0, -2.0],
    "gate": "silu",
    "use_reduced_cg": False,
}
_SCALED = {**_PLAIN, "atomic_inter_scale": [1.7], "atomic_inter_shift": [0.3]}
_TWO_HEADS = {
    **_SCALED,
    "heads": ["a", "b"],
    "atomic_energies": [[-1.0, -2.0], [-3.0, -4.0]],
    "atomic_inter_scale": [1.7, 0.6],
    "atomic_inter_shift": [0.3, -0.2],
    "interaction_cls": "RealAgnosticDensityResidualInteractionBlock",
    "pair_repulsion": True,
    "distance_transform": "Agnesi",
    "max_ell": 2,
    "correlation": 3,
    "use_reduced_cg": True,
}
# 128x0e + 128x1o, as released models are
_LARGE = {
    **_SCALED,
    "hidden_irreps": "128x0e + 128x1o",
    "MLP_irreps": "16x0e",
    "max_ell": 3,
    "correlation": 3,
    "num_bessel": 8,
    "radial_MLP": [64, 64, 64],
}
_DIPOLES = {key: value for key, value in _PLAIN.items() if key != "use_reduced_cg"}
_DIPOLES |= {"hidden_irreps": "2x0e + 2x1o + 2x2e", "MLP_irreps": "3x0e + 2x1o", "max_ell": 2}
_NO_ENERGY = {**_DIPOLES, "MLP_irreps": "2x1o", "atomic_energies": None}  # scalars there: the peer stops
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("MACE", _PLAIN),
    "large": ("ScaleShiftMACE", _LARGE),
    "two_heads": ("ScaleShiftMACE", _TWO_HEADS),
    "chebyshev": ("MACE", {**_PLAIN, "radial_type": "chebyshev", "gate": "None"}),
    "soft": ("ScaleShiftMACE", {**_SCALED, "distance_transform": "Soft", "gate": "tanh"}),
    "gaussian": ("ScaleShiftMACE", {**_SCALED, "radial_type": "gaussian", "gate": "abs"}),
    "attention": ("MACE", {**_PLAIN, "interaction_cls": "RealAgnosticAttResidualInteractionBlock"}),
    "kept_scalars": ("MACE", {**_PLAIN, "num_interactions": 1, "keep_last_layer_irreps": False}),
    "one_layer": ("MACE", {**_PLAIN, "num_interactions": 1, "hidden_irreps": "2x0e"}),
    "layers": ("ScaleShiftMACE", {**_SCALED, "num_interactions": 3, "correlation": [3, 1, 2], "max_ell": 2}),
    "dipoles": ("AtomicDipolesMACE", {**_NO_ENERGY, "radial_type": "gaussian"}),
    "dipoles_one_layer": ("AtomicDipolesMACE", {**_NO_ENERGY, "num_interactions": 1}),
    "energy_dipoles": ("EnergyDipolesMACE", _DIPOLES),
    "energy_dipoles_one_layer": ("EnergyDipolesMACE", {**_DIPOLES, "num_interactions": 1}),
    "dipoles_ungated": ("AtomicDipolesMACE", {**_NO_ENERGY, "gate": "None"}),
    "energy_dipoles_of_scalars": ("EnergyDipolesMACE", {**_DIPOLES, "MLP_irreps": "5x0e"}),
    "energy_dipoles_ungated": ("EnergyDipolesMACE", {**_DIPOLES, "gate": "None"}),
    "energy_dipoles_layers": ("EnergyDipolesMACE", {**_DIPOLES, "num_interactions": 3, "gate": "tanh"}),
}
_ENERGIES = ("energy", "forces", "node_energy")
_MOMENTS = ("dipole", "atomic_dipoles")
COMPARED = {
    "MACE": _ENERGIES,
    "ScaleShiftMACE": _ENERGIES,
    "AtomicDipolesMACE": _MOMENTS,
    "EnergyDipolesMACE": ("energy", "forces", *_MOMENTS),  # its node energies: defect B11
}


def the_batch() -> dict[str, torch.Tensor]:
    molecule, cell = small_models.structures()
    batch = batch_of([molecule, cell], small_models.ELEMENTS, small_models.R_MAX)
    del batch["electron"]
    return {**batch, "head": torch.tensor([0, 1])}


def batch_for(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    batch = the_batch()
    return batch if len(model.heads) == 2 else {**batch, "head": torch.zeros(2, dtype=torch.long)}


def same_numbers(model: torch.nn.Module, folder: Path, name: str) -> None:
    """Energies and forces or dipoles of ``model`` are those that the peer wrote."""
    output = model(batch_for(model))
    with np.load(folder / f"{name}.npz") as stored:
        for key in COMPARED[type(model).__name__]:
            scale = np.abs(stored[key]).max()
            assert np.abs(output[key].detach().numpy() - stored[key]).max() <= relative("peer") * scale, key


@pytest.fixture(scope="module")
def pickled(peer, tmp_path_factory) -> Path:
    """A folder with a .model file and an output of the peer for each model."""
    folder = tmp_path_factory.mktemp("pickled")
    for heads in (1, 2):
        jobs = {
            name: {"class": kind, "arguments": arguments}
            for name, (kind, arguments) in MODELS.items()
            if len(arguments.get("heads", ["default"])) == heads
        }
        batch = {**the_batch(), "head": torch.tensor([0, heads - 1])}
        np.savez(folder / "batch.npz", **{key: value.numpy() for key, value in batch.items()})
        (folder / "job.json").write_text(json.dumps(jobs))
        peer([str(SCRIPT), "pickle", "job.json"], folder)
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_the_peer_pickled(pickled: Path, name: str) -> None:
    model = load_model(pickled / f"{name}.model")
    assert type(model).__name__ == MODELS[name][0]
    same_numbers(model, pickled, name)


@pytest.mark.parametrize("name", MODELS)
def test_the_peer_reads_what_we_wrote(pickled: Path, peer, tmp_path: Path, name: str) -> None:
    """There and back: the peer's own model in our files, strictly loaded by the lines of the document."""
    model = load_model(pickled / f"{name}.model")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.9)
    export_model(model, tmp_path / "NAME.pt", "mace-torch")
    (block,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "code.py").write_text(block)
    batch = {key: value.numpy() for key, value in batch_for(model).items()}
    np.savez(tmp_path / "batch.npz", **batch)
    peer([str(SCRIPT), "read", "code.py", "out"], tmp_path)
    same_numbers(model, tmp_path, "out")
    again = load_model(tmp_path / "NAME.json")
    ours, theirs = model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys() and all(same_bits(ours[key], theirs[key]) for key in ours)


def test_a_model_of_ours_in_the_peer(peer, tmp_path: Path) -> None:
    with default_dtype("float64"):
        model = ScaleShiftMACE(**{**_LARGE, "use_reduced_cg": False})
    export_model(model, tmp_path / "NAME.pt", "mace-torch")
    (block,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "code.py").write_text(block)
    np.savez(tmp_path / "batch.npz", **{key: value.numpy() for key, value in batch_for(model).items()})
    peer([str(SCRIPT), "read", "code.py", "out"], tmp_path)
    same_numbers(model, tmp_path, "out")
