"""Flags, model file and data together; the trial of the processes has tests of its own."""

import json

import pytest
import torch

from mace.arguments.doctor_plan import DoctorPlan
from mace.arguments.parsers import build_doctor_arg_parser
from mace.cli import doctor
from mace.doctor import examination
from mace.doctor.findings import Finding, Severity, error, exit_status, note, ok, warning
from mace.doctor.lesson import architecture_of
from mace.doctor.report import as_json, as_text
from mace.exceptions import InputError
from mace.tools.exporting import export_model
from tests.launcher_environments import pals, sbatch
from tests.small_models import MODELS, fermi, mace
from tests.tiny_run import write_frames

E0S = "--E0s={1: -1.0, 8: -2.0}"
FERMI = ("--model=FermiMACE", "--loss=fermi_weighted", "--error_table=Fermi_PerAtomRMSE")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(examination, "examine_processes", lambda *_: [])
    monkeypatch.chdir(tmp_path)
    write_frames(tmp_path / "train.xyz", 12, seed=1)
    write_frames(tmp_path / "valid.xyz", 6, seed=2)
    torch.save(fermi(), tmp_path / "fermi.model")
    torch.save(mace(), tmp_path / "mace.model")
    return tmp_path


def plan_of(*words):
    return DoctorPlan.from_namespace(build_doctor_arg_parser().parse_args(list(words)))


def codes(*words, data=True):
    files = ("--train_file=train.xyz", "--valid_file=valid.xyz", E0S, "--batch_size=2") if data else ()
    return {finding.code: finding for finding in examination.examine(plan_of(*files, *words))}


@pytest.mark.parametrize("name", [name for name in MODELS if "Dipole" not in name])
def test_the_architecture_is_told_from_the_model(name):
    assert architecture_of(MODELS[name]()) == ("ScaleShiftMACE" if name == "ScaleShiftMACE" else name)


def test_a_model_of_no_architecture():
    assert architecture_of(torch.nn.Linear(1, 1)) is None


@pytest.mark.parametrize("file", ["fermi.model", "mace.model"])
def test_a_model_file_and_its_data(folder, file):
    found = codes(f"--model={file}")
    assert found["gradients"].severity is Severity.OK
    assert not [f for f in found.values() if f.severity in (Severity.ERROR, Severity.WARNING)]


def test_a_model_file_has_its_energies_of_isolated_atoms(folder):
    files = ("--train_file=train.xyz", "--valid_file=valid.xyz")
    assert "data-e0s" not in codes("--model=fermi.model", *files, data=False)
    assert "data-e0s" not in codes("--model_file=fermi.model", *files, data=False)
    assert "data-e0s" in codes("--model_file=fermi.model", *FERMI, *files, data=False)  # a run of its own
    assert "data-e0s" in codes("--model=fermi.model", *files, "--E0s={1: -1.0}", data=False)


def test_a_model_without_data(folder):
    found = codes("--model=fermi.model", data=False)
    assert "gradients-not-checked" in found and "copy-rebuild" in found and "disk" in found
    assert "labels" not in found and "data-unreadable" not in found


@pytest.mark.parametrize("form", ["bundle", "torchscript", "mace-torch"])
def test_every_format_is_read(folder, form):
    export_model(mace(), folder / "other.pt", form)
    found = codes("--model=other.pt")
    assert found["copy-rebuild"].severity is Severity.OK and found["gradients"].severity is Severity.OK


def test_an_archive_without_a_configuration(folder):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), folder / "plain.pt")
    assert codes("--model=plain.pt")["model-archive"].severity is Severity.NOTE


def test_a_file_that_is_no_model(folder):
    assert "model-unreadable" not in codes("--model=fermi.model")
    assert "train.xyz" in codes("--model=train.xyz")["model-unreadable"].found
    finding = codes("--model=FermiMACE_3")["model-unreadable"]
    assert finding.severity is Severity.ERROR and "FermiMACE_3 does not exist" in finding.found


def test_a_model_of_another_architecture(folder):
    assert "model-other" not in codes("--model_file=fermi.model", *FERMI)
    finding = codes("--model_file=mace.model", *FERMI)["model-other"]
    assert finding.severity is Severity.WARNING and "is a MACE" in finding.found


def test_data_that_the_model_cannot_take(folder):
    assert "model-data" not in codes("--model=mace.model")
    text = (folder / "train.xyz").read_text()
    (folder / "train.xyz").write_text(text.replace("\nO ", "\nC "))
    (folder / "valid.xyz").write_text(text.replace("\nO ", "\nC "))
    finding = codes("--model=mace.model", "--E0s={1: -1, 6: -2}")["model-data"]
    assert finding.severity is Severity.WARNING and finding.cure


