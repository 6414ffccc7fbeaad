"""What the log lines and the tables show, in which unit."""

import logging
import sys
from types import SimpleNamespace

import pytest
import torch

from mace.exceptions import InputError
from mace.modules.loss import FermiWeightedEnergyForcesLoss
from mace.tools.error_terms import LOG_TERMS, TABLE_TERMS
from mace.tools.logging_tools import error_line, valid_err_log
from mace.tools.tables_utils import create_error_table, custom_key
from tests.toy_training import OUTPUTS, Records, ToyModel, frames, lines, loader

LOSS = FermiWeightedEnergyForcesLoss(1.0, 10.0, 1.0)
METRICS = {
    "rmse_e": 1.0,
    "rmse_e_per_atom": 1.973945,
    "mae_e": 0.5,
    "mae_e_per_atom": 0.25,
    "rmse_f": 0.13012,
    "mae_f": 0.1,
    "rmse_p": 2.6268,
    "rmse_stress": 0.02,
    "mae_stress": 0.01,
    "rmse_virials_per_atom": 0.04,
    "mae_virials": 0.03,
    "mae_mu_per_atom": 0.07,
    "rmse_mu_per_atom": 0.08,
}


def table_of(sets, kind="Fermi_PerAtomRMSE", **options):
    return create_error_table(
        kind, sets, ToyModel(), LOSS, OUTPUTS, options.pop("log_wandb", False), torch.device("cpu"), **options
    )


def test_the_fermi_line_is_the_documented_one():
    assert error_line(3.55895809, METRICS, "Fermi_PerAtomRMSE", 1, "default") == (
        "Epoch 1: head: default, loss=3.55895809, RMSE_E_per_atom=1973.945 meV, RMSE_F= 130.120 meV / A, "
        "RMSE_P=  2.6268 V"
    )


def test_a12_predicted_uncertainties_have_units_and_are_shown_where_there_are_some():
    metrics = {**METRICS, "mean_e_unc": 0.0125, "mean_p_unc": 0.25}
    line = error_line(1.0, metrics, "Fermi_PerAtomRMSE", 1, "h")
    assert line.endswith("RMSE_P=  2.6268 V, energy_unc=  0.0125 eV / atom, potential_unc=  0.2500 V")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("PerAtomRMSE", "RMSE_E_per_atom=1973.945 meV, RMSE_F= 130.120 meV / A"),
        (
            "PerAtomRMSEstressvirials",
            "RMSE_E_per_atom= 1973.95 meV, RMSE_F=  130.12 meV / A, RMSE_stress=   20.00 meV / A^3",
        ),
        ("TotalRMSE", "RMSE_E= 1000.00 meV, RMSE_F=  130.12 meV / A"),
        ("PerAtomMAE", "MAE_E_per_atom=  250.00 meV, MAE_F=  100.00 meV / A"),
        ("TotalMAE", "MAE_E=  500.00 meV, MAE_F=  100.00 meV / A"),
        ("DipoleRMSE", "RMSE_MU_per_atom=   80.00 mDebye"),
        (
            "EnergyDipoleRMSE",
            "RMSE_E_per_atom= 1973.95 meV, RMSE_F=  130.12 meV / A, RMSE_Mu_per_atom=   80.00 mDebye",
        ),
    ],
)
def test_lines_of_the_other_kinds(kind, text):
    assert error_line(1.0, METRICS, kind, None, "h") == f"Initial: head: h, loss=1.00000000, {text}"


def test_d12_the_stress_mae_line_reads_keys_that_exist():
    line = error_line(1.0, METRICS, "PerAtomMAEstressvirials", 0, "h")
    assert line.endswith("MAE_E_per_atom=  250.00 meV, MAE_F=  100.00 meV / A, MAE_stress=   10.00 meV / A^3")


def test_d13_dipole_mae_has_a_line():
    assert error_line(1.0, METRICS, "DipoleMAE", 0, "h").endswith("MAE_MU_per_atom=   70.00 mDebye")


def test_virials_stand_in_for_a_missing_stress():
    metrics = {key: value for key, value in METRICS.items() if "stress" not in key}
    assert "RMSE_virials_per_atom=   40.00 meV" in error_line(
        1.0, metrics, "PerAtomRMSEstressvirials", 0, "h"
    )
    assert "MAE_virials=   30.00 meV" in error_line(1.0, metrics, "PerAtomMAEstressvirials", 0, "h")


@pytest.mark.parametrize("kind", LOG_TERMS)
def test_a11_missing_errors_show_as_not_available(kind):
    line = error_line(1.0, {}, kind, 0, "h")
    assert line.count("n/a") == sum(not term.optional for term in LOG_TERMS[kind])
    assert "RMSE_P=     n/a V" in line or kind != "Fermi_PerAtomRMSE"


def test_d25_records_carry_the_head(caplog):
    records = Records()
    with caplog.at_level(logging.INFO):
        valid_err_log(1.0, {"loss": 1.0}, records, "TotalMAE", None, "surface")
    assert records == [{"loss": 1.0, "mode": "eval", "epoch": None, "head": "surface"}]
    assert lines(caplog)[0].startswith("Initial: head: surface")


def test_every_line_has_its_table():
    assert set(LOG_TERMS) == set(TABLE_TERMS)


def test_a12_the_fermi_table_says_mv(caplog):
    sets = {"valid_h": loader(frames(3, 2)), "slab_h": loader(frames(2, 3)), "train_h": loader(frames(4))}
    with caplog.at_level(logging.INFO):
        table = table_of(sets)
    assert table.field_names == [
        "config_type",
        "RMSE E / meV / atom",
        "RMSE F / meV / A",
        "RMSE P / mV",
        "relative F RMSE %",
    ]
    assert [row[0] for row in table.rows] == ["train_h", "valid_h", "slab_h"]
    assert [len(str(cell)) for cell in table.rows[0][1:]] == [8, 8, 8, 8]
    assert lines(caplog) == ["Evaluating train_h ...", "Evaluating valid_h ...", "Evaluating slab_h ..."]


def test_d23_stress_has_the_unit_of_a_stress():
    table = table_of({"a": loader(frames(1))}, "PerAtomRMSEstressvirials")
    assert table.field_names[-1] == "RMSE Stress (Virials) / meV / A^3 (meV)"
    assert table.rows[0][-1].strip() == "n/a"


def test_report_2_a_set_without_labels_has_a_row_too():
    nothing = frames(2)
    for config in nothing:
        config.potential = None
    table = table_of({"a": loader(nothing), "empty": []})
    assert [cell.strip() for cell in table.rows[1][1:]] == ["n/a"] * 4
    assert table.rows[0][3].strip() == "n/a" and table.rows[0][1].strip() != "n/a"


def test_an_unknown_table_is_refused():
    with pytest.raises(InputError, match="PerAtomRMSE"):
        table_of({}, "MedianError")


def test_rows_are_sorted_by_kind_and_name():
    names = ["b_x", "valid_b", "train_b", "valid_a", "a_x", "train_a"]
    assert sorted(names, key=custom_key) == ["train_a", "train_b", "valid_a", "valid_b", "a_x", "b_x"]


def test_final_errors_go_to_wandb(monkeypatch):
    logged = []
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(log=logged.append))
    table_of({"valid_h": loader(frames(3))}, log_wandb=True)
    assert list(logged[0]) == [
        "valid_h_final_rmse_e_per_atom",
        "valid_h_final_rmse_f",
        "valid_h_final_rel_rmse_f",
    ]
