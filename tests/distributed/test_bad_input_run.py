"""Bad input under torchrun: one clear line, printed once, no rank with a traceback, no rank left waiting."""

from __future__ import annotations

import socket

import pytest

from tests.harness import CP, run, tiny_data, tracebacks, two

pytestmark = pytest.mark.multirank


@pytest.fixture
def folder(tmp_path):
    return tiny_data(tmp_path)


def refused(finished, *parts: str) -> None:
    """Status not 0, the complaint once and on one line, no traceback, no model."""
    finished.failed()
    complaints = [
        line
        for line in finished.output.splitlines()
        if "error: " in line and "mace" in line.split("error: ")[0]
    ]
    assert len(complaints) == 1, finished.output
    for part in parts:
        assert part in complaints[0]
    launchers = finished.output.count("torch.distributed.elastic.multiprocessing.errors.ChildFailedError")
    assert tracebacks(finished.output) == launchers, finished.output  # torchrun's summary has one
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
    "unwritable": (["--results_dir=/proc/results"], ["/proc/results"]),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=[] if name in ("no label", "unwritable") else pytest.mark.slow)
        for name in CASES
    ],
)
def test_one_line_on_one_rank(folder, case):
    flags, parts = CASES[case]
    text = (folder / "train.xyz").read_text().splitlines(keepends=True)
    (folder / "one.xyz").write_text("".join(text[: int(text[0]) + 2]))
    refused(two([*CP, "--name=bad", *flags], folder), *parts)


def test_a_slow_first_rank_still_speaks_and_both_end_with_status_1(folder):
    slow = folder / "slow"
    slow.mkdir()
    delay = "import os, time\nif os.environ.get('RANK') == '0': time.sleep(5)\n"
    (slow / "sitecustomize.py").write_text(delay)
    finished = two([*CP, "--name=bad", "--r_max=-1"], folder, env={"PYTHONPATH": str(slow)})
    refused(finished, "r_max", "-1")
    assert "(SIGTERM)" not in finished.output


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
        refused(run(command, folder, env=environment, timeout=120), str(port))
