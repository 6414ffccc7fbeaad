"""Losses against the reference, and the behaviour that differs from it on purpose."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import mace.modules.loss as losses
from mace.modules.loss import (
    FermiWeightedEnergyForcesLoss,
    FermiWeightedEnergyForcesLossEvidential,
    FermiWeightedEnergyForcesLossUncertainty,
    UniversalLoss,
    WeightedEnergyForcesLoss,
    WeightedHuberEnergyForcesStressLoss,
    conditional_huber_forces,
    conditional_mse_forces,
    evidential_regression_loss,
    mean_squared_error_energy,
    weighted_mean_squared_error_potential,
)
from tests.reference import case, cases, labels, predictions
from tests.reference_models import GOLDEN
from tests.tolerances import relative

# The original program's formula where ours differs (defects A5, A9, D15)


def as_upstream(batch: SimpleNamespace) -> SimpleNamespace:
    """A9: the original weights Fermi levels with the energy weight."""
    return SimpleNamespace(**{**vars(batch), "potential_weight": batch.energy_weight})


def without_config_weights(batch: SimpleNamespace, *terms: str) -> SimpleNamespace:
    """D15: the original leaves out weights of configurations."""
    ones = {name: torch.ones_like(batch.weight) for name in ("weight", *(f"{term}_weight" for term in terms))}
    return SimpleNamespace(**{**vars(batch), **ones})


def upstream_evidential_regression_loss(gamma, nu, alpha, beta, target, reg_weight=1.0, epsilon=1e-6):
    """A5: the likelihood with the wrong sign, 2 beta for 2 beta (1 + nu), epsilon inside the logarithms."""
    a = (alpha + 1).clamp(min=1 + epsilon)
    nu, beta = nu.clamp(min=epsilon), beta.clamp(min=epsilon)
    error = target - gamma
    likelihood = -(
        0.5 * torch.log(torch.pi / (nu + epsilon))
        - a * torch.log(2 * beta + epsilon)
        + (a + 0.5) * torch.log(nu * error**2 + 2 * beta + epsilon)
        + torch.lgamma(a)
        - torch.lgamma(a + 0.5)
    )
    return likelihood + reg_weight * error.abs() * (2 * nu + a)


def original_value(
    name: str, arguments: dict[str, float], batch: SimpleNamespace, pred: dict, monkeypatch
) -> float:
    batch = as_upstream(batch)
    if name == "WeightedHuberEnergyForcesStressLoss":
        batch = without_config_weights(batch, "energy", "forces", "stress")
    elif name == "WeightedEnergyForcesL1L2Loss":
        batch = SimpleNamespace(**{**vars(batch), "forces_weight": 1 / batch.weight})
    elif name == "UniversalLoss":
        batch = without_config_weights(batch)
    elif name == "FermiWeightedEnergyForcesLossEvidential":
        monkeypatch.setattr(losses, "evidential_regression_loss", upstream_evidential_regression_loss)
    return float(getattr(losses, name)(**arguments)(batch, pred))


REFERENCE_LOSSES = [(name, loss) for name in cases() for loss in case(name)["loss"]]


@pytest.mark.upstream
@pytest.mark.parametrize(("name", "loss"), REFERENCE_LOSSES)
def test_equal_to_the_reference(name, loss, monkeypatch, float64):
    value = original_value(
        loss, case(name)["config"]["losses"][loss], labels(name), predictions(name), monkeypatch
    )
    assert value == pytest.approx(case(name)["loss"][loss], rel=relative("reference"))


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("name", "loss"), [(name, loss) for name in cases() for loss in case(name)["loss_noflag"]]
)
def test_equal_to_the_reference_without_flag(name, loss, monkeypatch, float64):
    batch = labels(name)
    del batch.potential_flag
    value = original_value(loss, case(name)["config"]["losses"][loss], batch, predictions(name), monkeypatch)
    assert value == pytest.approx(case(name)["loss_noflag"][loss], rel=relative("reference"))


# The third term of each: its weight is 10 in spec and file of the golden numbers.
GOLDEN_LOSSES = {
    "WeightedEnergyForcesLoss": {},
    "WeightedEnergyForcesStressLoss": {"stress_weight": 10},
    "WeightedEnergyForcesVirialsLoss": {"virials_weight": 10},
    "WeightedHuberEnergyForcesStressLoss": {"stress_weight": 10, "huber_delta": 0.01},
    "UniversalLoss": {"stress_weight": 10, "huber_delta": 0.01},
    "WeightedEnergyForcesDipoleLoss": {"dipole_weight": 10},
    "FermiWeightedEnergyForcesLoss": {"potential_weight": 10},
    "FermiWeightedEnergyForcesLossUncertainty": {"potential_weight": 10},
    "FermiWeightedEnergyForcesLossEvidential": {"potential_weight": 10},
}


def golden_labels() -> tuple[SimpleNamespace, dict[str, torch.Tensor]]:
    """Labels and predictions of the golden numbers: graphs of 3 and 4 atoms."""
    given = {
        key: torch.tensor(value, dtype=torch.float64)
        for key, value in GOLDEN["loss_inputs"].items()
        if isinstance(value, list)
    }
    arrays = {
        "forces": 0.1 * torch.arange(21, dtype=torch.float64).view(7, 3),
        "stress": 0.01 * torch.arange(18, dtype=torch.float64).view(2, 3, 3),
        "virials": 0.02 * torch.arange(18, dtype=torch.float64).view(2, 3, 3),
    }
    labels_given = {key.removeprefix("ref."): value for key, value in given.items() if "pred." not in key}
    ref = SimpleNamespace(
        **labels_given,
        **arrays,
        ptr=torch.tensor([0, 3, 7]),
        batch=torch.tensor([0, 0, 0, 1, 1, 1, 1]),
        num_graphs=2,
    )
    pred = {key.removeprefix("pred."): value for key, value in given.items() if "pred." in key}
    for part in ("nu", "alpha", "beta"):
        value = pred.pop(f"*_{part}")
        pred |= {f"energy_{part}": value, f"potential_{part}": value}
    pred |= {name: torch.zeros_like(value) for name, value in arrays.items()}
    return ref, pred | {"dipole": torch.zeros_like(ref.dipole)}


@pytest.mark.parametrize("name", [*GOLDEN_LOSSES, "WeightedForcesLoss", "DipoleSingleLoss"])
def test_equal_to_the_golden_numbers(name, monkeypatch, float64):
    arguments = {"energy_weight": 1, "forces_weight": 100, **GOLDEN_LOSSES.get(name, {})}
    if name == "DipoleSingleLoss":
        arguments = {"dipole_weight": 2}
    if name == "WeightedForcesLoss":
        del arguments["energy_weight"]
    stored = GOLDEN["loss_values"]
    value = original_value(name, arguments, *golden_labels(), monkeypatch)
    assert value == pytest.approx(stored.get(name, stored.get(f"{name}_upstream")), rel=relative("reference"))


# A batch by hand


@pytest.fixture
def float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def hand_made(dtype=torch.float64) -> tuple[SimpleNamespace, dict[str, torch.Tensor]]:
    """Three graphs of 2, 1 and 3 atoms."""
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    names = (
        "weight",
        "energy_weight",
        "forces_weight",
        "stress_weight",
        "virials_weight",
        "potential_weight",
    )
    ref = SimpleNamespace(
        ptr=torch.tensor([0, 2, 3, 6]),
        batch=torch.tensor([0, 0, 1, 2, 2, 2]),
        potential_flag=torch.ones(3, dtype=dtype),
        **{name: draw(3).abs() for name in names},
        **{name: draw(3) for name in ("energy", "potential")},
        forces=draw(6, 3),
        **{name: draw(3, 3, 3) for name in ("stress", "virials")},
        dipole=draw(3, 3),
    )
    pred = {
        name: draw(*getattr(ref, name).shape)
        for name in ("energy", "potential", "forces", "stress", "virials", "dipole")
    }
    pred |= {f"{name}_logvar": draw(3) for name in ("energy", "potential")}
    pred |= {
        f"{name}_{part}": draw(3).abs()
        for name in ("energy", "potential")
        for part in ("nu", "alpha", "beta")
    }
    return ref, {name: value.requires_grad_() for name, value in pred.items()}


FERMI_LOSSES = [
    FermiWeightedEnergyForcesLoss,
    FermiWeightedEnergyForcesLossUncertainty,
    FermiWeightedEnergyForcesLossEvidential,
]
EVERY_LOSS = [
    loss
    for loss in vars(losses).values()
    if isinstance(loss, type) and loss.__name__.endswith(("Loss", "Uncertainty", "Evidential"))
]


@pytest.mark.parametrize("loss", FERMI_LOSSES)
def test_a9_potential_term_uses_the_potential_weight_of_the_configuration(loss):
    ref, pred = hand_made()
    module = loss(energy_weight=0.0, forces_weight=0.0, potential_weight=1.0)
    value = module(ref, pred)
    ref.energy_weight = ref.energy_weight * 7
    assert module(ref, pred) == value
    ref.potential_weight = ref.potential_weight * 2
    torch.testing.assert_close(module(ref, pred), 2 * value)
    ref.weight = ref.weight * 3
    torch.testing.assert_close(module(ref, pred), 6 * value)


@pytest.mark.parametrize("loss", FERMI_LOSSES)
def test_a7_unlabelled_potentials_do_not_count(loss):
    ref, pred = hand_made()
    module = loss(energy_weight=0.0, forces_weight=0.0)
    ref.potential_flag = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    alone = module(ref, pred)
    ref.potential = torch.tensor([1e6, float(ref.potential[1]), -1e6], dtype=torch.float64)
    assert module(ref, pred) == alone
    for name in [name for name in pred if name.startswith("potential")]:
        pred[name] = pred[name][1:2]
    ref.potential, ref.weight, ref.potential_weight = (
        ref.potential[1:2],
        ref.weight[1:2],
        ref.potential_weight[1:2],
    )
    ref.potential_flag = ref.potential_flag[1:2]
    term = list(module._terms.values())[2]
    torch.testing.assert_close(term(ref, pred), alone)


@pytest.mark.parametrize("loss", FERMI_LOSSES)
def test_no_labelled_potential_gives_exactly_zero_and_can_be_differentiated(loss):
    ref, pred = hand_made()
    ref.potential_flag = torch.zeros(3, dtype=torch.float64)
    value = loss(energy_weight=0.0, forces_weight=0.0, potential_weight=5.0)(ref, pred)
    assert value == 0.0
    value.backward()
    assert torch.equal(pred["potential"].grad, torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("loss", FERMI_LOSSES)
@pytest.mark.parametrize("missing", ["absent", "None"])
def test_a17_without_flags_every_potential_counts(loss, missing):
    ref, pred = hand_made()
    with_ones = loss()(ref, pred)
    ref.potential_flag = None
    if missing == "absent":
        del ref.potential_flag
    torch.testing.assert_close(loss()(ref, pred), with_ones)


def test_a5_evidential_likelihood_is_that_of_a_student_distribution():
    """Integrated over the evidence, the target follows Student's t with 2a degrees of freedom."""
    gamma, nu, alpha, beta = (torch.tensor([v], dtype=torch.float64) for v in (0.3, 0.8, 1.7, 0.4))
    target = torch.linspace(-3, 3, 7, dtype=torch.float64)
    a = alpha + 1
    student = torch.distributions.StudentT(2 * a, gamma, (beta * (1 + nu) / (nu * a)).sqrt())
    ours = evidential_regression_loss(gamma, nu, alpha, beta, target, reg_weight=0.0)
    torch.testing.assert_close(ours, -student.log_prob(target))
    penalty = evidential_regression_loss(gamma, nu, alpha, beta, target) - ours
    torch.testing.assert_close(penalty, (target - gamma).abs() * (2 * nu + a))


