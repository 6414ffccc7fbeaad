"""The doors of the commands: light, and one clear line for what cannot be used."""

import os
import signal
import subprocess
import sys
import time
from configparser import ConfigParser
from importlib import metadata
from pathlib import Path

import pytest

import cp_mace
import mace
from mace.arguments import (
    build_default_arg_parser,
    build_eval_arg_parser,
    build_preprocess_arg_parser,
    model_parsers,
)
from mace.arguments.parsers import build_doctor_arg_parser
from mace.cli import launch
from mace.exceptions import InputError

ROOT = Path(__file__).resolve().parents[3]
STILL_TO_COME = {"create_lammps_model", "finetuning", "finetuning_select", "plot_train", "active_learning_md"}


def command(function, *given, env=None, code=""):
    """Run a console command in a process of its own, as its script does."""
    script = f"import sys, cp_mace; sys.argv = {['command', *given]!r}; {code} cp_mace.{function}()"
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, env=env)


@pytest.mark.parametrize(
    ("function", "build"),
    [
        ("run_train", build_default_arg_parser),
        ("eval_configs", build_eval_arg_parser),
        ("prepare_data", build_preprocess_arg_parser),
        ("doctor", build_doctor_arg_parser),
        ("convert", model_parsers.build_convert_arg_parser),
        ("convert_device", model_parsers.build_convert_device_arg_parser),
        ("select_head", model_parsers.build_select_head_arg_parser),
        ("rescue", model_parsers.build_rescue_arg_parser),
        ("e3nn_cueq", model_parsers.build_e3nn_cueq_arg_parser),
        ("cueq_to_e3nn", model_parsers.build_cueq_to_e3nn_arg_parser),
    ],
)
def test_help_is_the_parsers_help(function, build, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    result = command(function, "--help")
    assert result.returncode == 0
    assert result.stdout == build().format_help()
    assert result.stderr == ""


def test_every_installed_command_has_a_door():
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    scripts = settings["options.entry_points"]["console_scripts"].strip().splitlines()
    to_come = set()
    for script in scripts:
        name, _, place = script.partition(" = ")
        function = place.removeprefix("cp_mace:")
        assert callable(getattr(cp_mace, function)) and callable(getattr(launch, function))
        if function == "still_to_come":
            to_come.add(name.removeprefix("mace_"))
        else:
            assert name == f"mace_{function}"
    assert to_come == STILL_TO_COME


@pytest.mark.parametrize("name", sorted(STILL_TO_COME))
def test_a_command_that_is_still_to_come_is_refused_by_name(name):
    result = command("still_to_come", "--help", code=f"sys.argv[0] = '/usr/bin/mace_{name}';")
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.startswith(f"mace_{name}: error: this command of MACE is not built yet in cp-mace ")
    assert result.stderr.count("\n") == 1


def test_help_is_light():
    seen = "import atexit; atexit.register(lambda: print('torch' in sys.modules, 'numpy' in sys.modules));"
    walls = []
    for _ in range(3):
        start = time.perf_counter()
        result = command("run_train", "--help", code=seen)
        walls.append(time.perf_counter() - start)
        assert result.stdout.endswith("False False\n")
    assert min(walls) < 1.0  # seconds; measured 0.15 on an idle machine, and other tests run beside this one


def test_import_of_the_package_is_light():
    code = "import mace, sys; print(sorted({'torch', 'numpy', 'e3nn'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.stdout == "[]\n"


def test_bad_input_is_one_line_and_status_1():
    result = command("run_train", "--name=x", "--r_max=0", "--train_file=t.xyz")
    assert result.returncode == 1
    assert result.stderr == "mace_run_train: error: --r_max is 0.0: it must be greater than 0\n"


def test_an_unknown_flag_is_one_line_and_status_2():
    result = command("run_train", "--name=x", "--no_such_flag=1")
    assert result.returncode == 2
    assert result.stderr == (
        "mace_run_train: error: unrecognized arguments: --no_such_flag=1 (see mace_run_train --help)\n"
    )


@pytest.mark.parametrize("complaint", ["ImportError", "RuntimeError"])
def test_a_torch_that_cannot_be_imported_is_told_once(tmp_path, complaint):
    (tmp_path / "torch.py").write_text(f"raise {complaint}('no libgomp here')")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    result = command("run_train", "--name=x", "--train_file=t.xyz", env={**os.environ, "PYTHONPATH": path})
    assert result.returncode == 1
    assert result.stderr.count("Traceback") == 1
    assert result.stderr.endswith(f"{complaint}: no libgomp here\n")


def test_the_first_process_complains_and_the_others_keep_their_status():
    def report(rank, patience=60.0):
        code = f"from mace.tools.ranks.failures import report_failure; report_failure('why', {patience})"
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "PYTHONPATH": str(ROOT)}
        options = {"env": environment, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-W", "ignore", "-c", f"{code}; exit(7)"], **options)

    alone, stopped, first = report(1, patience=0.1), report(1), report(0)
    assert first.communicate()[1] == "why\n" and first.returncode == 7
    stopped.terminate()  # as torchrun does when the first process has ended
    assert stopped.communicate()[1] == "" and stopped.returncode == 7
    assert alone.communicate()[1] == "rank 1: why\n" and alone.returncode == 7


def test_input_errors_are_one_line_and_others_a_traceback(monkeypatch, capsys):
    class Broken:
        @staticmethod
        def run(args):
            raise {"input": InputError("no such file"), "ours": KeyError("a mistake of ours")}[args.name]

    monkeypatch.setitem(sys.modules, "mace.cli.run_train", Broken)
    monkeypatch.setattr(launch, "_look_for_mace_torch", lambda: None)
    monkeypatch.setattr(sys, "argv", ["mace_run_train", "--name=input"])
    with pytest.raises(SystemExit) as stop:
        launch.run_train()
    assert stop.value.code == 1
    assert capsys.readouterr().err == "mace_run_train: error: no such file\n"
    # A caller that goes on can still be terminated: only one of several processes waits for its launcher.
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    monkeypatch.setattr(sys, "argv", ["mace_run_train", "--name=ours"])
    with pytest.raises(SystemExit) as stop:
        launch.run_train()
    assert stop.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith("Traceback (most recent call last):") and "KeyError: 'a mistake of ours'" in told


class InstalledMaceTorch:
    version = "0.3.16"

    def __init__(self, folder):
        self.folder = folder

    def locate_file(self, name):
        return self.folder / name


def test_mace_torch_in_another_folder_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(metadata, "distribution", lambda name: InstalledMaceTorch(tmp_path))
    launch._look_for_mace_torch()
    error = capsys.readouterr().err
    assert error.startswith("warning: mace-torch 0.3.16 is installed too") and error.count("\n") == 1


def test_mace_torch_in_the_same_folder_is_an_error(monkeypatch):
    folder = Path(mace.__file__).parents[1]
    monkeypatch.setattr(metadata, "distribution", lambda name: InstalledMaceTorch(folder))
    with pytest.raises(InputError, match="mace-torch 0.3.16 .* overwrite each other: run 'pip uninstall"):
        launch._look_for_mace_torch()


def test_another_mace_that_hides_ours_is_named(monkeypatch, tmp_path):
    other = tmp_path / "mace"
    other.mkdir()
    (other / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mace")
    with pytest.raises(SystemExit) as stop:
        cp_mace.run_train()
    assert f"provides the import package 'mace' in {other} and hides cp-mace" in stop.value.code
