"""Bad input under torchrun: one clear line, printed once, no rank with a traceback, no rank left waiting."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.harness import CP, run, tiny_data, told_once, tracebacks, two

pytestmark = pytest.mark.multirank


@pytest.fixture
def folder(tmp_path):
    return tiny_data(tmp_path)


def refused(finished, *parts: str) -> None:
    """Told once, status 1 on every rank, and no model."""
    told_once(finished, *parts)
    assert not list(finished.folder.glob("*.model"))


CASES = {
    "missing file": (["--train_file=nowhere.xyz"], ["nowhere.xyz"]),
    "no label": (["--energy_key=nothing"], ["nothing", "REF_energy"]),
    "cutoff": (["--r_max=-1"], ["r_max", "-1"]),
    "irreps": (["--hidden_irreps=8x1o"], ["hidden_irreps", "8x1o"]),
    "unparsable irreps": (["--hidden_irreps=eight"], ["hidden_irreps", "eight"]),
    "too few configurations": (["--train_file=one.xyz"], ["1", "2"]),
    "no CUDA": (["--device=cuda"], ["cuda"]),
    "not built yet": (["--foundation_model=small"], ["foundation_model"]),
    "contradiction": (["--model=MACE", "--loss=fermi_weighted"], ["fermi_weighted"]),
    "idle Fermi level": (
        ["--model=FermiMACE", "--loss=weighted"],
        ["--loss=weighted", "--loss=fermi_weighted"],
    ),
    "unwritable": (["--results_dir=/proc/results"], ["/proc/results"]),
    "folder in place of a log": (["--name=taken"], ["logs/taken_run-1.log", "Is a directory"]),
    "not a number": (["--valid_file=nan.xyz"], ["energy of frame 0 of 'nan.xyz'", "nan"]),
    "no electron number": (["--valid_file=neutral.xyz"], ["frame 0", "neutral.xyz", "electron number"]),
    "unknown element": (["--valid_file=copper.xyz"], ["frame 0 of 'copper.xyz'", "Cu (29)"]),
    "valid fraction": (["--valid_fraction=0.01"], ["valid_fraction=0.01", "12 structures"]),
}

FAST = ("no label", "no electron number")


@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in CASES],
)
def test_one_line_on_one_rank(folder, case):
    flags, parts = CASES[case]
    write_bad_data(folder)
    data = ["--train_file=train.xyz"] + ["--valid_file=valid.xyz"] * (case != "valid fraction")
    refused(two([*CP, "--name=bad", *flags], folder, data=data), *parts)


def write_bad_data(folder: Path) -> None:
    """The files of the cases above: one frame, or a frame in front of which something is wrong."""
    (folder / "logs" / "taken_run-1.log").mkdir(parents=True)
    text = (folder / "train.xyz").read_text()
    lines = text.splitlines(keepends=True)
    (folder / "one.xyz").write_text("".join(lines[: int(lines[0]) + 2]))
    for name, pattern, wrong in (
        ("nan", r"REF_energy=\S+", "REF_energy=nan"),
        ("neutral", r" electron=\S+", ""),
        ("copper", r"^[HO] ", "Cu "),
    ):
        (folder / f"{name}.xyz").write_text(re.sub(pattern, wrong, text, count=1, flags=re.MULTILINE))


def test_a_slow_first_rank_still_speaks_and_both_end_with_status_1(folder):
    slow = folder / "slow"
    slow.mkdir()
    delay = "import os, time\nif os.environ.get('RANK') == '0': time.sleep(5)\n"
    (slow / "sitecustomize.py").write_text(delay)
    finished = two([*CP, "--name=bad", "--r_max=-1"], folder, env={"PYTHONPATH": str(slow)})
    refused(finished, "r_max", "-1")
    assert "(SIGTERM)" not in finished.output


@pytest.mark.slow
def test_restart_from_another_architecture(folder):
    two([*CP, "--name=r", "--max_num_epochs=1"], folder).succeeded()
    (folder / "r.model").unlink()
    (folder / "r_compiled.model").unlink()
    flags = ["--name=r", "--max_num_epochs=2", "--restart_latest", "--hidden_irreps=16x0e + 16x1o"]
    refused(two([*CP, *flags], folder), "another model", "hidden_irreps", "8x0e+8x1o", "16x0e+16x1o")


def test_a_port_in_use(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        environment = {
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        command = [
            "-m",
            "mace.cli.run_train",
            "--name=p",
            "--train_file=train.xyz",
            "--valid_file=valid.xyz",
            "--E0s=average",
        ]
        finished = run(command, folder, env=environment, timeout=120)
    assert finished.status == 1 and tracebacks(finished.output) == 0, finished.output
    assert [str(port) in line for line in finished.output.splitlines() if "error: " in line] == [True]
