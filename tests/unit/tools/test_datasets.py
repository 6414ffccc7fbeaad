"""From files to checked heads: what is read, split, counted and logged."""

import logging
import re

import numpy as np
import pytest

from mace.exceptions import InputError
from mace.tools.datasets import load_heads, record_splits
from mace.tools.distributed import Ranks
from tests.tiny_run import FERMI, make_plan, write_frames

RANKS = Ranks.single()


def heads_flag(folder, **of_heads):
    heads = {
        name: {
            "train_file": str(write_frames(folder / f"{name}.xyz", count, seed=f"train {name}")),
            "E0s": "{1: -1.0, 8: -2.0}",
            **settings,
        }
        for name, (count, settings) in of_heads.items()
    }
    return {"heads": heads}


def test_files_become_heads_and_test_groups(tmp_path, caplog):
    write_frames(tmp_path / "train.xyz", 5, isolated=1)
    write_frames(tmp_path / "valid.xyz", 3, seed=2)
    test = write_frames(tmp_path / "test.xyz", 4, seed=3)
    caplog.set_level(logging.INFO)
    (head,) = load_heads(make_plan(tmp_path, test_file=test), RANKS)
    assert (len(head.train), len(head.valid)) == (5, 3)
    assert {name: len(group) for name, group in head.tests.items()} == {"Default_default": 4}
    assert dict(head.isolated) == {1: -1.0, 8: -2.0}
    assert head.elements == (1, 8)
    components = [sum(3 * len(c.atomic_numbers) for c in part) for part in (head.train, head.valid)]
    log = caplog.messages
    assert "Using heads: ['default']" in log
    assert "=============    Processing head default     ===========" in log
    for what, count, path, forces in (
        ("Training set", 5, tmp_path / "train.xyz", components[0]),
        ("Validation set", 3, tmp_path / "valid.xyz", components[1]),
    ):
        assert f"{what} [{count} configs, {count} energy, {forces} forces] loaded from '{path}'" in log
    assert f"Test set (4 configs) loaded from '{test}':" in log
    assert any(line.startswith("Default_default: 4 configs, 4 energy, ") for line in log)
    assert "Total number of configurations: train=5, valid=3, tests=[Default_default: 4]," in log


def test_labels_are_counted_per_file_and_head_with_masked_fermi_levels(tmp_path, caplog):
    write_frames(tmp_path / "train.xyz", 6, potential_every=2)
    write_frames(tmp_path / "valid.xyz", 3, seed=2)
    caplog.set_level(logging.INFO)
    load_heads(make_plan(tmp_path, **FERMI), RANKS)
    counted = [line for line in caplog.messages if line.startswith("Labels in")]
    path = tmp_path / "train.xyz"
    assert counted[0] == (
        f"Labels in '{path}' for head default: energy 6, forces 6, electron 6, potential 3 (3 masked)"
    )
    assert "potential 3" in counted[1] and "masked" not in counted[1]


def test_masked_fermi_levels_of_every_set_are_counted(tmp_path, caplog):
    write_frames(tmp_path / "train.xyz", 12)
    test = write_frames(tmp_path / "test.xyz", 5, seed=2, potential_every=2)
    other = write_frames(tmp_path / "other.xyz", 3, seed=3).read_text()
    unlabelled = re.sub(r" potential=\S+", " config_type=bare", other)
    test.write_text(test.read_text() + unlabelled)
    caplog.set_level(logging.INFO)
    load_heads(make_plan(tmp_path, **FERMI, valid_fraction=0.25, test_file=test), RANKS)
    assert (
        "Fermi levels for head default: train: 9 (0 masked), valid: 3 (0 masked), "
        "Default_default: 3 (2 masked), bare_default: 0 (3 masked)"
    ) in caplog.messages


def test_f11_an_energy_of_zero_is_a_label(tmp_path, caplog):
    write_frames(tmp_path / "train.xyz", 4)
    lines = (tmp_path / "train.xyz").read_text().split("\n")
    lines[1] = re.sub(r"REF_energy=\S+", "REF_energy=0.0", lines[1])
    (tmp_path / "train.xyz").write_text("\n".join(lines))
    write_frames(tmp_path / "valid.xyz", 3, seed=2)
    caplog.set_level(logging.INFO)
    load_heads(make_plan(tmp_path), RANKS)
    assert any(line.startswith("Training set [4 configs, 4 energy,") for line in caplog.messages)


