"""A short training of every model name: files that load, evaluate and export, and errors that are shown."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
import pytest
import torch

from mace import modules
from mace.arguments.parsers import build_eval_arg_parser
from mace.calculators import MACECalculator
from mace.cli.eval_configs import run as eval_configs
from mace.cli.run_train import run
from mace.exceptions import InputError
from mace.tools.loading import load_model
from tests.tiny_run import edit, parse, write_frames

pytestmark = pytest.mark.filterwarnings("ignore:The TorchScript type system:UserWarning")

DIPOLES = {"MLP_irreps": "4x0e + 4x1o", "correlation": 2}
BOTNET = {"correlation": None}
Trained = tuple[str, Path, str]  # name of a model, the folder of its run, what the run logged
# Model name -> flags, class, type of calculator.
NAMES: dict[str, tuple[dict[str, Any], type[torch.nn.Module], str]] = {
    "MACE": ({}, modules.ScaleShiftMACE, "MACE"),
    "ScaleShiftMACE": ({}, modules.ScaleShiftMACE, "MACE"),
    "FermiMACE": ({"loss": "fermi_weighted"}, modules.ScaleShiftMACE, "MACE"),
    "FermiMACE_2": ({"loss": "fermi_weighted"}, modules.ScaleShiftMACE, "MACE"),
    "FermiMACE_uncertainty": ({"loss": "fermi_weighted_uncertainty"}, modules.ScaleShiftMACE, "MACE"),
    "FermiMACE_evidential": ({"loss": "fermi_weighted_evidential"}, modules.ScaleShiftMACE, "MACE"),
    "BOTNet": (BOTNET, modules.BOTNet, "MACE"),
    "ScaleShiftBOTNet": (BOTNET, modules.ScaleShiftBOTNet, "MACE"),
    "AtomicDipolesMACE": ({"loss": "dipole", **DIPOLES}, modules.AtomicDipolesMACE, "DipoleMACE"),
    "EnergyDipolesMACE": (
        {"loss": "energy_forces_dipole", **DIPOLES},
        modules.EnergyDipolesMACE,
        "EnergyDipoleMACE",
    ),
}
SETTINGS = {"default_dtype": "float64", "max_num_epochs": 3, "lr": 0.01, "clip_grad": 100}


def flags_of(name: str) -> dict[str, Any]:
    given = NAMES[name][0]
    table = {"error_table": "Fermi_PerAtomRMSE"} if name.startswith("Fermi") else {}
    return {"model": name, **SETTINGS, **table, **given}


def write_data(folder: Path) -> None:
    for kind, count, seed in (("train", 8, 1), ("valid", 4, 2)):
        write_frames(folder / f"{kind}.xyz", count, seed=seed, dipole=1, charges=1)


@pytest.fixture(scope="module", params=NAMES)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Name of a model, the folder of its run, and what the run logged."""
    folder = tmp_path_factory.mktemp(request.param)
    write_data(folder)
    run(parse(folder, **flags_of(request.param)))
    return request.param, folder, (folder / "logs" / "tiny_run-1.log").read_text()


def records(folder: Path, mode: str) -> list[dict[str, Any]]:
    lines = (folder / "results" / "tiny_run-1_train.txt").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["mode"] == mode]


def test_the_loss_falls_and_its_errors_are_shown(trained: Trained) -> None:
    name, folder, log = trained
    evaluations = records(folder, "eval")
    assert evaluations[-1]["loss"] < evaluations[0]["loss"]
    lines = [line for line in log.splitlines() if "head: " in line and "loss=" in line]
    assert len(lines) == 4 and not any("n/a" in line or "nan" in line for line in lines)
    assert "Error-table on TRAIN and VALID" in log and " n/a " not in log
    if name == "FermiMACE_uncertainty":
        assert all("eV / atom, potential_unc=" in line for line in lines)
        assert evaluations[-1]["min_p_unc"] <= evaluations[-1]["mean_p_unc"] <= evaluations[-1]["max_p_unc"]
    if "Dipole" in name:
        assert all("Debye" in line for line in lines) and evaluations[-1]["rmse_mu_per_atom"] > 0.0


def test_every_weight_was_trained(trained: Trained) -> None:
    name, folder, _ = trained
    model = load_model(folder / "tiny.model")
    assert type(model) is NAMES[name][1]
    (checkpoint,) = (folder / "checkpoints").glob("tiny_run-1_epoch-*.pt")
    state = torch.load(checkpoint, weights_only=True)
    held = [index for group in state["optimizer"]["param_groups"] for index in group["params"]]
    assert sorted(held) == list(range(sum(1 for _ in model.parameters())))
    moved = [entry["exp_avg_sq"].any() for entry in state["optimizer"]["state"].values()]
    assert len(moved) == len(held) and all(moved)


def test_the_files_compute_the_same(trained: Trained) -> None:
    name, folder, _ = trained
    (atoms, *_) = ase.io.read(folder / "valid.xyz", ":")
    results = []
    for file in ("tiny.model", "tiny_compiled.model"):
        calculator = MACECalculator(
            folder / file,
            model_type=NAMES[name][2],
            **({"charges_key": "REF_charges"} if "Dipole" in name else {}),
        )
        calculator.calculate(atoms)
        results.append(calculator.results)
    assert results[0].keys() == results[1].keys()
    wanted = {
        "MACE": {"energy", "forces"},
        "DipoleMACE": {"dipole"},
        "EnergyDipoleMACE": {"energy", "dipole"},
    }
    assert wanted[NAMES[name][2]] <= results[0].keys()
    assert ("potential" in results[0]) == name.startswith("Fermi")
    for key, value in results[0].items():
        np.testing.assert_allclose(value, results[1][key], rtol=1e-10, atol=1e-10)


def test_frames_are_labelled(trained: Trained) -> None:
    name, folder, _ = trained
    words = [f"--configs={folder}/valid.xyz", f"--model={folder}/tiny.model", f"--output={folder}/out.xyz"]
    eval_configs(build_eval_arg_parser().parse_args(words))
    frame = ase.io.read(folder / "out.xyz", "0")
    assert ("MACE_energy" in frame.info) == ("MACE_forces" in frame.arrays) == (name != "AtomicDipolesMACE")
    assert ("MACE_dipole" in frame.info) == ("Dipole" in name)
    assert ("MACE_potential" in frame.info) == name.startswith("Fermi")


@pytest.mark.parametrize(
    ("kind", "old", "complaint"),
    [
        ("train", "REF_dipole", "1 of 8 structures of .*train.xyz' have no dipole"),
        ("valid", "REF_dipole", "1 of 4 structures of .*valid.xyz' have no dipole"),
        ("valid", ":REF_charges:R:1", "1 of 4 structures of .*valid.xyz' have no charges"),
    ],
)
def test_every_frame_has_a_dipole_and_charges(
    kind: str, old: str, complaint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_data(tmp_path)
    edit(tmp_path / f"{kind}.xyz", (old, old.replace("REF", "no")), line=1)
    with pytest.raises(InputError, match=complaint), caplog.at_level(logging.ERROR):
        run(parse(tmp_path, **flags_of("AtomicDipolesMACE")))


def test_without_charges_the_atoms_carry_the_dipole(tmp_path: Path) -> None:
    for kind, count in (("train", 4), ("valid", 2)):
        write_frames(tmp_path / f"{kind}.xyz", count, dipole=1)
    run(parse(tmp_path, **{**flags_of("EnergyDipolesMACE"), "max_num_epochs": 1, "swa": None}))
    assert (tmp_path / "tiny.model").exists()
