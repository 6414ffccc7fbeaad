"""Findings about data: all of them, not the first alone."""

import ase.io
import numpy as np
import pytest
from ase.constraints import FixAtoms

from mace.doctor.data import check_steps, examine_data
from mace.doctor.findings import Severity
from tests.tiny_run import FERMI, edit, make_plan, write_frames


@pytest.fixture
def folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 12, seed=1)
    write_frames(tmp_path / "valid.xyz", 6, seed=2)
    return tmp_path


def codes(folder, world_size=1, **flags):
    _, findings = examine_data(make_plan(folder, **flags), world_size)
    return {finding.code: finding for finding in findings}


def rewrite(file, change):
    """Let a function change the frames of a file."""
    frames = ase.io.read(file, ":")
    change(frames)
    ase.io.write(file, frames, format="extxyz")


def test_good_data_are_in_order(folder):
    found = codes(folder, **FERMI)
    assert found.keys() == {"labels", "steps"}
    assert {finding.severity for finding in found.values()} == {Severity.OK}
    assert found["steps"].found == "6 steps of 1 x 2 frames an epoch, 0 of 12 left out"


def test_labels_are_counted(folder):
    _, findings = examine_data(make_plan(folder, **FERMI), 1)
    texts = [finding.found for finding in findings if finding.code == "labels"]
    assert len(texts) == 2 and "12 frames, labels energy 12, forces 12, electron 12, potential 12" in texts[0]


def test_every_file_that_cannot_be_used_is_named(folder):
    assert "data-unreadable" not in codes(folder)
    (folder / "train.xyz").write_text("")
    _, findings = examine_data(make_plan(folder, test_file=folder / "nothing.xyz"), 1)
    found = [finding.found for finding in findings if finding.code == "data-unreadable"]
    assert len(found) == 2 and "train.xyz' is empty" in found[0] and "nothing.xyz' does not exist" in found[1]
    assert any("valid.xyz" in finding.found for finding in findings if finding.code == "labels")


def test_every_label_that_is_missing_is_named(folder):
    assert "data-labels" not in codes(folder, **FERMI)
    edit(folder / "train.xyz", ("electron=", "charge="), ("REF_energy", "U"))
    _, findings = examine_data(make_plan(folder, **FERMI), 1)
    found = [finding.found for finding in findings if finding.code == "data-labels"]
    assert len(found) == 2 and "label for energy" in found[0] and "label for electron" in found[1]


def test_frames_without_an_electron_number(folder):
    write_frames(folder / "train.xyz", 12, electron_missing=2)
    assert "frames 0, 1" in codes(folder, **FERMI)["data-labels"].found
    assert "data-labels" not in codes(folder)


def test_masked_fermi_levels_are_counted(folder):
    assert "fermi-masked" not in codes(folder, **FERMI)
    write_frames(folder / "train.xyz", 12, potential_every=3)
    finding = codes(folder, **FERMI)["fermi-masked"]
    assert finding.severity is Severity.NOTE and finding.found.startswith("8 of 12 training frames")


def test_a_validation_set_without_fermi_levels(folder):
    assert "fermi-none-valid" not in codes(folder, **FERMI)
    edit(folder / "valid.xyz", ("potential=", "level="))
    assert codes(folder, **FERMI)["fermi-none-valid"].severity is Severity.WARNING


def test_fermi_levels_that_the_model_does_not_use(folder):
    assert "fermi-unused" not in codes(folder, **FERMI)
    assert "12 electron numbers and 12 Fermi levels" in codes(folder)["fermi-unused"].found
    for kind in ("train", "valid"):
        write_frames(folder / f"{kind}.xyz", 12, seed=kind, cp=0)
    assert "fermi-unused" not in codes(folder)


def test_atoms_on_top_of_each_other(folder):
    def push(frames):
        frames[3].positions[1] = frames[3].positions[0] + [0.25, 0.0, 0.0]
        frames[5].positions[1] = frames[5].positions[0] + [0.35, 0.0, 0.0]

    assert "atoms-close" not in codes(folder)
    rewrite(folder / "train.xyz", push)
    finding = codes(folder)["atoms-close"]
    assert finding.severity is Severity.ERROR
    assert finding.found.startswith("1 training frames") and "frame 3 of" in finding.found


def test_a_cell_that_cannot_be_used(folder):
    def flatten(frames):
        frames[2].cell[2] = frames[2].cell[1]

    assert "frame-unusable" not in codes(folder)
    rewrite(folder / "valid.xyz", flatten)
    assert "1 validation frames have no neighbour list: frame 2" in codes(folder)["frame-unusable"].found


def test_forces_that_an_optimiser_has_set_to_zero(folder):
    def hold(frames):
        for atoms in frames[:2]:
            atoms.arrays["REF_forces"][:2] = 0.0
        frames[0].set_constraint(FixAtoms([0, 1]))
        frames[4].arrays["REF_forces"][:] = 0.0  # all of a frame may be: a single atom, a perfect crystal

    assert "forces-zero" not in codes(folder)
    rewrite(folder / "train.xyz", hold)
    finding = codes(folder)["forces-zero"]
    assert finding.severity is Severity.WARNING
    assert (
        finding.found.startswith("4 atoms in 2 training frames") and "; 2 of them are held" in finding.found
    )


