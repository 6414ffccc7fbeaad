"""Data that mace-torch 0.3.16 has prepared, read by a run of ours."""

import ast
import json

import pytest

from mace.data.hdf5_files import files_of
from mace.data.readers import read_configurations
from mace.data.stored import StoredConfigurations
from mace.tools.datasets import load_heads
from mace.tools.distributed import Ranks
from mace.tools.graphs import build_graphs
from mace.tools.statistics import measure
from tests.tiny_run import make_plan, write_frames

pytestmark = [pytest.mark.upstream, pytest.mark.slow]


@pytest.fixture
def folder(tmp_path, peer):
    write_frames(tmp_path / "train.xyz", 9, stress=1, isolated=1)
    write_frames(tmp_path / "valid.xyz", 4, seed=2)
    files = ["--train_file=train.xyz", "--valid_file=valid.xyz", "--test_file=valid.xyz", "--h5_prefix=h5/"]
    flags = ["--num_process=2", "--compute_statistics", "--r_max=4.0", "--batch_size=1", "--shuffle=False"]
    peer(["-m", "mace.cli.preprocess_data", *files, *flags], tmp_path)
    return tmp_path


def test_configurations_are_those_of_the_source(folder):
    found = StoredConfigurations.open(files_of(folder / "h5" / "train"))
    source = read_configurations(folder / "train.xyz", {}, extract_atomic_energies=True).configurations
    assert len(found) == len(source)
    for stored, given in zip(found, source, strict=True):
        for name in ("positions", "cell", "forces", "atomic_numbers", "stress", "virials"):
            assert getattr(stored, name).tolist() == getattr(given, name).tolist(), name
        assert (stored.energy, stored.pbc, stored.weight) == (given.energy, given.pbc, given.weight)
        assert stored.energy_weight == given.energy_weight and stored.forces_weight == given.forces_weight
        assert stored.dipole is None and stored.charges is None and stored.potential is None


def test_a_run_uses_data_and_statistics(folder):
    h5 = folder / "h5"
    statistics = json.loads((h5 / "statistics.json").read_text())
    files = {"train_file": h5 / "train", "valid_file": h5 / "val", "test_dir": h5 / "test"}
    plan = make_plan(
        folder, **files, E0s=None, statistics_file=h5 / "statistics.json", model="ScaleShiftMACE"
    )
    ranks = Ranks.single()
    heads = load_heads(plan, ranks)
    assert {name: len(test) for name, test in heads[0].tests.items()} == {"Default_default": 4}
    found = measure(heads, build_graphs(heads, plan, ranks), plan, ranks)
    assert found.atomic_energies.tolist() == [[-1.0, -2.0]]
    assert (found.mean[0], found.std[0]) == (statistics["mean"], statistics["std"])
    assert found.avg_num_neighbors == statistics["avg_num_neighbors"]
    assert found.z_table.zs == ast.literal_eval(statistics["atomic_numbers"])
