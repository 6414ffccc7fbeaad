"""Errors of a model over a set of configurations that may be spread over several processes.

Every label that a set holds is compared once, whatever the batches and the number of processes; what has no
label does not count. Processes exchange sums and the largest few percent of the errors, never all of them;
of predicted uncertainties, one number for each configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mace.tools.distributed import Ranks
from mace.tools.ranks.pooling import pooled

Metrics = dict[str, Any]


@dataclass
class ErrorSample:
    """Errors of one quantity on this process, in double precision.

    An error is reference minus prediction, one number a component.
    """

    errors: list[np.ndarray] = field(default_factory=list)
    references: list[np.ndarray] = field(default_factory=list)

    def add(self, error: Tensor, reference: Tensor) -> None:
        """Append errors and the reference values they belong to, of any (equal) shape."""
        self.errors.append(_numbers(error))
        self.references.append(_numbers(reference))

    @property
    def joined(self) -> tuple[np.ndarray, np.ndarray]:
        """All errors, and all references."""
        return _joined(self.errors), _joined(self.references)


def reduce_samples(samples: Mapping[str, ErrorSample], ranks: Ranks) -> dict[str, ErrorStatistics]:
    """Statistics of the samples over all processes, those without any number left out. All must call this."""
    found = pooled({name: sample.joined for name, sample in samples.items()}, ranks)
    return {
        name: ErrorStatistics(
            mae=pool.mean_abs,
            rmse=math.sqrt(pool.mean_square),
            mean_reference=pool.mean_abs_reference,
            rms_reference=math.sqrt(pool.mean_square_reference),
            q95=pool.q95,
        )
        for name, pool in found.items()
    }


@dataclass(frozen=True)
class ErrorStatistics:
    """Errors of one quantity over all processes, in its own unit."""

    mae: float
    rmse: float
    mean_reference: float  # of the absolute reference values
    rms_reference: float
    q95: float  # 95th percentile of the absolute error

    @property
    def relative_mae(self) -> float:
        """Mean absolute error in percent of the mean absolute reference."""
        return 100 * self.mae / (self.mean_reference + 1e-9)

    @property
    def relative_rmse(self) -> float:
        """Root mean square error in percent of the reference's root mean square."""
        return 100 * self.rmse / (self.rms_reference + 1e-9)


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float64).reshape(-1).numpy()


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0)


class MetricsAccumulator:
    """Collects loss and errors batch by batch.

    Labels count where the data hold them: energies, forces, stress, virials and Fermi levels whose term
    weight is not zero (a missing label has zero weight) and, for the Fermi level, whose ``potential_flag``
    is 1.

    Args:
        loss_fn: called with ``pred`` and ``ref``; gives the mean loss of a batch.
    """

    def __init__(self, loss_fn: nn.Module) -> None:
        self._loss_fn = loss_fn
        self._loss_sums: dict[str, tuple[float, float]] = {}  # of value * count, of counts
        self._samples: dict[str, ErrorSample] = {}
        self._sigmas: dict[str, list[np.ndarray]] = {}

    def update(self, batch: Any, output: Mapping[str, Tensor | None]) -> None:
        """Add a batch of labelled graphs and what the model predicts for them."""
        terms = loss_terms(self._loss_fn, batch, output)
        counts = term_counts(self._loss_fn, batch)
        for (name, count), value in zip(
            counts.items(), torch.stack([terms[name] for name in counts]).tolist(), strict=True
        ):
            total, counted = self._loss_sums.get(name, (0.0, 0.0))
            self._loss_sums[name] = (total + value * count, counted + count)
        for quantity in _QUANTITIES:
            quantity.compare(batch, output, self._samples)
        for short, key in _LOG_VARIANCES.items():
            if output.get(key) is not None:
                self._sigmas.setdefault(short, []).append(_numbers(torch.exp(0.5 * output[key])))

    def compute(self, ranks: Ranks) -> tuple[float, Metrics]:
        """Loss and metrics, the same on every process. All must call this.

        The loss is what ``loss_fn`` would give for all configurations in one batch, or, if it does not say
        how to put that together from its batches, the mean over the configurations of their batches' losses;
        nan without any configuration. Quantities without a label or a prediction are absent from the metrics.
        """
        loss = _mean_loss(ranks.gather(self._loss_sums))
        statistics = reduce_samples(self._samples, ranks)
        metrics: Metrics = {"loss": loss}
        for quantity in _QUANTITIES:
            metrics.update(quantity.report(statistics))
        for short in _LOG_VARIANCES:
            sigmas = np.concatenate(ranks.gather(_joined(self._sigmas.get(short, []))))
            metrics.update(_uncertainty_metrics(short, sigmas))
        return loss, metrics