def test_a5_evidential_loss_prefers_the_better_prediction():
    nu, alpha, beta, target = (torch.tensor([v], dtype=torch.float64) for v in (1.0, 1.0, 1.0, 0.0))
    near, far = (
        evidential_regression_loss(torch.tensor([g]), nu, alpha, beta, target, reg_weight=0.0)
        for g in (0.1, 2.0)
    )
    assert near < far


def test_a18_energy_variance_belongs_to_the_energy_per_atom():
    """The loss of a graph is least where e^s is the squared error of the energy per atom."""
    ref, pred = hand_made()
    error = (ref.energy - pred["energy"]).detach() / (ref.ptr[1:] - ref.ptr[:-1])
    pred["energy_logvar"] = torch.log(error**2).requires_grad_()
    (gradient,) = torch.autograd.grad(losses.weighted_nll_energy(ref, pred), pred["energy_logvar"])
    torch.testing.assert_close(gradient, torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("loss", [WeightedHuberEnergyForcesStressLoss, UniversalLoss])
def test_d15_huber_losses_honour_weights_of_configurations(loss):
    ref, pred = hand_made()
    whole = loss()(ref, pred)
    ref.weight = 2 * ref.weight
    torch.testing.assert_close(loss()(ref, pred), 2 * whole)
    ref.weight = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    for name in ("energy", "forces", "stress"):
        setattr(ref, f"{name}_weight", torch.tensor([5.0, 0.0, 5.0], dtype=torch.float64))
    assert loss()(ref, pred) == 0.0


def test_weights_of_configurations_multiply_energy_and_forces():
    ref, pred = hand_made()
    value = WeightedEnergyForcesLoss(2.0, 3.0)(ref, pred)
    n = torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64)
    energy = (ref.weight * ref.energy_weight * ((ref.energy - pred["energy"]) / n) ** 2).mean()
    weights = (ref.weight * ref.forces_weight)[ref.batch, None]
    forces = (weights * (ref.forces - pred["forces"]) ** 2).mean()
    torch.testing.assert_close(value, 2 * energy + 3 * forces)


