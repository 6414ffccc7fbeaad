"""Errors over sets of configurations, labels missing here and there, on one rank and on several."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from mace.modules.loss import FermiWeightedEnergyForcesLoss
from mace.tools import compute_mae, compute_q95, compute_rel_mae, compute_rel_rmse, compute_rmse
from mace.tools.distributed import Ranks
from mace.tools.evaluation import evaluate, forward_keywords
from mace.tools.metrics import MetricsAccumulator
from mace.tools.ranks.pooling import pooled
from tests.thread_ranks import in_threads
from tests.toy_training import DTYPE, OUTPUTS, ToyModel, frames, loader

CPU = torch.device("cpu")
LOSS = FermiWeightedEnergyForcesLoss(1.0, 10.0, 1.0)


def predictions(configurations):
    """Reference minus prediction and reference, of every quantity, by brute force: one graph at a time."""
    model = ToyModel()
    rows = {"energy": [], "per_atom": [], "forces": [], "potential": []}
    for config in configurations:
        batch = next(iter(loader([config])))
        output = model(batch.to_dict())
        rows["energy"].append((batch.energy - output["energy"]).item())
        rows["per_atom"].append(rows["energy"][-1] / len(config.atomic_numbers))
        rows["forces"].append((batch.forces - output["forces"]).detach().numpy())
        rows["potential"].append((batch.potential - output["potential"]).item())
    return {key: np.concatenate(value) if key == "forces" else np.array(value) for key, value in rows.items()}


def close(value):
    return pytest.approx(value, rel=1e-12)


def test_metrics_are_those_of_all_configurations_whatever_the_batches():
    configurations = frames(11)
    expected = predictions(configurations)
    forces = np.concatenate([config.forces for config in configurations])
    for batch_size in (1, 4, 20):
        _, metrics = evaluate(ToyModel(), LOSS, loader(configurations, batch_size), OUTPUTS, CPU)
        assert metrics.pop("time") > 0 and metrics.pop("loss") > 0
        assert metrics == {
            "mae_e": close(compute_mae(expected["energy"])),
            "mae_e_per_atom": close(compute_mae(expected["per_atom"])),
            "rmse_e": close(compute_rmse(expected["energy"])),
            "rmse_e_per_atom": close(compute_rmse(expected["per_atom"])),
            "q95_e": close(compute_q95(expected["energy"])),
            "mae_f": close(compute_mae(expected["forces"])),
            "rel_mae_f": close(compute_rel_mae(expected["forces"], forces)),
            "rmse_f": close(compute_rmse(expected["forces"])),
            "rel_rmse_f": close(compute_rel_rmse(expected["forces"], forces)),
            "q95_f": close(compute_q95(expected["forces"])),
            "rmse_p": close(compute_rmse(expected["potential"])),
        }


class Uncertain(ToyModel):
    """Also predicts logarithms of variances."""

    def forward(self, data, **keywords):
        output = super().forward(data, **keywords)
        sizes = data["ptr"][1:] - data["ptr"][:-1]
        variances = {"energy_logvar": sizes.to(DTYPE).log(), "potential_logvar": -sizes.to(DTYPE)}
        return {**output, **variances}


@pytest.mark.parametrize("batch_size", [1, 4, 20])
def test_predicted_uncertainties_are_summarised(batch_size):
    configurations = frames(11)
    _, metrics = evaluate(Uncertain(), LOSS, loader(configurations, batch_size), OUTPUTS, CPU)
    sizes = np.array([len(config.atomic_numbers) for config in configurations], dtype=float)
    for short, sigmas in (("e", np.sqrt(sizes)), ("p", np.exp(-0.5 * sizes))):
        assert metrics[f"mean_{short}_unc"] == close(sigmas.mean())
        assert metrics[f"std_{short}_unc"] == close(sigmas.std())
        assert metrics[f"min_{short}_unc"] == close(sigmas.min())
        assert metrics[f"max_{short}_unc"] == close(sigmas.max())
        assert metrics[f"q95_{short}_unc"] == close(compute_q95(sigmas))


def test_a7_d14_configurations_without_a_label_do_not_count():
    configurations = frames(6)
    expected = predictions(configurations)
    configurations[0].energy = None
    configurations[1].forces = None
    configurations[2].potential = None
    _, metrics = evaluate(ToyModel(), LOSS, loader(configurations), OUTPUTS, CPU)
    kept = [i for i in range(6) if i != 1]
    sizes = np.cumsum([0] + [len(config.atomic_numbers) for config in configurations])
    rows = np.concatenate([np.arange(sizes[i], sizes[i + 1]) for i in kept])
    assert metrics["rmse_e"] == close(compute_rmse(expected["energy"][1:]))
    assert metrics["rmse_f"] == close(compute_rmse(expected["forces"][rows]))
    assert metrics["rmse_p"] == close(compute_rmse(np.delete(expected["potential"], 2)))


def test_a11_a_quantity_without_any_label_or_prediction_is_absent():
    configurations = frames(3)
    for config in configurations:
        config.potential = None
    _, metrics = evaluate(ToyModel(), LOSS, loader(configurations), OUTPUTS, CPU)
    assert "rmse_p" not in metrics and "rmse_f" in metrics and "rmse_stress" not in metrics
    silent = {**OUTPUTS, "potential": False}
    _, metrics = evaluate(ToyModel(), nn_loss(), loader(frames(3)), silent, CPU)
    assert "rmse_p" not in metrics


def nn_loss():
    class Energies(nn.Module):
        def forward(self, ref, pred):
            return (ref.energy - pred["energy"]).square().mean()

    return Energies()


def test_d1_the_loss_is_that_of_all_configurations_in_one_batch():
    configurations = frames(7)
    configurations[2].potential = configurations[3].potential = None
    whole = next(iter(loader(configurations, 7)))
    expected = LOSS(ref=whole, pred=ToyModel()(whole.to_dict())).item()
    for batch_size in (1, 2, 3, 7):
        loss, metrics = evaluate(ToyModel(), LOSS, loader(configurations, batch_size), OUTPUTS, CPU)
        assert loss == close(expected) and metrics["loss"] == loss


def test_d1_a_loss_without_counts_is_averaged_over_the_configurations():
    configurations = frames(7)
    model = ToyModel()
    singles = [evaluate(model, nn_loss(), loader([config]), OUTPUTS, CPU)[0] for config in configurations]
    for batch_size in (1, 2, 7):
        loss, metrics = evaluate(model, nn_loss(), loader(configurations, batch_size), OUTPUTS, CPU)
        assert loss == close(np.mean(singles)) and metrics["loss"] == loss


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("count", [1, 5, 12])
def test_reports_13_14_several_ranks_find_the_same_numbers(world_size, count):
    configurations = frames(count)
    for config in configurations[1:]:
        config.potential = None  # one rank alone has a labelled Fermi level
    models = [ToyModel() for _ in range(world_size)]
    loss, metrics = evaluate(models[0], LOSS, loader(configurations, 2), OUTPUTS, CPU)

    def share(ranks):
        return evaluate(models[ranks.rank], LOSS, loader(configurations, 2, ranks), OUTPUTS, CPU, ranks)

    found = in_threads(world_size, share)
    del metrics["time"]
    for other_loss, other in found:
        del other["time"]
        assert other_loss == close(loss)
        assert other == {key: close(value) for key, value in metrics.items()}
        assert other == found[0][1]  # to the bit: decisions are made from these numbers


def test_an_empty_set_gives_no_metrics():
    loss, metrics = MetricsAccumulator(LOSS).compute(Ranks.single())
    assert math.isnan(loss) and list(metrics) == ["loss"]


@pytest.mark.parametrize("world_size", [1, 3])
def test_percentiles_of_shares_are_those_of_the_whole(world_size):
    rng = np.random.default_rng(0)
    for count in (1, 2, 19, 20, 21, 101):
        values = rng.normal(size=count) ** 2
        answers = in_threads(
            world_size,
            lambda ranks, values=values: (
                pooled({"e": 2 * (values[ranks.rank :: ranks.world_size],)}, ranks)["e"].q95
            ),
        )
        assert answers == [pytest.approx(np.percentile(values, 95), rel=1e-14)] * world_size


def test_d18_gradients_are_as_before_after_an_evaluation():
    model = ToyModel()
    model.readouts.requires_grad_(False)
    before = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    evaluate(model, LOSS, loader(frames(2)), OUTPUTS, CPU)
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == before

    with pytest.raises(ZeroDivisionError):
        evaluate(model, failing_loss(), loader(frames(2)), OUTPUTS, CPU)
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == before


def failing_loss():
    class Failing(nn.Module):
        def forward(self, ref, pred):
            raise ZeroDivisionError

    return Failing()


def test_b9_a_model_is_only_asked_for_what_its_forward_knows():
    class Dipoles(nn.Module):
        def forward(self, data, training=False, compute_force=False):
            return {}

    assert forward_keywords(Dipoles(), OUTPUTS) == {"compute_force": True}
    assert forward_keywords(ToyModel(), OUTPUTS) == {"compute_force": True, "compute_potential": True}


def test_matrices_and_dipoles_are_compared_by_component():
    batch = next(iter(loader(frames(3))))
    batch.stress = torch.rand(3, 3, 3, dtype=DTYPE)
    batch.virials = torch.rand(3, 3, 3, dtype=DTYPE)
    batch.stress_weight = torch.tensor([1.0, 0.0, 1.0], dtype=DTYPE)
    batch.virials_weight = torch.ones(3, dtype=DTYPE)
    batch.dipole = torch.rand(3, 3, dtype=DTYPE)
    zeros = torch.zeros(3, 3, 3, dtype=DTYPE)
    output = {"stress": zeros, "virials": zeros, "dipole": zeros[0], "energy": batch.energy * 0}
    accumulator = MetricsAccumulator(nn_loss())
    accumulator.update(batch, output)
    _, metrics = accumulator.compute(Ranks.single())
    atoms = (batch.ptr[1:] - batch.ptr[:-1]).numpy()
    assert metrics["rmse_stress"] == close(compute_rmse(batch.stress[[0, 2]].numpy()))
    assert metrics["rmse_virials_per_atom"] == close(
        compute_rmse(batch.virials.numpy() / atoms[:, None, None])
    )
    assert metrics["mae_mu_per_atom"] == close(compute_mae(batch.dipole.numpy() / atoms[:, None]))
    assert metrics["rel_rmse_mu"] == close(100 * (1 - 1e-9 / compute_rmse(batch.dipole.numpy())))


def test_single_precision_errors_are_summed_in_double_precision():
    batch = next(iter(loader(frames(4)))).apply(
        lambda value: value.float() if value.is_floating_point() else value
    )
    output = {"energy": batch.energy + 1e-3, "forces": batch.forces, "potential": None}
    accumulator = MetricsAccumulator(nn_loss())
    for _ in range(500):
        accumulator.update(batch, output)
    _, metrics = accumulator.compute(Ranks.single())
    errors = (batch.energy - output["energy"]).double().numpy()
    assert metrics["rmse_e"] == pytest.approx(compute_rmse(errors), rel=1e-13)