def test_flags_that_a_run_refuses(folder):
    assert "flags-refused" not in codes()
    finding = codes("--model=FermiMACE")["flags-refused"]
    assert finding.severity is Severity.ERROR and "--loss" in finding.found


def test_flags_that_a_run_warns_of(folder):
    assert "flags-advice" not in codes()
    finding = codes("--ema_decay=0.9")["flags-advice"]
    assert finding.severity is Severity.WARNING and "--ema_decay has no effect" in finding.found


def test_data_without_training_data(folder):
    assert "data-no-training" not in codes() and "data-no-training" not in codes(data=False)
    assert "--valid_file" in codes("--valid_file=valid.xyz", data=False)["data-no-training"].found


def test_a_known_size_is_used_for_the_disk(folder):
    assert "model of 20.0 MB (assumed" in codes()["disk"].found
    assert "model of 7.0 MB:" in codes("--model_megabytes=7")["disk"].found


def test_a_config_file_of_a_run_works(folder):
    (folder / "run.yaml").write_text(
        "name: mine\ntrain_file: train.xyz\nvalid_file: valid.xyz\nbatch_size: 4\n"
    )
    plan = plan_of("--config=run.yaml", E0S)
    assert (plan.run.name, plan.run.data.batch_size, plan.has_data) == ("mine", 4, True)


@pytest.mark.parametrize("words", [("--model_megabytes=0",), ("--model=a.model", "--model_file=b.model")])
def test_flags_of_its_own_that_cannot_be_used(words):
    with pytest.raises(InputError):
        plan_of(*words)


def test_only_the_first_process_speaks(folder, monkeypatch, capsys):
    place = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    lines = [error("group-failed", "nobody answers", "wait"), note("x", "y")]
    monkeypatch.setattr(examination, "examine_processes", lambda *_: lines)
    assert doctor.run(build_doctor_arg_parser().parse_args([])) == 0
    assert capsys.readouterr() == ("", "rank 1: group-failed: nobody answers\n")


@pytest.mark.parametrize(
    ("environment", "count"), [(pals(0, 4, local_size=4), 4), (sbatch(8, "node7", 1), 1)]
)
def test_the_machine_knows_the_processes_that_a_run_would_find(folder, monkeypatch, environment, count):
    for name, value in {**environment, "OMP_NUM_THREADS": "100000"}.items():
        monkeypatch.setenv(name, value)
    assert f" and {count} process(es) on " in codes(data=False)["threads-many"].found


def test_packages_that_cannot_be_imported_are_a_finding(folder, monkeypatch, capsys):
    arguments = build_doctor_arg_parser().parse_args(["--json"])

    def found():
        status = doctor.run(arguments)
        report = json.loads(capsys.readouterr().out)
        assert report["status"] == status
        return {finding["code"]: finding for finding in report["findings"]}

    assert "import-failed" not in found()

    def broken(name):
        raise RuntimeError("no kernels\nand more")

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    report = found()
    assert report["import-failed"]["severity"] == "error"
    assert report["import-failed"]["found"].endswith("RuntimeError: no kernels")
    assert "versions" in report


@pytest.mark.parametrize(
    ("findings", "status"),
    [([], 0), ([ok("a", "b")], 0), ([note("a", "b")], 0), ([note("a", "b"), warning("c", "d", "e")], 3)]
    + [([warning("c", "d", "e"), error("f", "g", "h"), ok("a", "b")], 4)],
)
def test_the_status_is_that_of_the_worst(findings, status):
    assert exit_status(findings) == status
    assert json.loads(as_json(findings))["status"] == status


def test_the_text_has_the_worst_first():
    findings = [ok("a", "fine"), warning("b", "slow", "wait"), error("c", "gone", "look")]
    expected = "ERROR   c: gone\n        -> look\nWARNING b: slow\n        -> wait\n"
    assert as_text(findings, verbose=False) == expected + "1 error, 1 warning, 0 note, 1 ok"
    assert as_text(findings, verbose=True) == expected + "OK      a: fine\n1 error, 1 warning, 0 note, 1 ok"


def test_json_holds_every_field():
    (found,) = json.loads(as_json([Finding(Severity.NOTE, "a", "b", "c")]))["findings"]
    assert found == {"severity": "note", "code": "a", "found": "b", "cure": "c"}
