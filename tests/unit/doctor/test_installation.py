"""Packages that do not go together are named; those that do are not."""

from dataclasses import replace
from pathlib import Path

import pytest

import mace
from mace.doctor.findings import Severity
from mace.doctor.installation import Installation, MaceTorch, examine_installation

VERSIONS = {
    "torch": "2.13.0+cpu",
    "e3nn": "0.6.0",
    "numpy": "2.4.6",
    "ase": "3.29.0",
    "matscipy": "1.3.1",
    "torch-ema": "0.3",
    "cuequivariance": "0.13.0",
    "cuequivariance-torch": "0.13.1",
}
GOOD = Installation(
    python=(3, 11, 7),
    versions=VERSIONS,
    has_cueq_kernels=True,
    mace_torch=None,
    own_folder=Path(mace.__file__).parent,
    working_folder=Path("/"),
    on_cuda=True,
    wants_cueq=True,
)


def codes(here):
    return {finding.code: finding for finding in examine_installation(here)}


def with_versions(**versions):
    return replace(GOOD, versions={**VERSIONS, **{k.replace("_", "-"): v for k, v in versions.items()}})


OTHER = MaceTorch(version="0.3.16", overwrites=False, folder=Path("/site/mace"))


@pytest.mark.parametrize(
    ("code", "here", "severity", "value"),
    [
        ("package-missing", with_versions(matscipy=None), "error", "matscipy"),
        ("python-old", replace(GOOD, python=(3, 9, 1)), "error", "Python 3.9.1"),
        ("torch-old", with_versions(torch="2.3.1"), "error", "torch 2.3.1"),
        ("numpy-torch", with_versions(torch="2.2.0"), "error", "numpy 2.4.6"),
        ("e3nn-torch", with_versions(e3nn="0.4.4"), "error", "e3nn 0.4.4"),
        ("e3nn-untested", with_versions(e3nn="0.5.3"), "warning", "e3nn 0.5.3"),
        ("e3nn-untested", with_versions(e3nn="0.7.0"), "warning", "e3nn 0.7.0"),
        ("e3nn-untested", with_versions(e3nn="0.4.4", torch="2.5.1"), "warning", "e3nn 0.4.4"),
        ("e3nn-script-functions", with_versions(e3nn="0.5.9"), "note", "e3nn 0.5.9"),
        ("e3nn-script-functions", with_versions(e3nn="0.5.5"), "note", "e3nn 0.5.5"),
        ("cueq-missing", with_versions(cuequivariance_torch=None), "error", "cuequivariance-torch"),
        ("cueq-versions", with_versions(cuequivariance="0.5.0"), "warning", "cuequivariance 0.5.0"),
        ("cueq-kernels", replace(GOOD, has_cueq_kernels=False), "warning", "cuequivariance-ops-torch"),
        ("cueq-kernels", replace(GOOD, has_cueq_kernels=False, wants_cueq=False), "note", "ops-torch"),
        ("mace-overwritten", replace(GOOD, mace_torch=replace(OTHER, overwrites=True)), "error", "0.3.16"),
        ("mace-twice", replace(GOOD, mace_torch=OTHER), "warning", "mace-torch 0.3.16"),
    ],
)
def test_what_does_not_go_together_is_named(code, here, severity, value):
    assert code not in codes(GOOD)
    finding = codes(here)[code]
    assert finding.severity is Severity(severity)
    assert value in finding.found and finding.cure


def test_what_goes_together_is_one_line():
    (finding,) = examine_installation(GOOD)
    assert finding.severity is Severity.OK and finding.code == "versions"
    assert "torch 2.13.0+cpu, e3nn 0.6.0" in finding.found


@pytest.mark.parametrize(
    "here",
    [
        with_versions(cuequivariance=None, cuequivariance_torch=None, torch="2.5.0"),
        replace(with_versions(cuequivariance=None), on_cuda=False),
    ],
)
def test_a_missing_cueq_matters_only_where_it_is_wanted(here):
    assert "cueq-missing" in codes(here)
    assert not {"cueq-missing", "cueq-kernels"} & codes(replace(here, wants_cueq=False)).keys()


def test_missing_kernels_do_not_matter_without_a_gpu():
    assert "cueq-kernels" not in codes(replace(GOOD, has_cueq_kernels=False, on_cuda=False))


@pytest.mark.parametrize("name", ["mace.py", "mace/__init__.py"])
def test_a_mace_in_the_working_folder_is_named(name, tmp_path):
    file = tmp_path / name
    assert "mace-shadowed" not in codes(replace(GOOD, working_folder=tmp_path))
    file.parent.mkdir(exist_ok=True)
    assert "mace-shadowed" not in codes(
        replace(GOOD, working_folder=tmp_path)
    )  # an empty folder hides nothing
    file.touch()
    finding = codes(replace(GOOD, working_folder=tmp_path))["mace-shadowed"]
    assert finding.severity is Severity.WARNING and str(tmp_path / "mace") in finding.found


def test_our_own_folder_hides_nothing():
    assert "mace-shadowed" not in codes(replace(GOOD, working_folder=GOOD.own_folder.parent))


def test_this_installation_is_found(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    here = Installation.here()
    assert here.working_folder == tmp_path and here.versions["torch"] is not None
    assert not [f for f in examine_installation(here) if f.severity is Severity.ERROR]
