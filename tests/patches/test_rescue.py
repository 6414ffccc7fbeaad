"""A run of the base tree that dies when it saves its model, and what mace_rescue makes of its rest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from ase.io import read

from mace.calculators import MACECalculator
from mace.tools.loading import load_model
from mace.tools.rescue import RescuePlan, rescue
from mace.tools.same import differences, same_bits
from tests.harness import CP, run, tiny_data, two
from tests.patches.test_stack import COPIES_FAIL
from tests.patches.toy import ROOT, patches

pytestmark = [pytest.mark.multirank, pytest.mark.slow]

FLAGS = (*CP, "--name=m", "--ema", "--max_num_epochs=2", "--start_swa=1")
MODELS = ("m.model", "m_stagetwo.model")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory) -> Path:
    """The folder of a run of the base tree; where e3nn 0.6 lets it end well, without its models."""
    folder, tree = tmp_path_factory.mktemp("crashed"), tmp_path_factory.mktemp("base") / "tree"
    patches(ROOT, "export", "--level", 0, tree)
    done = two(FLAGS, tiny_data(folder), tree=tree)
    if COPIES_FAIL:
        done.failed()
        assert not list(folder.rglob("*.model"))
    for path in folder.rglob("*.model"):
        path.unlink()
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """The folder of the same run where it ends well: the base with the patches of saving (0001-0003).

    Not this tree: from 0005 on, processes weigh their losses by the global count, which is another training.
    """
    folder, tree = tmp_path_factory.mktemp("undisturbed"), tmp_path_factory.mktemp("saving") / "tree"
    patches(ROOT, "export", "--level", 3, tree)
    two(FLAGS, tiny_data(folder), tree=tree).succeeded()
    return folder


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def strip(folder: Path) -> None:
    """Leave upstream's three keys of each checkpoint."""
    for path in (folder / "checkpoints").glob("*.pt"):
        content = torch.load(path, weights_only=True)
        torch.save({key: content[key] for key in ("model", "optimizer", "lr_scheduler")}, path)


def same_energies(folder: Path, other: Path, name: str) -> None:
    frames = read(other / "valid.xyz", ":")
    for frame in frames:
        found = []
        for model in (folder / name, other / name):
            calculator = MACECalculator(model_paths=str(model), device="cpu", default_dtype="float64")
            frame.calc = calculator
            found.append((frame.get_potential_energy(), frame.get_forces(), calculator.get_mu()))
        (energy, forces, mu), (energy_there, forces_there, mu_there) = found
        assert abs(energy - energy_there) <= 1e-12 * max(1.0, abs(energy_there))
        assert abs(forces - forces_there).max() <= 1e-12
        assert abs(mu - mu_there) <= 1e-12


@pytest.mark.parametrize("described", [True, False])
def test_the_models_of_a_crashed_run(
    crashed: Path, undisturbed: Path, tmp_path: Path, described: bool
) -> None:
    folder = copied(crashed, tmp_path / "run")
    if not described:
        strip(folder)
    run(["-m", "mace.cli.rescue", str(folder), "--name=m"], folder).succeeded()
    promised = sorted(path.relative_to(undisturbed) for path in undisturbed.rglob("*.model"))
    assert len(promised) == 6
    assert sorted(path.relative_to(folder) for path in folder.rglob("*.model")) == promised
    for name, ending in zip(MODELS, ("0", "1_swa"), strict=True):
        found = load_model(folder / name)
        weights = torch.load(folder / f"checkpoints/m_run-1_epoch-{ending}.pt", weights_only=True)["model"]
        state = found.state_dict()
        assert state.keys() == weights.keys()
        assert all(same_bits(state[key], weights[key]) for key in weights)
        assert not differences(load_model(undisturbed / name), found)
        same_energies(folder, undisturbed, name)


def test_one_file_with_the_log_that_users_see(crashed: Path, tmp_path: Path) -> None:
    folder = copied(crashed, tmp_path / "run")
    strip(folder)
    checkpoint, log = folder / "checkpoints/m_run-1_epoch-1_swa.pt", folder / "logs/m_run-1.log"
    (path,) = rescue(RescuePlan(source=checkpoint, log=log, output=tmp_path / "run.model"))
    weights = torch.load(checkpoint, weights_only=True)["model"]
    state = load_model(path).state_dict()
    assert state.keys() == weights.keys() and all(same_bits(state[key], weights[key]) for key in weights)
