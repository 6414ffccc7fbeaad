"""Pickled DistributedDataParallel objects of two versions of torch, read where there is no process group."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mace.exceptions import InputError
from mace.tools.loading import load_model
from mace.tools.rebuild import rebuild
from mace.tools.rescue import RescuePlan, rescue
from mace.tools.same import differences, same_bits
from tests import small_models
from tests.harness import run
from tests.system_tools import leave_out

SCRIPT = str(Path(__file__).parents[1] / "ddp_pickles.py")
DEBIAN = "/usr/bin/python3"
FORMS = ("", "_bare", "_cuda")


def has_old_torch() -> bool:
    code = "import torch; assert torch.__version__.startswith('1.')"
    return Path(DEBIAN).exists() and subprocess.run([DEBIAN, "-c", code], capture_output=True).returncode == 0


@pytest.fixture(scope="module", params=["torch 1.13 of Debian", "this torch"])
def pickles(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pickles")
    python = sys.executable
    if request.param != "this torch":
        if not has_old_torch():
            leave_out(f"{DEBIAN} has no torch 1.x: apt-get install python3-torch")
        python = DEBIAN
    run([SCRIPT, str(folder), "layers", "foreign"], folder, python=python).succeeded()
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ours")
    run([SCRIPT, str(folder), "fermi"], folder).succeeded()
    return folder


@pytest.fixture(autouse=True)
def no_processes() -> Iterator[None]:
    assert not torch.distributed.is_initialized() and not torch.cuda.is_available()
    yield
    assert not torch.distributed.is_initialized()


def rescued(source: Path, output: Path, **how: bool) -> Path:
    assert rescue(RescuePlan(source=source, output=output, **how)) == [output]
    return output


def same_state(path: Path, expected: Path) -> None:
    ours, theirs = (
        torch.load(path, weights_only=True),
        torch.load(expected, map_location="cpu", weights_only=True),
    )
    assert list(ours) == list(theirs)
    assert all(same_bits(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("form", FORMS)
def test_torch_itself_does_not_read_it(pickles: Path, form: str) -> None:
    with pytest.raises((AttributeError, RuntimeError, ValueError)):
        torch.load(pickles / f"layers{form}.pt", weights_only=False)


@pytest.mark.parametrize("form", FORMS)
def test_layers_give_their_state_dict(pickles: Path, tmp_path: Path, form: str) -> None:
    same_state(rescued(pickles / f"layers{form}.pt", tmp_path / "s.pt"), pickles / "layers_module.pt")


@pytest.mark.parametrize("form", ["_state", "_cuda_state"])
def test_a_state_dict_loses_prefix_and_device(pickles: Path, tmp_path: Path, form: str) -> None:
    same_state(rescued(pickles / f"layers{form}.pt", tmp_path / "s.pt"), pickles / "layers_module.pt")


@pytest.mark.parametrize("form", FORMS)
def test_a_class_of_a_script_needs_trust(pickles: Path, tmp_path: Path, form: str, caplog) -> None:
    source = pickles / f"foreign{form}.pt"
    with pytest.raises(InputError, match=r"names __main__\.Net.*--trust") as refusal:
        rescue(RescuePlan(source=source, output=tmp_path / "s.pt"))
    assert "\n" not in str(refusal.value) and not list(tmp_path.iterdir())
    same_state(rescued(source, tmp_path / "s.pt", trust=True), pickles / "foreign_module.pt")
    assert "__main__.Net cannot be imported here" in caplog.text


@pytest.mark.parametrize("form", FORMS)
def test_a_model_of_ours_becomes_a_model_file(ours: Path, tmp_path: Path, form: str) -> None:
    found = load_model(rescued(ours / f"fermi{form}.pt", tmp_path / "m.model"))
    expected = rebuild(small_models.fermi())
    assert not differences(expected, found)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_model_of_ours_gives_its_state_dict_too(ours: Path, tmp_path: Path) -> None:
    same_state(rescued(ours / "fermi.pt", tmp_path / "s.pt"), ours / "fermi_module.pt")
