"""Small models with known arguments and the batches to run them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mace.modules import blocks
from mace.modules.models import (
    MACE,
    AtomicDipolesMACE,
    BOTNet,
    EnergyDipolesMACE,
    ScaleShiftBOTNet,
    ScaleShiftMACE,
)
from mace.tools import default_dtype
from tests.graphs import Structure, batch_of

R_MAX = 4.0
ELEMENTS = (1, 8)


def arguments(**changes: Any) -> dict[str, Any]:
    """Constructor keywords of a `MACE` of two layers."""
    return {
        "r_max": R_MAX,
        "num_bessel": 4,
        "num_polynomial_cutoff": 5,
        "max_ell": 1,
        "interaction_cls": blocks.RealAgnosticResidualInteractionBlock,
        "interaction_cls_first": blocks.RealAgnosticInteractionBlock,
        "num_interactions": 2,
        "num_elements": len(ELEMENTS),
        "hidden_irreps": "2x0e + 2x1o",
        "MLP_irreps": "2x0e",
        "atomic_energies": np.array([-1.0, -2.0]),
        "avg_num_neighbors": 3.7,
        "atomic_numbers": list(ELEMENTS),
        "correlation": 2,
        "radial_MLP": [8],
        "gate": torch.nn.functional.silu,
        **changes,
    }


def mace(dtype: torch.dtype = torch.float64, **changes: Any) -> MACE:
    """The class without scale and shift."""
    return _built(MACE, dtype, arguments(**changes))


def scale_shift(dtype: torch.dtype = torch.float64, **changes: Any) -> ScaleShiftMACE:
    """A plain model."""
    scaling = {"atomic_inter_scale": 1.7, "atomic_inter_shift": 0.3}
    return _built(ScaleShiftMACE, dtype, arguments(**{**scaling, **changes}))


def fermi(dtype: torch.dtype = torch.float64, **changes: Any) -> ScaleShiftMACE:
    """Electron number in, Fermi level out."""
    options = {"electron_input": True, "potential_output": True, "mean_electron": 0.2, "mean_potential": -4.0}
    return scale_shift(dtype, **{**options, **changes})


def _two_body_arguments(**changes: Any) -> dict[str, Any]:
    keywords = arguments(
        interaction_cls=blocks.AgnosticResidualNonlinearInteractionBlock,
        interaction_cls_first=blocks.AgnosticNonlinearInteractionBlock,
    )
    del keywords["correlation"]
    return {**keywords, **changes}


def botnet(dtype: torch.dtype = torch.float64, **changes: Any) -> BOTNet:
    """Two-body messages."""
    return _built(BOTNet, dtype, _two_body_arguments(**changes))


def scale_shift_botnet(dtype: torch.dtype = torch.float64, **changes: Any) -> ScaleShiftBOTNet:
    """Two-body messages, with radial weights that depend on the element of the sender."""
    options = {
        "interaction_cls": blocks.ResidualElementDependentInteractionBlock,
        "atomic_inter_scale": 1.7,
        "atomic_inter_shift": 0.3,
    }
    return _built(ScaleShiftBOTNet, dtype, _two_body_arguments(**{**options, **changes}))


def atomic_dipoles(dtype: torch.dtype = torch.float64, **changes: Any) -> AtomicDipolesMACE:
    """Dipoles without energies."""
    options = {"MLP_irreps": "2x0e + 2x1o", "atomic_energies": None}
    return _built(AtomicDipolesMACE, dtype, arguments(**{**options, **changes}))


def energy_dipoles(dtype: torch.dtype = torch.float64, **changes: Any) -> EnergyDipolesMACE:
    """Energies and dipoles."""
    return _built(EnergyDipolesMACE, dtype, arguments(**{"MLP_irreps": "2x0e + 2x1o", **changes}))


def global_state(dtype: torch.dtype = torch.float64, **changes: Any) -> ScaleShiftMACE:
    """Electron number in, Fermi level out, through a state of the graph."""
    return fermi(dtype, **{"electron_input": False, "use_global_state": True, **changes})


def uncertainty(dtype: torch.dtype = torch.float64, **changes: Any) -> ScaleShiftMACE:
    """Log variances of energy and Fermi level."""
    return fermi(dtype, pred_uncertainty=True, **changes)


def evidential(dtype: torch.dtype = torch.float64, **changes: Any) -> ScaleShiftMACE:
    """Evidential parameters of energy and Fermi level."""
    return fermi(dtype, pred_evidential=True, **changes)


# Every class that can be trained, and every kind of Fermi-level model.
MODELS: dict[str, Callable[..., torch.nn.Module]] = {
    "MACE": mace,
    "ScaleShiftMACE": scale_shift,
    "FermiMACE": fermi,
    "FermiMACE_2": global_state,
    "FermiMACE_uncertainty": uncertainty,
    "FermiMACE_evidential": evidential,
    "BOTNet": botnet,
    "ScaleShiftBOTNet": scale_shift_botnet,
    "AtomicDipolesMACE": atomic_dipoles,
    "EnergyDipolesMACE": energy_dipoles,
}


def has_energy(model: torch.nn.Module) -> bool:
    """Whether the model has an energy, and so forces."""
    return hasattr(model, "atomic_energies_fn")


def derivatives(model: torch.nn.Module) -> dict[str, bool]:
    """Keywords that ask a model for every first derivative it has."""
    return dict.fromkeys(("compute_force", "compute_virials", "compute_stress"), has_energy(model))


def outputs(model: torch.nn.Module, data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Everything that a model gives, first derivatives included."""
    output = model(data, **derivatives(model))
    return {key: value.detach() for key, value in output.items() if value is not None}


def _built(cls: type[torch.nn.Module], dtype: torch.dtype, keywords: dict[str, Any]) -> Any:
    with default_dtype("float64" if dtype == torch.float64 else "float32"), torch.random.fork_rng():
        torch.manual_seed(3)
        return cls(**keywords)


def structures(electron: float | None = 0.4) -> list[Structure]:
    """A molecule and a periodic cell."""
    rng = np.random.default_rng(5)
    molecule = Structure(
        np.array([8, 1, 1]),
        np.array([[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]]),
        electron=electron,
        charges=np.array([-0.8, 0.4, 0.4]),
    )
    cell = Structure(
        np.array([8, 1, 8, 1]),
        rng.uniform(0, 4.5, (4, 3)),
        4.5 * np.eye(3),
        (True, True, True),
        electron=electron,
        charges=np.array([-0.7, 0.5, -0.2, 0.4]),
    )
    return [molecule, cell]


def batch(dtype: torch.dtype = torch.float64, electron: float | None = 0.4) -> dict[str, torch.Tensor]:
    """Both structures as the dictionary that models take."""
    return batch_of(structures(electron), ELEMENTS, R_MAX, dtype)