def _uncertainty_metrics(short: str, sigmas: np.ndarray) -> Metrics:
    """How large the predicted standard deviations are, one number a configuration; nothing without any."""
    if not sigmas.size:
        return {}
    statistics = {
        "mean": sigmas.mean(),
        "std": sigmas.std(),
        "max": sigmas.max(),
        "min": sigmas.min(),
        "q95": np.percentile(sigmas, 95),
    }
    return {f"{name}_{short}_unc": float(value) for name, value in statistics.items()}


def loss_terms(loss_fn: nn.Module, batch: Any, output: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """The summands of the loss of a batch; a loss without a method ``terms`` is one."""
    terms = getattr(loss_fn, "terms", None)
    return {"loss": loss_fn(pred=output, ref=batch)} if terms is None else terms(pred=output, ref=batch)


def term_counts(loss_fn: nn.Module, batch: Any) -> dict[str, int]:
    """Of how many elements each summand is the mean, which the labels alone decide; of graphs by default."""
    counts = getattr(loss_fn, "term_counts", None)
    return {"loss": batch.num_graphs} if counts is None else counts(batch)


def _mean_loss(shares: list[dict[str, tuple[float, float]]]) -> float:
    """The loss of a set from the sums of its shares."""
    names = sorted(set().union(*shares))
    means = []
    for name in names:
        found = [share[name] for share in shares if name in share]
        total, counted = sum(value for value, _ in found), sum(count for _, count in found)
        means.append(total / counted if counted else 0.0)
    return sum(means) if names else math.nan


@dataclass(frozen=True)
class _Quantity:
    """How one predicted quantity is compared and which metrics of it are reported.

    ``key`` is the name in graphs and model outputs, ``short`` the one in the metrics. A metric name is built
    from a pattern such as "rmse_{}_per_atom"; its sample is the plain or the per-atom one.
    """

    key: str
    short: str
    per: str  # "graph" or "atom"
    metrics: tuple[str, ...]

    def compare(
        self, batch: Any, output: Mapping[str, Tensor | None], samples: dict[str, ErrorSample]
    ) -> None:
        """Append the errors of a batch to the samples."""
        prediction, reference = output.get(self.key), batch[self.key]
        if prediction is None or reference is None:
            return
        labelled = self._labelled(batch)
        reference, error = reference[labelled], (reference - prediction)[labelled]
        samples.setdefault(self.key, ErrorSample()).add(error, reference)
        if any("per_atom" in name for name in self.metrics):
            num_atoms = (batch.ptr[1:] - batch.ptr[:-1])[labelled].to(error.dtype)
            num_atoms = num_atoms.reshape(-1, *[1] * (error.dim() - 1))
            samples.setdefault(f"{self.key} per atom", ErrorSample()).add(
                error / num_atoms, reference / num_atoms
            )

    def _labelled(self, batch: Any) -> Tensor:
        """Which rows of the quantity hold a label, bool [graphs or atoms]."""
        labelled = torch.ones(batch.num_graphs, dtype=torch.bool, device=batch.ptr.device)
        for weight in (batch[f"{self.key}_weight"], batch[f"{self.key}_flag"]):
            if weight is not None:
                labelled &= weight.reshape(-1) != 0
        return labelled[batch.batch] if self.per == "atom" else labelled

    def report(self, statistics: Mapping[str, ErrorStatistics]) -> Metrics:
        """The metrics of this quantity."""
        found: Metrics = {}
        for pattern in self.metrics:
            per_atom = "per_atom" in pattern
            values = statistics.get(f"{self.key} per atom" if per_atom else self.key)
            if values is not None:
                found[pattern.format(self.short)] = getattr(values, _STATISTIC[pattern.partition("_{}")[0]])
        return found


# Names of the logarithms of variances in outputs: of the energy per atom, eV^2, and of the Fermi level, V^2.
_LOG_VARIANCES = {"e": "energy_logvar", "p": "potential_logvar"}

_STATISTIC = {
    "mae": "mae",
    "rmse": "rmse",
    "q95": "q95",
    "rel_mae": "relative_mae",
    "rel_rmse": "relative_rmse",
}

_QUANTITIES = (
    _Quantity("energy", "e", "graph", ("mae_{}", "mae_{}_per_atom", "rmse_{}", "rmse_{}_per_atom", "q95_{}")),
    _Quantity("forces", "f", "atom", ("mae_{}", "rel_mae_{}", "rmse_{}", "rel_rmse_{}", "q95_{}")),
    _Quantity("potential", "p", "graph", ("rmse_{}",)),
    _Quantity("stress", "stress", "graph", ("mae_{}", "rmse_{}", "q95_{}")),
    _Quantity("virials", "virials", "graph", ("mae_{}", "rmse_{}", "rmse_{}_per_atom", "q95_{}")),
    _Quantity(
        "dipole",
        "mu",
        "graph",
        (
            "mae_{}",
            "mae_{}_per_atom",
            "rel_mae_{}",
            "rmse_{}",
            "rmse_{}_per_atom",
            "rel_rmse_{}",
            "q95_{}",
        ),
    ),
)
