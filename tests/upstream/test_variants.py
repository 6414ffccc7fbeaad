"""Many small models, compared with mace-torch 0.3.16: each block, gate and radial basis, one to three layers.

BOTNet is not among them: its blocks are not part of that version any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from mace import modules
from mace.tools.torch_tools import default_dtype
from tests import small_models
from tests.data.reference.load import max_rel_dev
from tests.tolerances import relative

pytestmark = [pytest.mark.upstream, pytest.mark.slow]
WORKER = Path(__file__).with_name("peer_variants.py")
MANY_BODY = [name for name, cls in modules.interaction_classes.items() if cls.feeds_product]
SCALING = {"atomic_inter_scale": 1.7, "atomic_inter_shift": 0.3}
DIPOLES = {"MLP_irreps": "3x0e + 2x1o", "hidden_irreps": "4x0e + 4x1o"}


def arguments(**changes: Any) -> dict[str, Any]:
    """Constructor arguments as plain values."""
    plain = small_models.arguments(atomic_energies=[-1.0, -2.0], gate="silu")
    for name in ("interaction_cls", "interaction_cls_first"):
        plain[name] = plain[name].__name__
    return {**plain, **changes}


def variants() -> dict[str, tuple[str, dict[str, Any]]]:
    """Name -> class and constructor arguments."""
    jobs: dict[str, tuple[str, dict[str, Any]]] = {}
    for first in MANY_BODY:
        for later in MANY_BODY:
            blocks = {"interaction_cls_first": first, "interaction_cls": later}
            jobs[f"{first}, {later}"] = ("MACE", arguments(**blocks))
    for radial in ("bessel", "gaussian"):
        for transform in ("None", "Agnesi", "Soft"):
            changes = {"radial_type": radial, "distance_transform": transform, "pair_repulsion": True}
            jobs[f"{radial}, {transform}"] = ("ScaleShiftMACE", arguments(**SCALING, **changes))
    for gate in modules.gate_dict:
        jobs[f"gate {gate}"] = ("ScaleShiftMACE", arguments(**SCALING, gate=gate))
        jobs[f"energy and dipole, gate {gate}"] = ("EnergyDipolesMACE", arguments(**DIPOLES, gate=gate))
    for layers, correlation in ((2, [3, 1]), (3, [1, 2, 3]), (3, 1)):
        for max_ell, hidden in ((1, "2x0e"), (2, "2x0e + 2x1o + 2x2e"), (3, "2x0e + 2x1o")):
            changes = {"num_interactions": layers, "correlation": correlation}
            changes |= {"max_ell": max_ell, "hidden_irreps": hidden}
            jobs[f"{layers} layers, {correlation}, {max_ell}"] = ("MACE", arguments(**changes))
    for layers in (1, 2, 3):
        changes = {"num_interactions": layers, "max_ell": 2, "hidden_irreps": "2x0e + 2x1o + 2x2e"}
        jobs[f"energy and dipole, {layers}"] = ("EnergyDipolesMACE", arguments(**{**DIPOLES, **changes}))
        changes |= {"MLP_irreps": "2x1o", "atomic_energies": None, "radial_type": "gaussian"}
        jobs[f"dipole, {layers}"] = ("AtomicDipolesMACE", arguments(**changes))
    return jobs


VARIANTS = variants()


def job(cls: str, args: dict[str, Any]) -> dict[str, Any]:
    flags = {} if cls == "AtomicDipolesMACE" else {"compute_stress": True}
    return {"class": cls, "args": args, "data": small_models.batch(), "flags": flags}


@pytest.fixture(scope="module")
def answers(
    peer: Callable[[Sequence[str], Path], str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the peer made of every variant."""
    folder = tmp_path_factory.mktemp("variants")
    torch.save([job(*variant) for variant in VARIANTS.values()], folder / "jobs.pt")
    peer([str(WORKER), "jobs.pt", "out.pt"], folder)
    return dict(zip(VARIANTS, torch.load(folder / "out.pt", weights_only=True), strict=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_same_state_and_same_numbers(name: str, answers: dict[str, Any]) -> None:
    cls, args = VARIANTS[name]
    with default_dtype("float64"):
        model = getattr(modules, cls)(**args)
    state, expected = answers[name]["state"], answers[name]["output"]
    ours = list(model.state_dict())
    assert [key for key in ours if key in state] == [key for key in state if key in ours]
    model.load_state_dict(state)
    flags = job(cls, args)["flags"]
    output = model(small_models.batch(), **flags)
    if cls == "EnergyDipolesMACE":  # B11
        expected.pop("node_energy")
    compared = [key for key in expected if key in output]
    assert {"energy", "forces"} <= set(compared) or {"dipole", "atomic_dipoles"} <= set(compared)
    for key in compared:
        deviation = max_rel_dev(output[key].detach().numpy(), expected[key].numpy())
        assert deviation < relative("reference"), (key, deviation)
