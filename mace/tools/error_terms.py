"""Which errors the log lines and the tables of a run show, in which unit and format: one declaration each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mace.exceptions import InputError

MISSING = "n/a"


@dataclass(frozen=True)
class ErrorTerm:
    """One error as it is shown.

    Attributes:
        metrics: names of metrics (see ``metrics.py``), the first that is there is shown.
        titles: what is shown with each of them: ``NAME|unit`` in log lines, a column title in tables.
        form: format of the number.
        factor: from the metric's unit to the shown one.
        optional: not shown at all where no metric is there.
    """

    metrics: tuple[str, ...]
    titles: tuple[str, ...]
    form: str
    factor: float = 1000.0
    optional: bool = False

    def is_shown(self, metrics: Mapping[str, Any]) -> bool:
        """Whether the term is part of a line or row of these metrics."""
        return not self.optional or any(metrics.get(metric) is not None for metric in self.metrics)

    def show(self, metrics: Mapping[str, Any]) -> tuple[str, str]:
        """Title and formatted value, ``n/a`` in the same width if no metric is there."""
        for metric, title in zip(self.metrics, self.titles, strict=True):
            if metrics.get(metric) is not None:
                return title, format(self.factor * metrics[metric], self.form)
        return self.titles[0], f"{MISSING:>{self.form.partition('.')[0]}}"


def terms_of(terms: Mapping[str, tuple[ErrorTerm, ...]], table_type: str) -> tuple[ErrorTerm, ...]:
    """The terms of a kind of table.

    Raises:
        InputError: there is no such kind.
    """
    if table_type not in terms:
        raise InputError(f"unknown error table '{table_type}'; choose one of {', '.join(terms)}")
    return terms[table_type]


def _logged(metric: str, title: str, form: str = "8.2f", factor: float = 1000.0) -> ErrorTerm:
    return ErrorTerm((metric,), (title,), form, factor)


_RMSE_F = _logged("rmse_f", "RMSE_F|meV / A")
_MAE_F = _logged("mae_f", "MAE_F|meV / A")
_RMSE_PER_ATOM = (
    _logged("rmse_e_per_atom", "RMSE_E_per_atom|meV", "8.3f"),
    _logged("rmse_f", "RMSE_F|meV / A", "8.3f"),
)

LOG_TERMS: dict[str, tuple[ErrorTerm, ...]] = {
    "PerAtomRMSE": _RMSE_PER_ATOM,
    # The Fermi level is not multiplied by 1000: it is logged in V.
    "Fermi_PerAtomRMSE": (
        *_RMSE_PER_ATOM,
        _logged("rmse_p", "RMSE_P|V", "8.4f", 1.0),
        ErrorTerm(("mean_e_unc",), ("energy_unc|eV / atom",), "8.4f", 1.0, optional=True),
        ErrorTerm(("mean_p_unc",), ("potential_unc|V",), "8.4f", 1.0, optional=True),
    ),
    "PerAtomRMSEstressvirials": (
        _logged("rmse_e_per_atom", "RMSE_E_per_atom|meV"),
        _RMSE_F,
        ErrorTerm(
            ("rmse_stress", "rmse_virials_per_atom"),
            ("RMSE_stress|meV / A^3", "RMSE_virials_per_atom|meV"),
            "8.2f",
        ),
    ),
    "PerAtomMAEstressvirials": (
        _logged("mae_e_per_atom", "MAE_E_per_atom|meV"),
        _MAE_F,
        ErrorTerm(("mae_stress", "mae_virials"), ("MAE_stress|meV / A^3", "MAE_virials|meV"), "8.2f"),
    ),
    "TotalRMSE": (_logged("rmse_e", "RMSE_E|meV"), _RMSE_F),
    "PerAtomMAE": (_logged("mae_e_per_atom", "MAE_E_per_atom|meV"), _MAE_F),
    "TotalMAE": (_logged("mae_e", "MAE_E|meV"), _MAE_F),
    "DipoleRMSE": (_logged("rmse_mu_per_atom", "RMSE_MU_per_atom|mDebye"),),
    "DipoleMAE": (_logged("mae_mu_per_atom", "MAE_MU_per_atom|mDebye"),),
    "EnergyDipoleRMSE": (
        _logged("rmse_e_per_atom", "RMSE_E_per_atom|meV"),
        _RMSE_F,
        _logged("rmse_mu_per_atom", "RMSE_Mu_per_atom|mDebye"),
    ),
}


def _column(title: str, metric: str, form: str = "8.1f") -> ErrorTerm:
    return ErrorTerm((metric,), (title,), form)


def _relative(title: str, metric: str, form: str = "8.2f") -> ErrorTerm:
    """Relative errors are in percent already."""
    return ErrorTerm((metric,), (title,), form, 1.0)


def _stress_column(kind: str) -> ErrorTerm:
    title = f"{kind} Stress (Virials) / meV / A^3 (meV)"
    return ErrorTerm((f"{kind.lower()}_stress", f"{kind.lower()}_virials"), (title, title), "8.1f")


_RMSE_E_ATOM = _column("RMSE E / meV / atom", "rmse_e_per_atom")
_MAE_E_ATOM = _column("MAE E / meV / atom", "mae_e_per_atom")
_RMSE_FORCES = _column("RMSE F / meV / A", "rmse_f")
_MAE_FORCES = _column("MAE F / meV / A", "mae_f")
_REL_RMSE_FORCES = _relative("relative F RMSE %", "rel_rmse_f")
_REL_MAE_FORCES = _relative("relative F MAE %", "rel_mae_f")

TABLE_TERMS: dict[str, tuple[ErrorTerm, ...]] = {
    "TotalRMSE": (_column("RMSE E / meV", "rmse_e"), _RMSE_FORCES, _REL_RMSE_FORCES),
    "PerAtomRMSE": (_RMSE_E_ATOM, _RMSE_FORCES, _REL_RMSE_FORCES),
    "Fermi_PerAtomRMSE": (_RMSE_E_ATOM, _RMSE_FORCES, _column("RMSE P / mV", "rmse_p"), _REL_RMSE_FORCES),
    "PerAtomRMSEstressvirials": (_RMSE_E_ATOM, _RMSE_FORCES, _REL_RMSE_FORCES, _stress_column("RMSE")),
    "PerAtomMAEstressvirials": (_MAE_E_ATOM, _MAE_FORCES, _REL_MAE_FORCES, _stress_column("MAE")),
    "TotalMAE": (_column("MAE E / meV", "mae_e"), _MAE_FORCES, _REL_MAE_FORCES),
    "PerAtomMAE": (_MAE_E_ATOM, _MAE_FORCES, _REL_MAE_FORCES),
    "DipoleRMSE": (
        _column("RMSE MU / mDebye / atom", "rmse_mu_per_atom", "8.2f"),
        _relative("relative MU RMSE %", "rel_rmse_mu", "8.1f"),
    ),
    "DipoleMAE": (
        _column("MAE MU / mDebye / atom", "mae_mu_per_atom", "8.2f"),
        _relative("relative MU MAE %", "rel_mae_mu", "8.1f"),
    ),
    "EnergyDipoleRMSE": (
        _RMSE_E_ATOM,
        _RMSE_FORCES,
        _relative("rel F RMSE %", "rel_rmse_f", "8.1f"),
        _column("RMSE MU / mDebye / atom", "rmse_mu_per_atom"),
        _relative("rel MU RMSE %", "rel_rmse_mu", "8.1f"),
    ),
}
