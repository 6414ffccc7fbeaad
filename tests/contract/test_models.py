"""What every model promises: symmetries, derivatives, independent graphs, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import e3nn
import e3nn.util.jit
import numpy as np
import pytest
import torch
from e3nn import o3

from tests import small_models
from tests.graphs import Structure, batch_of
from tests.small_models import ELEMENTS, R_MAX
from tests.tolerances import relative

VARIANTS: dict[str, Callable[[], torch.nn.Module]] = {
    **small_models.MODELS,
    "one layer": lambda: small_models.fermi(num_interactions=1),
    "three layers": lambda: small_models.scale_shift(num_interactions=3, correlation=[2, 1, 3]),
    "higher degrees": lambda: small_models.scale_shift(max_ell=3, hidden_irreps="2x0e + 2x1o + 2x2e"),
    "scalars only": lambda: small_models.scale_shift(max_ell=0, hidden_irreps="3x0e"),
    "density": lambda: small_models.scale_shift(
        interaction_cls_first="RealAgnosticDensityInteractionBlock",
        interaction_cls="RealAgnosticDensityResidualInteractionBlock",
    ),
    "attention": lambda: small_models.scale_shift(interaction_cls="RealAgnosticAttResidualInteractionBlock"),
    "repulsion, Agnesi": lambda: small_models.mace(pair_repulsion=True, distance_transform="Agnesi"),
    "Soft, Chebyshev": lambda: small_models.mace(distance_transform="Soft", radial_type="chebyshev"),
    "two heads": lambda: small_models.scale_shift(
        heads=["a", "b"],
        atomic_energies=[[-1.0, -2.0], [-3.0, -4.0]],
        atomic_inter_scale=[1.7, 0.6],
        atomic_inter_shift=[0.3, -0.2],
    ),
    "two-body, one layer": lambda: small_models.scale_shift_botnet(num_interactions=1),
    "two-body, unequal multiplicities": lambda: small_models.botnet(
        num_interactions=3, max_ell=3, hidden_irreps="4x0e + 3x1o + 2x2e + 1x3o"
    ),
    "two-body, sender's element first": lambda: small_models.botnet(
        interaction_cls_first="ResidualElementDependentInteractionBlock"
    ),
    "dipoles, one layer": lambda: small_models.atomic_dipoles(num_interactions=1),
    "dipoles, three layers": lambda: small_models.energy_dipoles(
        num_interactions=3, max_ell=2, hidden_irreps="2x0e + 2x1o + 2x2e", gate="tanh"
    ),
    "dipoles, two heads": lambda: small_models.energy_dipoles(
        atomic_energies=[[-1.0, -2.0], [-3.0, -4.0]], gate=None
    ),
    "dipoles, density": lambda: small_models.atomic_dipoles(
        interaction_cls_first="RealAgnosticDensityInteractionBlock",
        interaction_cls="RealAgnosticDensityResidualInteractionBlock",
        radial_type="gaussian",
    ),
}
WITHOUT_ENERGY = ("AtomicDipolesMACE", "dipoles, one layer", "dipoles, density")
ALL = ("compute_force", "compute_virials", "compute_stress")
INVARIANT = {
    *("energy", "node_energy", "potential", "potential_logvar", "energy_logvar"),
    *(f"{quantity}_{name}" for quantity in ("energy", "potential") for name in ("nu", "alpha", "beta")),
}
VECTORS = {"forces", "dipole", "atomic_dipoles"}
TENSORS = {"virials", "stress"}
OF_ATOMS = {"forces", "node_energy", "node_feats", "atomic_dipoles"}


@pytest.fixture(params=VARIANTS)
def any_model(request: pytest.FixtureRequest) -> torch.nn.Module:
    return VARIANTS[request.param]()


@pytest.fixture(params=[name for name in VARIANTS if name not in WITHOUT_ENERGY])
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    """A model that has an energy."""
    return VARIANTS[request.param]()


def structures(model: torch.nn.Module) -> list[Structure]:
    """A molecule and a periodic cell, of the last head where there are several."""
    molecule, cell = small_models.structures()
    return [molecule, replace(cell, head=len(model.heads) - 1)]


def evaluated(model: torch.nn.Module, structures: list[Structure]) -> dict[str, torch.Tensor]:
    return small_models.outputs(model, batch_of(structures, ELEMENTS, R_MAX))


def close(ours: torch.Tensor, expected: torch.Tensor, quantity: str = "symmetry") -> bool:
    return bool((ours - expected).abs().max() <= relative(quantity) * max(float(expected.abs().max()), 1.0))


def moved(structure: Structure, matrix: torch.Tensor) -> Structure:
    turned = matrix.numpy().T
    return replace(structure, positions=structure.positions @ turned, cell=structure.cell @ turned)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rotation_and_inversion(any_model: torch.nn.Module, sign: float) -> None:
    matrix = sign * o3.angles_to_matrix(*torch.tensor([0.3, 1.1, -2.0], dtype=torch.float64))
    plain = evaluated(any_model, structures(any_model))
    turned = evaluated(any_model, [moved(structure, matrix) for structure in structures(any_model)])
    for key in INVARIANT & set(plain):
        assert close(turned[key], plain[key]), key
    for key in VECTORS & set(plain):
        assert plain[key].any() and close(turned[key], plain[key] @ matrix.T), key
    for key in TENSORS & set(plain):
        assert close(turned[key], matrix @ plain[key] @ matrix.T), key


def test_translation(any_model: torch.nn.Module) -> None:
    plain = evaluated(any_model, structures(any_model))
    shifted = [replace(s, positions=s.positions + np.array([1.3, -0.4, 7.0])) for s in structures(any_model)]
    for key, value in evaluated(any_model, shifted).items():
        assert close(value, plain[key]), key


def test_permutation(any_model: torch.nn.Module) -> None:
    order = [2, 0, 3, 1]
    cell = structures(any_model)[1]
    plain = evaluated(any_model, [cell])
    reordered = {name: getattr(cell, name)[order] for name in ("numbers", "positions", "charges")}
    mixed = evaluated(any_model, [replace(cell, **reordered)])
    for key in OF_ATOMS & set(plain):
        plain[key] = plain[key][order]
    for key, value in mixed.items():
        assert close(value, plain[key]), key


def test_order_of_edges_does_not_matter(any_model: torch.nn.Module) -> None:
    data = batch_of(structures(any_model), ELEMENTS, R_MAX)
    order = torch.randperm(data["edge_index"].shape[1], generator=torch.Generator().manual_seed(0))
    of_edges = {key: data[key][order] for key in ("shifts", "unit_shifts")}
    plain = small_models.outputs(any_model, data)
    mixed = {**data, **of_edges, "edge_index": data["edge_index"][:, order]}
    for key, value in small_models.outputs(any_model, mixed).items():
        assert close(value, plain[key]), key


def test_graphs_of_a_batch_are_independent(any_model: torch.nn.Module) -> None:
    both = evaluated(any_model, structures(any_model))
    alone = [evaluated(any_model, [structure]) for structure in structures(any_model)]
    for key, value in both.items():
        assert close(value, torch.cat([output[key] for output in alone])), key


def test_far_apart_molecules_add_up(any_model: torch.nn.Module) -> None:
    molecule = structures(any_model)[0]
    pair = replace(
        molecule,
        numbers=np.concatenate([molecule.numbers, molecule.numbers]),
        positions=np.concatenate([molecule.positions, molecule.positions + 50.0]),
        charges=np.concatenate([molecule.charges, molecule.charges]),
    )
    alone, both = evaluated(any_model, [molecule]), evaluated(any_model, [pair])
    for key in {"energy", "dipole"} & set(alone):
        assert close(both[key], 2.0 * alone[key]), key


def test_forces_are_the_slope_of_the_energy(model: torch.nn.Module) -> None:
    data = batch_of(structures(model), ELEMENTS, R_MAX)
    forces = model(data)["forces"].detach()
    direction = torch.randn(forces.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    step = 1e-4
    energies = [
        model({**data, "positions": data["positions"] + sign * step * direction})["energy"].sum().detach()
        for sign in (1.0, -1.0)
    ]
    slope = (energies[0] - energies[1]) / (2.0 * step)
    assert close((forces * direction).sum(), -slope, "finite differences")


def test_stress_is_the_slope_of_the_energy_under_strain(model: torch.nn.Module) -> None:
    cell = structures(model)[1]
    output = evaluated(model, [cell])
    strain = np.array([[0.3, -0.2, 0.5], [-0.2, 0.1, 0.4], [0.5, 0.4, -0.6]])
    step = 1e-4
    energies = [
        evaluated(model, [moved(cell, torch.from_numpy(np.eye(3) + sign * step * strain))])["energy"]
        for sign in (1.0, -1.0)
    ]
    slope = (energies[0] - energies[1]) / (2.0 * step)
    volume = abs(np.linalg.det(cell.cell))
    along_strain = (output["stress"] * torch.from_numpy(strain)).sum()
    assert close(along_strain * volume, slope, "finite differences")
    assert close(-output["virials"], output["stress"] * volume)


def test_hessian_is_the_slope_of_the_forces(model: torch.nn.Module) -> None:
    data = batch_of(structures(model)[:1], ELEMENTS, R_MAX)
    hessian = model(data, compute_hessian=True)["hessian"]
    assert hessian.shape == (9, 3, 3)
    step = 1e-4
    for atom, axis in ((0, 0), (1, 2)):
        shift = torch.zeros_like(data["positions"])
        shift[atom, axis] = step
        forces = [
            model({**data, "positions": data["positions"] + sign * shift})["forces"] for sign in (1, -1)
        ]
        slope = (forces[0] - forces[1]).flatten() / (2.0 * step)
        assert close(hessian[:, atom, axis], -slope, "finite differences")


def test_one_atom_without_neighbours(any_model: torch.nn.Module) -> None:
    atom = Structure(np.array([8]), np.array([[0.1, 0.2, 0.3]]), electron=0.4, charges=np.zeros(1))
    output = evaluated(any_model, [atom])
    for key in (VECTORS | TENSORS) & set(output):
        assert not output[key].any(), key
    assert all(torch.isfinite(value).all() for value in output.values())


def test_molecule_without_cell_has_no_stress(model: torch.nn.Module) -> None:
    output = evaluated(model, structures(model)[:1])
    assert output["virials"].any() and not output["stress"].any()


def test_energy_is_smooth_where_a_neighbour_leaves(model: torch.nn.Module) -> None:
    def pair(distance: float) -> dict[str, torch.Tensor]:
        return evaluated(
            model,
            [
                Structure(
                    np.array([8, 1]),
                    np.array([[0.0, 0, 0], [distance, 0, 0]]),
                    electron=0.4,
                    charges=np.zeros(2),
                )
            ],
        )

    inside, outside = pair(R_MAX - 1e-3), pair(R_MAX + 1e-3)
    assert not outside["forces"].any()
    assert close(inside["energy"], outside["energy"], "cutoff")
    assert close(inside["forces"], outside["forces"], "cutoff")


def test_inputs_are_left_alone(any_model: torch.nn.Module) -> None:
    data = batch_of(structures(any_model), ELEMENTS, R_MAX)
    before = {key: value.clone() for key, value in data.items()}
    kept = dict(data)
    output = any_model(data, training=True, **small_models.derivatives(any_model))
    output["forces" if "forces" in output else "dipole"].sum().backward()
    assert all(data[key] is kept[key] for key in kept) and set(data) == set(kept)
    for key, value in before.items():
        assert torch.equal(data[key], value) and not data[key].requires_grad and data[key].grad is None, key


def test_only_what_is_asked_for(model: torch.nn.Module) -> None:
    data = batch_of(structures(model), ELEMENTS, R_MAX)
    derivatives = {"forces", "virials", "stress", "hessian", "displacement"}

    def given(**flags: bool) -> set[str]:
        return {key for key, value in model(data, **flags).items() if value is not None} & derivatives

    assert given(compute_force=False) == set()
    assert given() == {"forces"}
    assert given(compute_force=False, compute_virials=True) == {"forces", "virials", "stress", "displacement"}
    assert given(compute_displacement=True) == {"forces", "displacement"}
    assert given(compute_force=False, compute_hessian=True) == {"forces", "hessian"}


def test_every_parameter_is_trained(any_model: torch.nn.Module) -> None:
    output = any_model(batch_of(structures(any_model), ELEMENTS, R_MAX), training=True)
    trained = [output[key] for key in INVARIANT & set(output) if output[key] is not None]
    trained += [output[key].square() for key in VECTORS & set(output)]
    sum(value.sum() for value in trained).backward()
    assert [name for name, parameter in any_model.named_parameters() if parameter.grad is None] == []


@contextmanager
def code_generation(mode: str) -> Iterator[None]:
    """e3nn's process-wide setting, put back afterwards."""
    before = e3nn.get_optimization_defaults()
    wanted = {"jit_script_fx": mode == "script", "jit_mode": mode}
    try:
        e3nn.set_optimization_defaults(**{key: value for key, value in wanted.items() if key in before})
        yield
    finally:
        e3nn.set_optimization_defaults(**before)


@pytest.mark.parametrize("mode", ["script", "eager"])
@pytest.mark.parametrize(
    "name",
    ["FermiMACE", *(pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS if name != "FermiMACE")],
)
def test_torchscript_gives_the_same(name: str, mode: str) -> None:
    with code_generation(mode):
        model = VARIANTS[name]()
        scripted = e3nn.util.jit.compile(VARIANTS[name]())
    assert isinstance(scripted, torch.jit.ScriptModule)
    plain = evaluated(model, structures(model))
    for _ in range(3):  # TorchScript optimises the second and third call
        output = evaluated(scripted, structures(model))
        assert set(output) == set(plain)
        for key, value in output.items():
            assert close(value, plain[key]), key
