"""A training step under ``torch.autocast`` in bfloat16: what keeps full precision, and what may move."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from ase.io import read

from mace.data import AtomicData, config_from_atoms
from mace.modules import FermiWeightedEnergyForcesLoss
from mace.tools import AtomicNumberTable, default_dtype
from mace.tools.kernels import CUEQ_CONFIG
from mace.tools.torch_geometric import Batch
from tests import small_models
from tests.harness import DATA_FOLDER
from tests.small_models import batch
from tests.tolerances import relative

# Energies of isolated atoms as they are in data: hundreds of eV, where bfloat16 has steps of 2 eV.
E0S = [-437.123456, -612.654321]
VARIANTS: dict[str, Callable[..., torch.nn.Module]] = {
    "MACE": small_models.mace,
    "ScaleShiftMACE": small_models.scale_shift,
    "FermiMACE": small_models.fermi,
    "global state": lambda **keywords: small_models.fermi(
        electron_input=False, use_global_state=True, **keywords
    ),
    "uncertainty": lambda **keywords: small_models.fermi(pred_uncertainty=True, **keywords),
    "evidential": lambda **keywords: small_models.fermi(pred_evidential=True, **keywords),
    "cuEquivariance": lambda **keywords: small_models.fermi(cueq_config=CUEQ_CONFIG, **keywords),
}


@pytest.fixture(params=VARIANTS)
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    return VARIANTS[request.param](dtype=torch.float32, atomic_energies=E0S)


def evaluated(model: torch.nn.Module, autocast: bool, **flags: bool) -> dict[str, torch.Tensor]:
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = model(batch(torch.float32), **flags)
    return {key: value for key, value in output.items() if value is not None}


def interaction_energy(output: dict[str, torch.Tensor]) -> torch.Tensor:
    """The part of the energy that depends on the positions; E0s of the batch of `small_models`."""
    hydrogen, oxygen = torch.tensor(E0S, dtype=torch.float64)
    return output["energy"].double() - torch.stack([2 * hydrogen + oxygen, 2 * hydrogen + 2 * oxygen])


def close(half: torch.Tensor, full: torch.Tensor) -> bool:
    return bool((half - full).abs().max() <= relative("autocast", torch.bfloat16) * full.abs().max())


def test_autocast_takes_part(model: torch.nn.Module) -> None:
    half, full = (evaluated(model, autocast)["forces"] for autocast in (True, False))
    assert not torch.equal(half, full)


def test_what_is_returned_is_single_precision(model: torch.nn.Module) -> None:
    """But for the features, which go on into products of matrices."""
    output = evaluated(model, True, compute_virials=True, compute_stress=True)
    del output["node_feats"]
    assert {key: value.dtype for key, value in output.items()} == dict.fromkeys(output, torch.float32)


@pytest.mark.parametrize("build", [small_models.atomic_dipoles, small_models.energy_dipoles])
def test_dipoles_are_returned_in_single_precision(build: Callable[..., torch.nn.Module]) -> None:
    model = build(dtype=torch.float32)
    half, full = (evaluated(model, autocast) for autocast in (True, False))
    for key in ("dipole", "atomic_dipoles"):
        assert half[key].dtype == torch.float32
        assert close(half[key], full[key]) and not torch.equal(half[key], full[key])


def test_outputs_move_by_the_rounding_of_bfloat16(model: torch.nn.Module) -> None:
    half, full = (evaluated(model, autocast, compute_stress=True) for autocast in (True, False))
    for key in ("forces", "stress"):
        assert close(half[key], full[key]), key
    # eight atoms of 500 eV each: the energies of the isolated atoms are not rounded
    rounding = 4 * torch.finfo(torch.float32).eps * float(full["energy"].detach().abs().max())
    moved = (interaction_energy(half) - interaction_energy(full)).abs().max()
    allowed = relative("autocast", torch.bfloat16) * interaction_energy(full).abs().max() + rounding
    assert moved <= allowed


def test_the_fermi_level_is_not_rounded_at_its_own_size() -> None:
    """Only what the trunk's features make of it moves, not the mean it starts at (steps of 16 meV at 4 V)."""
    model = small_models.fermi(torch.float32, mean_potential=-4.123456)
    half, full = (evaluated(model, autocast)["potential"] for autocast in (True, False))
    varying = (full - model.potential_output_layer[-1].bias).abs().max()
    assert (half - full).abs().max() <= relative("autocast", torch.bfloat16) * varying


def test_gradients_of_a_step_point_the_same_way(model: torch.nn.Module) -> None:
    gradients = []
    for autocast in (True, False):
        model.zero_grad()
        output = evaluated(model, autocast, training=True)
        potential = output["potential"].square().sum() if "potential" in output else 0.0
        (interaction_energy(output).square().sum() + output["forces"].square().sum() + potential).backward()
        trained = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        assert all(gradient.dtype == torch.float32 for gradient in trained)
        gradients.append(torch.cat([gradient.flatten() for gradient in trained]))
    assert torch.cosine_similarity(*gradients, dim=0) >= 1.0 - relative("autocast", torch.bfloat16)


def test_training_under_autocast_learns_as_fast() -> None:
    frames = read(DATA_FOLDER / "cu_water_train.xyz", "::60")
    table = AtomicNumberTable([1, 8, 29])
    with default_dtype("float32"):
        labelled = Batch.from_data_list(
            [AtomicData.from_config(config_from_atoms(frame), table, 4.0) for frame in frames]
        )
        loss_fn = FermiWeightedEnergyForcesLoss(energy_weight=1, forces_weight=100, potential_weight=10)
    energies = torch.linalg.lstsq(one_hot_sums(labelled), labelled.energy.unsqueeze(1)).solution.squeeze(1)

    def losses(autocast: bool) -> list[float]:
        model = small_models.fermi(
            torch.float32,
            num_elements=3,
            atomic_numbers=[1, 8, 29],
            atomic_energies=energies.tolist(),
            hidden_irreps="8x0e + 8x1o",
            mean_electron=float(labelled.electron.mean()),
            mean_potential=float(labelled.potential.mean()),
            avg_num_neighbors=20.0,
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        history = []
        for _ in range(30):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                output = model(labelled.to_dict(), training=True)
            loss = loss_fn(labelled, output)
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        return history

    half, full = losses(True), losses(False)
    learned = [history[0] - history[-1] for history in (half, full)]
    assert learned[1] > 0.2 * full[0]
    assert abs(learned[0] - learned[1]) <= 0.1 * learned[1]


def one_hot_sums(labelled: Batch) -> torch.Tensor:
    """Number of atoms of each element, [n_graphs, n_elements]."""
    return torch.zeros(labelled.num_graphs, labelled.node_attrs.shape[1]).index_add(
        0, labelled.batch, labelled.node_attrs
    )