def test_the_split_follows_the_seed_and_writes_its_indices(tmp_path, caplog):
    write_frames(tmp_path / "train.xyz", 40)
    caplog.set_level(logging.INFO)
    plan = make_plan(tmp_path, valid_fraction=0.3, seed=7)
    (head,) = load_heads(plan, RANKS)
    assert not list(tmp_path.glob("valid_indices*"))  # the run may still be refused
    record_splits([head], plan, RANKS)
    order = list(range(40))
    np.random.default_rng(7).shuffle(order)
    assert [c.frame for c in head.train] == order[:28]
    assert [c.frame for c in head.valid] == order[28:]
    written = (tmp_path / "valid_indices_7.txt").read_text().split()
    assert [int(index) for index in written] == order[28:]
    assert any(
        line.startswith("Validaton set contains 12 configurations [12 energy, ") for line in caplog.messages
    )


def test_c12_every_head_has_its_own_file_of_validation_indices(tmp_path):
    plan = make_plan(tmp_path, **heads_flag(tmp_path, a=(30, {}), b=(40, {})), valid_fraction=0.5)
    heads = load_heads(plan, RANKS)
    record_splits(heads, plan, RANKS)
    assert [head.name for head in heads] == ["a", "b"]
    counts = {path.name: len(path.read_text().split()) for path in tmp_path.glob("valid_indices*")}
    assert counts == {"valid_indices_a_1.txt": 15, "valid_indices_b_1.txt": 20}


def test_every_configuration_gets_the_name_of_its_head(tmp_path):
    flag = heads_flag(tmp_path, a=(30, {}), b=(40, {}))
    test = write_frames(tmp_path / "test.xyz", 3, head="b")
    flag["heads"]["a"]["test_file"] = str(test)
    first, second = load_heads(make_plan(tmp_path, **flag, valid_fraction=0.5), RANKS)
    assert {c.head for c in first.train + first.valid} == {"a"}
    assert {c.head for c in second.train + second.valid} == {"b"}
    assert list(first.tests) == ["Default_a"] and not second.tests


def test_heads_have_their_own_keys(tmp_path):
    flag = heads_flag(tmp_path, a=(30, {"energy_key": "E_a"}), b=(30, {}))
    path = tmp_path / "a.xyz"
    path.write_text(path.read_text().replace("REF_energy", "E_a"))
    first, second = load_heads(make_plan(tmp_path, **flag), RANKS)
    assert all(c.energy is not None for head in (first, second) for c in head.train)


def test_a7_validation_without_fermi_levels_is_a_warning(tmp_path, caplog):
    write_frames(tmp_path / "train.xyz", 6)
    valid = write_frames(tmp_path / "valid.xyz", 3, seed=2)
    valid.write_text(" ".join(w for w in valid.read_text().split(" ") if not w.startswith("potential=")))
    load_heads(make_plan(tmp_path, **FERMI), RANKS)
    assert (
        "No validation configuration of head default has a Fermi level: its error is not available"
        in caplog.messages
    )


def test_isolated_atoms_are_kept_on_request(tmp_path):
    write_frames(tmp_path / "train.xyz", 5, isolated=1)
    write_frames(tmp_path / "valid.xyz", 3, seed=2)
    (head,) = load_heads(make_plan(tmp_path, keep_isolated_atoms="True"), RANKS)
    assert len(head.train) == 7 and dict(head.isolated) == {1: -1.0, 8: -2.0}


def test_an_index_file_that_cannot_be_written_is_an_input_error(tmp_path):
    no_folder = write_frames(tmp_path / "train.xyz", 40)
    plan = make_plan(tmp_path, valid_fraction=0.5, work_dir=no_folder)
    heads = load_heads(plan, RANKS)
    with pytest.raises(InputError, match="indices of the validation set cannot be written"):
        record_splits(heads, plan, RANKS)