def test_frames_of_training_and_validation_alike(folder):
    assert "frames-duplicate" not in codes(folder)
    frames = ase.io.read(folder / "train.xyz", ":")
    charged = frames[7].copy()
    charged.info["electron"] += 0.5  # the same atoms with more electrons are another frame
    others = ase.io.read(folder / "valid.xyz", ":")
    ase.io.write(folder / "valid.xyz", [*others, frames[5], charged], format="extxyz")
    finding = codes(folder)["frames-duplicate"]
    assert finding.severity is Severity.WARNING
    assert finding.found.startswith("1 of 8 validation frames") and "frame 5 of" in finding.found


def test_test_frames_are_looked_at_too(folder):
    ase.io.write(folder / "test.xyz", ase.io.read(folder / "train.xyz", ":2"), format="extxyz")
    assert codes(folder, test_file=folder / "test.xyz")["frames-duplicate"].found.startswith("2 of 2 test")


def test_an_element_that_the_training_set_lacks(folder):
    def change(frames):
        frames[1].numbers[0] = 29

    assert "data-elements" not in codes(folder)
    rewrite(folder / "valid.xyz", change)
    assert "Cu (29)" in codes(folder)["data-elements"].found
    rewrite(folder / "train.xyz", change)
    found = codes(folder, atomic_numbers="[1, 8]", E0s="{1: -1, 8: -2, 29: 0}")["data-elements"].found
    assert "--atomic_numbers" in found


def test_energies_of_isolated_atoms(folder):
    assert "data-e0s" not in codes(folder)
    assert codes(folder, E0s="{1: -1.0}")["data-e0s"].severity is Severity.ERROR
    assert codes(folder, E0s=None)["data-e0s"].severity is Severity.ERROR


def test_a_set_too_small_to_be_split(folder):
    (folder / "valid.xyz").unlink()
    assert "data-split" not in codes(folder, valid_fraction=0.5)
    assert "leaves none to validate with" in codes(folder, valid_fraction=0.05)["data-split"].found


def test_labels_of_weight_zero(folder):
    assert "data-weights" not in codes(folder)
    edit(folder / "train.xyz", ("REF_energy=", "config_energy_weight=0 REF_energy="))
    assert "non-zero weight for energy" in codes(folder)["data-weights"].found


def test_isolated_atoms_alone(folder):
    atoms = ase.Atoms("H", info={"config_type": "IsolatedAtom", "REF_energy": -1.0})
    atoms.arrays["REF_forces"] = np.zeros((1, 3))
    ase.io.write(folder / "train.xyz", atoms, format="extxyz")
    _, findings = examine_data(make_plan(folder), 1)
    texts = [finding.found for finding in findings if finding.code == "data-unreadable"]
    assert any("IsolatedAtom entries only" in text for text in texts)


def test_warnings_of_the_reader_are_findings(folder):
    assert "data-advice" not in codes(folder)
    for kind in ("train", "valid"):
        edit(folder / f"{kind}.xyz", ("REF_energy", "energy"))
    finding = codes(folder, energy_key="energy")["data-advice"]
    assert finding.severity is Severity.WARNING and "ASE's standard name" in finding.found


@pytest.mark.parametrize(
    ("frames", "batch_size", "ranks", "code", "severity", "value"),
    [
        (12, 2, 2, "steps", "ok", "3 steps of 2 x 2 frames an epoch, 0 of 12"),
        (13, 2, 2, "steps", "ok", "3 steps of 2 x 2 frames an epoch, 1 of 13"),
        (11, 2, 2, "frames-left-out", "warning", "3 of 11 left out"),
        (12, 8, 2, "batch-large", "warning", "6 for each"),
        (3, 1, 4, "ranks-many", "error", "too few for 4 processes"),
    ],
)
def test_steps(folder, frames, batch_size, ranks, code, severity, value):
    found = {f.code: f for f in check_steps(frames, make_plan(folder, batch_size=batch_size), ranks)}
    assert found[code].severity is Severity(severity) and value in found[code].found
    good = {f.code for f in check_steps(12, make_plan(folder, batch_size=2), 2)}
    assert good == {"steps"}


def test_data_of_several_heads(folder):
    write_frames(folder / "other.xyz", 12, seed=3, electron_missing=1)
    heads = {"a": {"train_file": str(folder / "train.xyz")}, "b": {"train_file": str(folder / "other.xyz")}}
    _, findings = examine_data(make_plan(folder, heads=heads, **FERMI), 1)
    labels = [finding.found for finding in findings if finding.code == "data-labels"]
    assert len(labels) == 1 and "other.xyz" in labels[0]
