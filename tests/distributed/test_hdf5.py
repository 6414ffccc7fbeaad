"""A training from HDF5 data is the training from the file they were made of, on one process and on two."""

import json

import pytest
import torch

from tests.harness import CP, DATA, E0S, one, run, tiny_data, two
from tests.tolerances import relative

pytestmark = pytest.mark.multirank

SAME_DATA = relative("same data", torch.float64)
H5 = ("--train_file=h5/train", "--valid_file=h5/val", "--statistics_file=h5/statistics.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three shards of a file in its order: the order of an epoch depends on it."""
    folder = tiny_data(tmp_path_factory.mktemp("hdf5"), potential_every=2)
    flags = [*DATA, *E0S, "--test_file=valid.xyz", "--r_max=4.0", "--h5_prefix=h5/", "--num_process=3"]
    command = [
        "-m",
        "mace.cli.preprocess_data",
        *flags,
        "--shuffle=False",
        "--compute_statistics",
        "--seed=1",
    ]
    run(command, folder).succeeded()
    return folder


def records(folder, name):
    """Losses and errors of a run, without times."""
    lines = (folder / "results" / f"{name}_run-1_train.txt").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "time"} for line in lines]


def same_records(found, expected):
    assert len(found) == len(expected) >= 4
    for one_record, other in zip(found, expected, strict=True):
        assert one_record.keys() == other.keys()
        for key, value in other.items():
            assert one_record[key] == (
                pytest.approx(value, rel=SAME_DATA) if isinstance(value, float) else value
            )


@pytest.mark.parametrize("launch", [pytest.param(one, marks=pytest.mark.slow), two])
def test_losses_are_those_of_a_run_from_the_source(folder, launch):
    name = launch.__name__
    source = launch([*CP, f"--name=xyz_{name}", "--test_file=valid.xyz"], folder)
    source.succeeded()
    flags = [*CP, f"--name=h5_{name}", "--test_dir=h5/test", "--num_workers=2"]
    launch(flags, folder, data=H5).succeeded()
    expected, found = records(folder, f"xyz_{name}"), records(folder, f"h5_{name}")
    same_records(found, expected)
    assert (folder / f"h5_{name}.model").stat().st_size > 0


def test_a_damaged_shard_ends_a_run_of_two_with_one_line(folder):
    shard = folder / "h5" / "train" / "train_1.h5"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-3000])
    try:
        ended = two([*CP, "--name=damaged"], folder, data=H5).failed()
    finally:
        shard.write_bytes(whole)
    assert ended.told.count("train_1.h5' cannot be read, it may be truncated") == 1
    assert "InputError" not in ended.output  # no traceback of ours; torchrun shows its own


@pytest.mark.slow
def test_a_head_of_hdf5_data_beside_a_head_of_a_file(folder):
    plain = {
        "train_file": "train.xyz",
        "valid_file": "valid.xyz",
        "E0s": E0S[0].removeprefix("--E0s="),
    }
    stored = {
        "train_file": "h5/train",
        "valid_file": "h5/val",
        "statistics_file": "h5/statistics.json",
    }
    for name, first in (("xyz_heads", plain), ("h5_heads", stored)):
        heads = f"--heads={ {'a': first, 'b': plain} }"
        one([f"--name={name}", heads], folder, data=()).succeeded()
    same_records(records(folder, "h5_heads"), records(folder, "xyz_heads"))
