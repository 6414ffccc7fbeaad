import os
import time
from pathlib import Path

import pytest
from harness import Hung, losses, metric, run, start, tiny_data, tracebacks

STARTS_A_DAEMON = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_status_output_and_folder_of_a_command(tmp_path):
    command = "import os, sys; print(os.getcwd()); print('bad', file=sys.stderr); sys.exit(3)"
    finished = run(["-c", command], tmp_path)
    assert (finished.status, finished.output) == (3, f"{tmp_path}\nbad\n")
    assert finished.failed() is finished
    with pytest.raises(AssertionError, match="status 3"):
        finished.succeeded()


def test_the_package_comes_from_the_tree_that_is_named(tmp_path):
    package = tmp_path / "tree" / "mace"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("print('another tree')")
    assert run(["-c", "import mace"], tmp_path, tree=tmp_path / "tree").output == "another tree\n"
    assert run(["-c", "import mace"], tmp_path).succeeded().output == ""


def test_a_hung_command_is_killed_with_all_that_it_started(tmp_path):
    with pytest.raises(Hung, match=r"2 s were not enough:\n\d+") as caught:
        run(["-c", STARTS_A_DAEMON], tmp_path, timeout=2)
    child = int(str(caught.value).split("\n")[1])
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def test_commands_start_in_sessions_of_their_own(tmp_path):
    with open(tmp_path / "out.txt", "w") as output:
        process = start(["sleep", "0.1"], tmp_path, output)
        assert os.getsid(process.pid) == process.pid
        assert process.wait(10) == 0


def test_tiny_data(tmp_path):
    tiny_data(tmp_path, electron_missing=1)
    train, valid = (tmp_path / name for name in ("train.xyz", "valid.xyz"))
    assert train.read_text().count("REF_energy") == 12
    assert train.read_text().count("electron=") == 11
    assert valid.read_text().count("REF_energy") == 6


def test_results_files(tmp_path):
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "x_run-1_train.txt"
    path.write_text(
        '{"mode": "eval", "loss": 9.0, "rmse_p": 1.0, "epoch": null}\n'
        '{"mode": "opt", "loss": 3.0, "epoch": 0}\n'
        '{"mode": "opt", "loss": 2.0, "epoch": 0}\n'
        '{"mode": "eval", "loss": 1.0, "rmse_p": 0.5, "epoch": 0}\n'
    )
    assert losses(path) == [3.0, 2.0]
    assert metric(tmp_path, "x", "rmse_p") == 1.0
    assert metric(tmp_path, "x", "rmse_p", epoch=0) == 0.5


def test_tracebacks_are_counted():
    one = "Traceback (most recent call last):\n"
    assert tracebacks("fine\n") == 0
    assert tracebacks(f"{one}  File\n[rank1]: {one}") == 2
