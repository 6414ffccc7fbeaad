"""Restarts of a whole run: what is the same goes on, what is another model is refused before training."""

from __future__ import annotations

import logging
import re
import shutil

import pytest

from mace.cli.run_train import run
from mace.exceptions import InputError
from tests.tiny_run import FERMI, edit, parse, write_frames

pytestmark = pytest.mark.filterwarnings("ignore:The TorchScript type system:UserWarning")

SETTINGS = {**FERMI, "default_dtype": "float64", "ema": True, "ema_decay": 0.9, "lr": 0.01}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of one epoch."""
    folder = tmp_path_factory.mktemp("trained")
    write_frames(folder / "train.xyz", 8)
    write_frames(folder / "valid.xyz", 4, seed=2)
    run(parse(folder, **SETTINGS, max_num_epochs=1))
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def restart(folder, **flags):
    """Go on for one more epoch."""
    run(parse(folder, **{**SETTINGS, "max_num_epochs": 2, "restart_latest": True, **flags}))


def change_data(folder):
    write_frames(folder / "train.xyz", 8, seed=3)


def change_elements(folder):
    for kind in ("train", "valid"):
        edit(folder / f"{kind}.xyz", ("O ", "F "))


OTHERS = {
    "r_max": ({"r_max": 3.9}, "r_max 4.0 in the checkpoint, 3.9 in this run"),
    "gate": ({"gate": "tanh"}, "gate silu in the checkpoint, tanh in this run"),
    "envelope": ({"num_cutoff_basis": 6}, "num_polynomial_cutoff (--num_cutoff_basis) 5 in the"),
    "E0s": ({"E0s": "{1: -1.0, 8: -2.5}"}, "atomic_energies[0][1] (--E0s) -2.0 in the"),
    "scaling": ({"scaling": "no_scaling"}, "atomic_inter_scale[0] (--scaling, --std) "),
    "dtype": ({"default_dtype": "float32"}, "dtype (--default_dtype) float64 in the checkpoint, float32"),
    "neighbours": (
        {"compute_avg_num_neighbors": "False", "avg_num_neighbors": 6.0},
        "avg_num_neighbors ",
    ),
    "optimiser": ({"optimizer": "adamw"}, "--optimizer=adam"),
    "widths": ({"hidden_irreps": "4x0e + 4x1o"}, "hidden_irreps 8x0e+8x1o in the checkpoint, 4x0e+4x1o"),
    "data": (change_data, "avg_num_neighbors "),
    "elements": (change_elements, "atomic_numbers[1] 8 in the checkpoint, 9 in this run"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_model_is_refused_before_training(folder, case):
    change, text = OTHERS[case]
    flags = {}
    if callable(change):
        change(folder)
        flags = {"E0s": "{1: -1.0, 9: -2.0}"} if case == "elements" else {}
    else:
        flags = change
    before = (folder / "results/tiny_run-1_train.txt").read_text()
    with pytest.raises(InputError, match=re.escape(text)):
        restart(folder, **flags)
    assert (folder / "results/tiny_run-1_train.txt").read_text() == before


def test_the_log_of_a_restart_is_true(folder, caplog):
    with caplog.at_level(logging.INFO):
        restart(folder, ema_decay=0.5, lr=0.02, weight_decay=0.125)
    log = [record.getMessage() for record in caplog.records]
    assert "Continuing with epoch 1" in log
    (warning,) = [line for line in log if line.startswith("The restart goes on with")]
    assert "lr 0.01 (not 0.02), weight_decay 5e-07 (not 0.125), ema_decay 0.9 (not 0.5)" in warning
    assert "Using Exponential Moving Average with decay: 0.9" in log
    assert "Learning rate: 0.01, weight decay: 5e-07" in log


def test_the_announcement_of_a_new_run_is_what_was_asked_for(trained):
    log = (trained / "logs/tiny_run-1.log").read_text()
    assert "Using Exponential Moving Average with decay: 0.9" in log
    assert "Learning rate: 0.01, weight decay: 5e-07" in log
