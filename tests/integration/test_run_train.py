"""A whole training: what it leaves, and that the files are the trained model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mace.arguments.parsers import build_default_arg_parser
from mace.cli.run_train import run
from tests.harness import CP, TREE, tiny_data, two
from tests.tiny_run import FERMI, FLAGS

# Evaluates a model file on the validation frames in a process that has seen nothing of the training.
EVALUATE = """
import json, sys
from ase.io import read
from mace.calculators import MACECalculator
calculator = MACECalculator(model_paths=sys.argv[1], device="cpu")
out = []
for atoms in read("valid.xyz", ":"):
    atoms.calc = calculator
    out.append([atoms.get_potential_energy(), atoms.get_forces().tolist(), float(calculator.get_mu())])
print(json.dumps(out))
"""
# The same from the weights of a checkpoint, through the model that training builds.
FROM_CHECKPOINT = """
import json, sys, torch
from ase.io import read
from mace.calculators import MACECalculator
from mace.tools.loading import load_model
model = load_model(sys.argv[2])
model.load_state_dict(torch.load(sys.argv[1], weights_only=True)["model"])
calculator = MACECalculator(models=model, device="cpu")
out = []
for atoms in read("valid.xyz", ":"):
    atoms.calc = calculator
    out.append([atoms.get_potential_energy(), atoms.get_forces().tolist(), float(calculator.get_mu())])
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def two_rank_run(tmp_path_factory) -> Path:
    """FermiMACE on two ranks with averaging and stage two."""
    folder = tiny_data(tmp_path_factory.mktemp("run"))
    two([*CP, "--name=m", "--ema", "--swa", "--start_swa=2", "--max_num_epochs=4"], folder).succeeded()
    return folder


def evaluated(script: str, folder: Path, *arguments: object) -> list:
    environment = {**os.environ, "PYTHONPATH": str(TREE)}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.multirank
def test_every_promised_file_is_there_and_nothing_else(two_rank_run):
    files = {
        path.relative_to(two_rank_run).as_posix()
        for path in two_rank_run.rglob("*")
        if path.is_file() and path.suffix != ".pt"
    }
    assert files == {
        "train.xyz",
        "valid.xyz",
        "m.model",
        "m_compiled.model",
        "m_stagetwo.model",
        "m_stagetwo_compiled.model",
        "checkpoints/m_run-1.model",
        "checkpoints/m_run-1_stagetwo.model",
        "logs/m_run-1.log",
        "logs/m_run-1_debug.log",
        "results/m_run-1_train.txt",
    }


@pytest.mark.multirank
@pytest.mark.parametrize("file", ["m.model", "m_compiled.model"])
def test_a_fresh_process_gets_the_weights_of_the_best_checkpoint(two_rank_run, file):
    checkpoints = [
        path for path in (two_rank_run / "checkpoints").glob("m_run-1_epoch-*.pt") if "_swa" not in path.name
    ]
    newest = max(checkpoints, key=lambda path: int(path.stem.rpartition("-")[2]))
    expected = evaluated(FROM_CHECKPOINT, two_rank_run, newest, "checkpoints/m_run-1.model")
    found = evaluated(EVALUATE, two_rank_run, file)
    for (energy, forces, mu), (energy_0, forces_0, mu_0) in zip(found, expected, strict=True):
        assert abs(energy - energy_0) <= 1e-10 * max(1, abs(energy_0))
        assert abs(mu - mu_0) <= 1e-10 * max(1, abs(mu_0))
        torch.testing.assert_close(torch.tensor(forces), torch.tensor(forces_0), rtol=0, atol=1e-10)


@pytest.mark.multirank
def test_a3_stage_two_keeps_the_fermi_loss(two_rank_run):
    log = (two_rank_run / "logs/m_run-1.log").read_text()
    assert "Stage Two (after 2 epochs) with loss function: FermiWeightedEnergyForcesLoss" in log
    assert "Changing loss based on Stage Two Weights" in log


@pytest.mark.multirank
def test_the_log_says_what_the_specification_says(two_rank_run):
    log = (two_rank_run / "logs/m_run-1.log").read_text()
    assert "Compiling model, saving metadata to m_compiled.model\n" in log
    assert "Compiling model, saving metadata m_stagetwo_compiled.model\n" in log
    debug = (two_rank_run / "logs/m_run-1_debug.log").read_text()
    assert "DEBUG: Configuration: Namespace(" in debug
    assert "DEBUG: ScaleShiftMACE(\n  (node_embedding): " in debug


@pytest.mark.multirank
def test_what_a_run_writes_was_in_its_list(two_rank_run):
    log = (two_rank_run / "logs/m_run-1.log").read_text()
    written = [path.name for path in two_rank_run.rglob("*") if path.is_file() and path.suffix != ".xyz"]
    assert written and not [
        name for name in written if re.sub(r"-\d+(?=(_swa)?.pt)", "-<n>", name) not in log
    ]


@pytest.mark.multirank
def test_models_are_written_before_the_first_table(two_rank_run):
    log = (two_rank_run / "logs/m_run-1.log").read_text()
    assert log.rindex("Saving model to") < log.index("Evaluating ")


def test_a_run_in_process_leaves_the_callers_settings_alone(tmp_path):
    tiny_data(tmp_path)
    before = torch.get_default_dtype()
    flags = {
        **FLAGS,
        **FERMI,
        "work_dir": tmp_path,
        "max_num_epochs": 1,
        "default_dtype": "float64",
        "train_file": tmp_path / "train.xyz",
        "valid_file": tmp_path / "valid.xyz",
    }
    args = build_default_arg_parser().parse_args([f"--{name}={value}" for name, value in flags.items()])
    known = vars(args).copy()
    run(args)
    assert torch.get_default_dtype() == before
    assert vars(args) == known
    assert (tmp_path / "tiny.model").is_file()


def test_a1_every_parameter_moves(tmp_path):
    tiny_data(tmp_path)
    flags = {
        **FLAGS,
        **FERMI,
        "work_dir": tmp_path,
        "save_all_checkpoints": None,
        "lr": 0.01,
        "train_file": tmp_path / "train.xyz",
        "valid_file": tmp_path / "valid.xyz",
    }
    words = [f"--{name}" if value is None else f"--{name}={value}" for name, value in flags.items()]
    run(build_default_arg_parser().parse_args(words))
    model = torch.load(tmp_path / "tiny.model", weights_only=False)
    first, last = (
        torch.load(tmp_path / f"checkpoints/tiny_run-1_epoch-{epoch}.pt", weights_only=True)
        for epoch in (0, 2)
    )
    names = [name for name, parameter in model.named_parameters() if parameter.numel()]
    assert not [name for name in names if torch.equal(first["model"][name], last["model"][name])]
    grouped = sum(len(group["params"]) for group in last["optimizer"]["param_groups"])
    assert grouped == len(list(model.parameters()))
