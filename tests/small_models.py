"""Small models with known arguments and the batches to run them on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mace.modules import blocks
from mace.modules.models import MACE, ScaleShiftMACE
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


def _built(cls: type[torch.nn.Module], dtype: torch.dtype, keywords: dict[str, Any]) -> Any:
    with default_dtype("float64" if dtype == torch.float64 else "float32"), torch.random.fork_rng():
        torch.manual_seed(3)
        return cls(**keywords)


def structures(electron: float | None = 0.4) -> list[Structure]:
    """A molecule and a periodic cell."""
    rng = np.random.default_rng(5)
    molecule = Structure(
        np.array([8, 1, 1]), np.array([[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]]), electron=electron
    )
    cell = Structure(
        np.array([8, 1, 8, 1]),
        rng.uniform(0, 4.5, (4, 3)),
        4.5 * np.eye(3),
        (True, True, True),
        electron=electron,
    )
    return [molecule, cell]


def batch(dtype: torch.dtype = torch.float64, electron: float | None = 0.4) -> dict[str, torch.Tensor]:
    """Both structures as the dictionary that models take."""
    return batch_of(structures(electron), ELEMENTS, R_MAX, dtype)