def test_large_reference_forces_are_softened():
    ref, pred = torch.zeros(5, 3), torch.zeros(5, 3)
    ref[:, 0] = torch.tensor([99.0, 100.0, 200.0, 299.0, 300.0])
    factors = torch.tensor([1.0, 0.7, 0.4, 0.4, 0.1])
    delta = 0.01 * factors
    expected = (delta * (ref[:, 0] - delta / 2)).sum() / 15
    torch.testing.assert_close(conditional_huber_forces(ref, pred, 0.01), expected)
    batch = SimpleNamespace(
        forces=ref, weight=torch.ones(1), forces_weight=torch.ones(1), batch=torch.zeros(5, dtype=torch.int64)
    )
    torch.testing.assert_close(
        conditional_mse_forces(batch, {"forces": pred}), (factors * ref[:, 0] ** 2).sum() / 15
    )


def test_unweighted_energy_error():
    ref, pred = hand_made()
    torch.testing.assert_close(
        mean_squared_error_energy(ref, pred), (ref.energy - pred["energy"]).square().mean()
    )


@pytest.mark.parametrize("loss", EVERY_LOSS)
def test_follows_the_dtype_of_the_prediction(loss):
    ref, pred = hand_made()
    value = loss()(ref, pred)
    single = loss()(ref, {name: values.float() for name, values in pred.items()})
    assert value.dtype == torch.float64 and single.dtype == torch.float32
    assert single.item() == pytest.approx(value.item(), rel=relative("loss", torch.float32))


def test_every_public_loss_is_covered():
    assert len(EVERY_LOSS) == 12


@pytest.mark.parametrize("flagged", [0, 1, 3])
def test_mean_runs_over_labelled_graphs(flagged):
    ref, pred = hand_made()
    ref.potential_flag = (torch.arange(3) < flagged).double()
    terms = ref.weight * ref.potential_weight * (ref.potential - pred["potential"]) ** 2
    expected = terms[:flagged].mean() if flagged else terms.sum() * 0
    torch.testing.assert_close(weighted_mean_squared_error_potential(ref, pred), expected)


def test_text():
    assert (
        repr(WeightedEnergyForcesLoss(1, 100))
        == "WeightedEnergyForcesLoss(energy_weight=1.000, forces_weight=100.000)"
    )
    assert repr(FermiWeightedEnergyForcesLoss(1, 100, 1)) == (
        "FermiWeightedEnergyForcesLoss(energy_weight=1.000, forces_weight=100.000,potential_weight=1.000)"
    )
    assert repr(UniversalLoss(stress_weight=10)) == (
        "UniversalLoss(energy_weight=1.000, forces_weight=1.000, stress_weight=10.000)"
    )
