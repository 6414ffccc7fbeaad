"""Loss terms and the losses that are weighted sums of them.

A term compares a batch of labels ``ref`` (attributes as in ``AtomicData``: G graphs, N atoms) with a
dictionary of predictions ``pred`` and is a scalar in the dtype of the prediction. Below, per graph: w =
weight, w_E, w_F, w_S, w_V, w_P = energy_weight, forces_weight, stress_weight, virials_weight,
potential_weight, n = number of atoms, and d = label - prediction. Every mean runs over all listed elements;
it is not divided by the sum of the weights. Units are those of the labels: eV, eV/Angstrom, eV/Angstrom^3, V,
Debye.

Fermi levels ("potential") are averaged over the labelled graphs only, those with ``potential_flag`` = 1 (all
of them if the batch has no flag). Without any the term is exactly 0 and still differentiable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import pi
from typing import Any

import torch
from torch import Tensor

Predictions = Mapping[str, Tensor | None]
TermFunction = Callable[[Any, Predictions], Tensor]


# What a term needs


def _predicted(pred: Predictions, name: str) -> Tensor:
    value = pred[name]
    assert value is not None, f"the loss needs {name!r}, which the model was not asked to compute"
    return value


def _labels(ref: Any, name: str, like: Tensor) -> Tensor:
    return getattr(ref, name).to(like.dtype)


def _difference(ref: Any, pred: Predictions, name: str) -> Tensor:
    value = _predicted(pred, name)
    return _labels(ref, name, value) - value


def _num_atoms(ref: Any, like: Tensor) -> Tensor:
    """Atoms per graph, [G]."""
    return (ref.ptr[1:] - ref.ptr[:-1]).to(like.dtype)


def _weights(ref: Any, name: str, values: Tensor) -> Tensor:
    """Weights w * w_name of every graph, shaped to multiply values [G, ...]."""
    weights = _labels(ref, "weight", values) * _labels(ref, f"{name}_weight", values)
    return weights.view(-1, *[1] * (values.dim() - 1))


def _weights_of_atoms(ref: Any, name: str, values: Tensor) -> Tensor:
    """Weights w * w_name of the graph of every atom, shaped to multiply values [N, ...]."""
    return _weights(ref, name, values)[ref.batch]


def _mean_over_labelled(ref: Any, values: Tensor) -> Tensor:
    """Mean of values [G] over the graphs that have a Fermi level."""
    flag = getattr(ref, "potential_flag", None)
    if flag is None:
        return values.mean()
    labelled = flag.to(values.dtype)
    return (values * labelled).sum() / labelled.sum().clamp(min=1.0)


def _num_labelled(ref: Any) -> int:
    """Number of graphs that have a Fermi level."""
    flag = getattr(ref, "potential_flag", None)
    return ref.num_graphs if flag is None else int(flag.sum())


# Squared errors


def mean_squared_error_energy(ref: Any, pred: Predictions) -> Tensor:
    """mean_g d^2 of the total energies; no weights."""
    return _difference(ref, pred, "energy").square().mean()


def weighted_mean_squared_error_energy(ref: Any, pred: Predictions) -> Tensor:
    """mean_g w w_E (d/n)^2."""
    error = _difference(ref, pred, "energy")
    return (_weights(ref, "energy", error) * (error / _num_atoms(ref, error)).square()).mean()


def mean_squared_error_forces(ref: Any, pred: Predictions) -> Tensor:
    """Mean over N x 3 of w w_F d^2."""
    error = _difference(ref, pred, "forces")
    return (_weights_of_atoms(ref, "forces", error) * error.square()).mean()


def weighted_mean_squared_stress(ref: Any, pred: Predictions) -> Tensor:
    """Mean over G x 3 x 3 of w w_S d^2."""
    error = _difference(ref, pred, "stress")
    return (_weights(ref, "stress", error) * error.square()).mean()


def weighted_mean_squared_virials(ref: Any, pred: Predictions) -> Tensor:
    """Mean over G x 3 x 3 of w w_V (d/n)^2."""
    error = _difference(ref, pred, "virials")
    per_atom = error / _num_atoms(ref, error).view(-1, 1, 1)
    return (_weights(ref, "virials", error) * per_atom.square()).mean()


def weighted_mean_squared_error_dipole(ref: Any, pred: Predictions) -> Tensor:
    """Mean over G x 3 of (d/n)^2; dipoles have no weights of configurations."""
    error = _difference(ref, pred, "dipole")
    return (error / _num_atoms(ref, error).unsqueeze(-1)).square().mean()


def weighted_mean_squared_error_potential(ref: Any, pred: Predictions) -> Tensor:
    """Mean over labelled graphs of w w_P d^2."""
    error = _difference(ref, pred, "potential")
    return _mean_over_labelled(ref, _weights(ref, "potential", error) * error.square())


# Absolute errors


def weighted_mean_absolute_error_energy(ref: Any, pred: Predictions) -> Tensor:
    """mean_g w w_E |d/n|."""
    error = _difference(ref, pred, "energy")
    return (_weights(ref, "energy", error) * (error / _num_atoms(ref, error)).abs()).mean()


def weighted_mean_norm_error_forces(ref: Any, pred: Predictions) -> Tensor:
    """Mean over N atoms of w w_F |d|, the length of the error of each force."""
    error = _difference(ref, pred, "forces")
    lengths = torch.linalg.vector_norm(error, dim=-1)
    return (_weights_of_atoms(ref, "forces", lengths) * lengths).mean()


# Gaussian likelihoods: the model predicts the logarithm s of a variance


def _negative_log_likelihood(error: Tensor, log_variance: Tensor) -> Tensor:
    """s/2 + d^2 / (2 e^s), without the constant."""
    return 0.5 * (log_variance + error.square() * torch.exp(-log_variance))


def weighted_nll_energy(ref: Any, pred: Predictions) -> Tensor:
    """mean_g w w_E [ s/2 + (d/n)^2 / (2 e^s) ]: s = energy_logvar belongs to the energy PER ATOM, in eV^2."""
    error = _difference(ref, pred, "energy")
    values = _negative_log_likelihood(error / _num_atoms(ref, error), _predicted(pred, "energy_logvar"))
    return (_weights(ref, "energy", error) * values).mean()


def weighted_nll_potential(ref: Any, pred: Predictions) -> Tensor:
    """Mean over labelled graphs of w w_P [ s/2 + d^2 / (2 e^s) ], s = potential_logvar."""
    error = _difference(ref, pred, "potential")
    values = _negative_log_likelihood(error, _predicted(pred, "potential_logvar"))
    return _mean_over_labelled(ref, _weights(ref, "potential", error) * values)


# Evidential regression: the model predicts a distribution over mean and variance


def evidential_regression_loss(
    gamma: Tensor,
    nu: Tensor,
    alpha: Tensor,
    beta: Tensor,
    target: Tensor,
    reg_weight: float = 1.0,
    epsilon: float = 1e-6,
) -> Tensor:
    """Likelihood loss of a normal-inverse-gamma distribution, plus a penalty on confident errors.

    With a = alpha + 1, Omega = 2 beta (1 + nu) and d = target - gamma, elementwise:

        ln(pi / nu) / 2 - a ln Omega + (a + 1/2) ln(nu d^2 + Omega) + lnGamma(a) - lnGamma(a + 1/2) +
        reg_weight |d| (2 nu + a)

    Reference: A. Amini et al., "Deep Evidential Regression", NeurIPS 2020, equations 8-10.

    Args:
        gamma: predicted value.
        nu: predicted evidence for the mean, at least ``epsilon``.
        alpha: predicted evidence for the variance; a is at least 1 + ``epsilon``.
        beta: predicted scale of the variance, at least ``epsilon``.
        target: label.
        reg_weight: weight of the penalty.
        epsilon: see above.
    """
    nu, beta = nu.clamp(min=epsilon), beta.clamp(min=epsilon)
    a = (alpha + 1.0).clamp(min=1.0 + epsilon)
    omega = 2.0 * beta * (1.0 + nu)
    error = target - gamma
    likelihood = (
        0.5 * torch.log(pi / nu)
        - a * torch.log(omega)
        + (a + 0.5) * torch.log(nu * error.square() + omega)
        + torch.lgamma(a)
        - torch.lgamma(a + 0.5)
    )
    return likelihood + reg_weight * error.abs() * (2.0 * nu + a)


def _evidence(pred: Predictions, name: str) -> tuple[Tensor, Tensor, Tensor]:
    return _predicted(pred, f"{name}_nu"), _predicted(pred, f"{name}_alpha"), _predicted(pred, f"{name}_beta")


def weighted_evidential_loss_energy(
    ref: Any, pred: Predictions, reg_weight: float = 1.0, epsilon: float = 1e-6
) -> Tensor:
    """mean_g w w_E of the evidential loss of E/n, with beta/n^2."""
    energy, n = _predicted(pred, "energy"), _num_atoms(ref, _predicted(pred, "energy"))
    nu, alpha, beta = _evidence(pred, "energy")
    label = _labels(ref, "energy", energy)
    values = evidential_regression_loss(
        energy / n, nu, alpha, beta / n.square(), label / n, reg_weight, epsilon
    )
    return (_weights(ref, "energy", energy) * values).mean()


def weighted_evidential_loss_potential(
    ref: Any, pred: Predictions, reg_weight: float = 1.0, epsilon: float = 1e-6
) -> Tensor:
    """Mean over labelled graphs of w w_P times the evidential loss."""
    potential = _predicted(pred, "potential")
    label = _labels(ref, "potential", potential)
    values = evidential_regression_loss(potential, *_evidence(pred, "potential"), label, reg_weight, epsilon)
    return _mean_over_labelled(ref, _weights(ref, "potential", potential) * values)


# Huber losses: quadratic up to delta, linear beyond


def _huber(error: Tensor, delta: float | Tensor) -> Tensor:
    """d^2/2 for |d| <= delta, delta (|d| - delta/2) beyond."""
    size = error.abs()
    return torch.where(size <= delta, 0.5 * size.square(), delta * (size - 0.5 * delta))


def _softening(ref_forces: Tensor) -> Tensor:
    """Factors 1, 0.7, 0.4, 0.1 from reference forces of 0, 100, 200, 300 eV/Angstrom on, [N, 1]."""
    size = ref_forces.norm(dim=-1, keepdim=True)
    return 1.0 - 0.3 * sum((size >= limit).to(size.dtype) for limit in (100.0, 200.0, 300.0))


def conditional_huber_forces(ref_forces: Tensor, pred_forces: Tensor, huber_delta: float) -> Tensor:
    """Mean over N x 3 of Huber losses whose delta is smaller for large reference forces."""
    return _huber(ref_forces - pred_forces, huber_delta * _softening(ref_forces)).mean()


def conditional_mse_forces(ref: Any, pred: Predictions) -> Tensor:
    """Mean over N x 3 of w w_F d^2, softened for large reference forces."""
    error = _difference(ref, pred, "forces")
    softening = _softening(_labels(ref, "forces", error))
    return (_weights_of_atoms(ref, "forces", error) * softening * error.square()).mean()


def _huber_terms(ref: Any, pred: Predictions, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """w, w_name and d (d/n for the energy), shaped to be multiplied."""
    error = _difference(ref, pred, name)
    if name == "energy":
        error = error / _num_atoms(ref, error)
    shape = [-1, *[1] * (error.dim() - 1)]
    w, w_name = (_labels(ref, weight, error) for weight in ("weight", f"{name}_weight"))
    if name == "forces":
        w, w_name = w[ref.batch], w_name[ref.batch]
    return w.view(shape), w_name.view(shape), error


def weighted_huber(ref: Any, pred: Predictions, name: str, huber_delta: float) -> Tensor:
    """Mean of w w_name Huber(d); d/n for the energy."""
    w, w_name, error = _huber_terms(ref, pred, name)
    return (w * w_name * _huber(error, huber_delta)).mean()


def universal_huber(ref: Any, pred: Predictions, name: str, huber_delta: float) -> Tensor:
    """Mean of w Huber(w_name d), softer where w_F times the reference force is large; d/n for the energy."""
    w, w_name, error = _huber_terms(ref, pred, name)
    softening = _softening(w_name * _labels(ref, "forces", error)) if name == "forces" else 1.0
    return (w * _huber(w_name * error, huber_delta * softening)).mean()


# The losses


class WeightedSum(torch.nn.Module):
    """Sum of weight * term.

    Args:
        terms: for each name, the weight and the function of its term. The weight becomes the buffer
            ``<name>_weight``.
    """

    separator = ", "  # between the weights in the text of the loss

    def __init__(self, **terms: tuple[float, TermFunction]) -> None:
        super().__init__()
        self._terms = {name: function for name, (_, function) in terms.items()}
        for name, (weight, _) in terms.items():
            self.register_buffer(f"{name}_weight", torch.tensor(weight, dtype=torch.get_default_dtype()))

    def forward(self, ref: Any, pred: Predictions) -> Tensor:
        """The loss of a batch of labels and the predictions for it, a scalar."""
        return torch.stack(list(self.terms(ref, pred).values())).sum()

    def terms(self, ref: Any, pred: Predictions) -> dict[str, Tensor]:
        """The summands of the loss, by name.

        With :meth:`term_counts`, the loss of a set follows from those of its batches, whatever the batches:
        sum over terms of (sum of value * count) / (sum of counts).
        """
        values = {name: term(ref, pred) for name, term in self._terms.items()}
        return {
            name: self.get_buffer(f"{name}_weight").to(value.dtype) * value for name, value in values.items()
        }

    def term_counts(self, ref: Any) -> dict[str, int]:
        """Of how many graphs, atoms or labels of a batch each summand of the loss is the mean."""
        counts = {"forces": ref.batch.numel(), "potential": _num_labelled(ref)}
        return {name: counts.get(name, ref.num_graphs) for name in self._terms}

    def __repr__(self) -> str:
        weights = [f"{name}={float(weight):.3f}" for name, weight in self.named_buffers()]
        return f"{self.__class__.__name__}({self.separator.join(weights)})"


class WeightedEnergyForcesLoss(WeightedSum):
    """Squared errors of energy per atom and forces."""

    def __init__(self, energy_weight: float = 1.0, forces_weight: float = 1.0) -> None:
        super().__init__(
            energy=(energy_weight, weighted_mean_squared_error_energy),
            forces=(forces_weight, mean_squared_error_forces),
        )


class WeightedEnergyForcesL1L2Loss(WeightedSum):
    """Absolute errors of energy per atom and lengths of the errors of forces, as in mace-torch 0.3.16."""

    def __init__(self, energy_weight: float = 1.0, forces_weight: float = 1.0) -> None:
        super().__init__(
            energy=(energy_weight, weighted_mean_absolute_error_energy),
            forces=(forces_weight, weighted_mean_norm_error_forces),
        )


class WeightedForcesLoss(WeightedSum):
    """Squared errors of forces."""

    def __init__(self, forces_weight: float = 1.0) -> None:
        super().__init__(forces=(forces_weight, mean_squared_error_forces))


class WeightedEnergyForcesStressLoss(WeightedSum):
    """Squared errors of energy per atom, forces and stress."""

    def __init__(
        self, energy_weight: float = 1.0, forces_weight: float = 1.0, stress_weight: float = 1.0
    ) -> None:
        super().__init__(
            energy=(energy_weight, weighted_mean_squared_error_energy),
            forces=(forces_weight, mean_squared_error_forces),
            stress=(stress_weight, weighted_mean_squared_stress),
        )


class WeightedEnergyForcesVirialsLoss(WeightedSum):
    """Squared errors of energy per atom, forces and virials per atom."""

    def __init__(
        self, energy_weight: float = 1.0, forces_weight: float = 1.0, virials_weight: float = 1.0
    ) -> None:
        super().__init__(
            energy=(energy_weight, weighted_mean_squared_error_energy),
            forces=(forces_weight, mean_squared_error_forces),
            virials=(virials_weight, weighted_mean_squared_virials),
        )


class _HuberSum(WeightedSum):
    """Energy, forces and stress through one kind of Huber term."""

    term: Callable[..., Tensor]

    def __init__(
        self,
        energy_weight: float = 1.0,
        forces_weight: float = 1.0,
        stress_weight: float = 1.0,
        huber_delta: float = 0.01,
    ) -> None:
        weights = {"energy": energy_weight, "forces": forces_weight, "stress": stress_weight}
        term = type(self).term
        super().__init__(
            **{
                name: (weight, partial(term, name=name, huber_delta=huber_delta))
                for name, weight in weights.items()
            }
        )
        self.huber_delta = huber_delta


class WeightedHuberEnergyForcesStressLoss(_HuberSum):
    """Huber losses of energy per atom, forces and stress, weighted by configuration."""

    term = staticmethod(weighted_huber)


class UniversalLoss(_HuberSum):
    """Huber losses of weighted values, softer for large forces."""

    term = staticmethod(universal_huber)


def _hundred_dipoles(ref: Any, pred: Predictions) -> Tensor:
    """Debye are counted in hundredths, so that a weight of 1 is of the order of the other terms."""
    return 100.0 * weighted_mean_squared_error_dipole(ref, pred)


class DipoleSingleLoss(WeightedSum):
    """100 times the squared error of the dipole per atom."""

    def __init__(self, dipole_weight: float = 1.0) -> None:
        super().__init__(dipole=(dipole_weight, _hundred_dipoles))


class WeightedEnergyForcesDipoleLoss(WeightedSum):
    """Squared errors of energy per atom and forces, and 100 times that of the dipole per atom."""

    def __init__(
        self, energy_weight: float = 1.0, forces_weight: float = 1.0, dipole_weight: float = 1.0
    ) -> None:
        super().__init__(
            energy=(energy_weight, weighted_mean_squared_error_energy),
            forces=(forces_weight, mean_squared_error_forces),
            dipole=(dipole_weight, _hundred_dipoles),
        )


class _FermiSum(WeightedSum):
    """Energy, forces (squared errors) and Fermi level."""

    def __init__(
        self,
        energy: TermFunction,
        potential: TermFunction,
        energy_weight: float = 1.0,
        forces_weight: float = 1.0,
        potential_weight: float = 1.0,
    ) -> None:
        super().__init__(
            energy=(energy_weight, energy),
            forces=(forces_weight, mean_squared_error_forces),
            potential=(potential_weight, potential),
        )

    def __repr__(self) -> str:
        # The log format of CP-MACE, which has no blank there.
        return super().__repr__().replace(", potential", ",potential")


class FermiWeightedEnergyForcesLoss(_FermiSum):
    """Squared errors of energy per atom, forces and Fermi level."""

    def __init__(
        self, energy_weight: float = 1.0, forces_weight: float = 1.0, potential_weight: float = 1.0
    ) -> None:
        super().__init__(
            weighted_mean_squared_error_energy,
            weighted_mean_squared_error_potential,
            energy_weight,
            forces_weight,
            potential_weight,
        )


class FermiWeightedEnergyForcesLossUncertainty(_FermiSum):
    """Gaussian negative log likelihoods of energy per atom and Fermi level, squared errors of forces."""

    def __init__(
        self, energy_weight: float = 1.0, forces_weight: float = 1.0, potential_weight: float = 1.0
    ) -> None:
        super().__init__(
            weighted_nll_energy, weighted_nll_potential, energy_weight, forces_weight, potential_weight
        )


class FermiWeightedEnergyForcesLossEvidential(_FermiSum):
    """Evidential losses of energy per atom and Fermi level, squared errors of forces."""

    def __init__(
        self,
        energy_weight: float = 1.0,
        forces_weight: float = 1.0,
        potential_weight: float = 1.0,
        reg_weight: float = 1.0,
        edl_epsilon: float = 1e-6,
    ) -> None:
        super().__init__(
            partial(weighted_evidential_loss_energy, reg_weight=reg_weight, epsilon=edl_epsilon),
            partial(weighted_evidential_loss_potential, reg_weight=reg_weight, epsilon=edl_epsilon),
            energy_weight,
            forces_weight,
            potential_weight,
        )
