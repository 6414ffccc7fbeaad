"""The command mace_doctor as users start it: plain and under torchrun, its output and its statuses."""

import json
import re
import sys

import pytest

from tests.harness import DATA, E0S, run, tiny_data

COMMAND = "import sys, cp_mace; sys.argv[0] = 'mace_doctor'; cp_mace.doctor()"
PLAIN = ["-W", "ignore", "-c", COMMAND]
TWO = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--no-python"]


def report_of(output):
    """The JSON in an output that torchrun may have written around."""
    start = output.index('{\n "version"')
    report, _ = json.JSONDecoder().raw_decode(output[start:])
    return report, {finding["code"]: finding for finding in report["findings"]}


@pytest.mark.slow
@pytest.mark.multirank
def test_plain_with_an_error(tmp_path):
    tiny_data(tmp_path)
    (tmp_path / "valid.xyz").unlink()
    finished = run([*PLAIN, *DATA, *E0S, "--json", "--batch_size=2"], tmp_path)
    report, found = report_of(finished.output)
    assert finished.status == report["status"] == 4
    assert found["data-unreadable"]["severity"] == "error" and found["group"]["severity"] == "ok"


@pytest.mark.slow
@pytest.mark.multirank
def test_plain_with_a_warning_as_text(tmp_path):
    tiny_data(tmp_path)
    finished = run([*PLAIN, *DATA, *E0S, "--batch_size=13"], tmp_path)
    assert finished.status == 3, finished.output
    assert re.search(
        r"^WARNING batch-large: --batch_size=13.*\n        -> give --batch_size=12", finished.output, re.M
    )
    assert re.search(r"^0 error, 1 warning, \d note, \d+ ok$", finished.output, re.M), finished.output
    assert "OK " not in finished.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.xyz", "valid.xyz"]


@pytest.mark.slow
@pytest.mark.multirank
def test_two_processes_under_torchrun(tmp_path):
    tiny_data(tmp_path)
    command = [*TWO, sys.executable, *PLAIN, *DATA, *E0S, "--json", "--batch_size=2"]
    finished = run(command, tmp_path).succeeded()
    report, found = report_of(finished.output)
    assert report["status"] == 0 and finished.output.count('"version"') == 1
    assert found["launch"]["found"] == "started by torchrun: 2 process(es)"
    assert found["group"]["found"].startswith("2 processes with gloo")
    assert found["steps"]["found"] == "3 steps of 2 x 2 frames an epoch, 0 of 12 left out"


@pytest.mark.slow
@pytest.mark.multirank
def test_the_status_of_the_first_process_is_named_by_torchrun(tmp_path):
    command = [*TWO, sys.executable, *PLAIN, "--json", "--model=absent.model"]
    finished = run(command, tmp_path).failed()
    report, found = report_of(finished.output)
    assert report["status"] == 4 and found["model-unreadable"]["severity"] == "error"
    assert re.search(r"rank +: 0 .*\n +exitcode +: 4 ", finished.output)


@pytest.mark.parametrize(
    ("words", "status"),
    [(["--no_such_flag"], 2), (["--config=absent.yaml"], 1), (["--model_megabytes=0"], 1)],
)
def test_a_wrong_command_line_has_the_status_of_every_command(tmp_path, words, status):
    finished = run([*PLAIN, *words], tmp_path)
    assert finished.status == status
    assert finished.output.startswith("mace_doctor: error: ") and finished.output.count("\n") == 1


def test_a_wrong_command_line_is_told_from_packages_that_do_not_fit(tmp_path):
    (tmp_path / "e3nn").mkdir()
    (tmp_path / "e3nn" / "__init__.py").write_text("raise RuntimeError('of another time')")
    environment = {"PYTHONPATH": str(tmp_path)}
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {COMMAND}"
    wrong = run(["-W", "ignore", "-c", code, "--no_such_flag"], tmp_path, env=environment)
    assert (wrong.status, wrong.output.count("\n")) == (2, 1)
    unfit = run(["-W", "ignore", "-c", code, "--json"], tmp_path, env=environment)
    report, found = report_of(unfit.output)
    assert unfit.status == report["status"] == 4
    assert found["import-failed"]["found"].endswith("RuntimeError: of another time")


def test_a_mistake_of_ours_is_no_finding(tmp_path):
    code = f"import mace.cli.doctor as d; d.run = lambda args: 1 / 0; {COMMAND}"
    finished = run(["-W", "ignore", "-c", code], tmp_path)
    assert finished.status == 1 and "ZeroDivisionError" in finished.output
