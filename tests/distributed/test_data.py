"""Files, splits, statistics and loaders on two real processes: the same everywhere, and the errors too."""

import logging
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mace.exceptions import InputError
from mace.tools import datasets
from mace.tools.datasets import load_heads, record_splits
from mace.tools.graphs import build_graphs
from mace.tools.loaders import build_loaders
from mace.tools.statistics import measure
from tests.distributed.processes import on_one_process, run_ranks
from tests.tiny_run import FERMI, edit, make_plan, write_frames

pytestmark = pytest.mark.multirank


def prepare(ranks, plan):
    heads = load_heads(plan, ranks)
    graphs = build_graphs(heads, plan, ranks)
    statistics = measure(heads, graphs, plan, ranks)
    loaders = build_loaders(graphs, plan, ranks)
    record_splits(heads, plan, ranks)
    numbers = [statistics.atomic_energies, statistics.mean, statistics.std]
    scalars = [statistics.avg_num_neighbors, statistics.mean_electron, statistics.mean_potential]
    return {
        "split": [[c.frame for c in part] for head in heads for part in (head.train, head.valid)],
        "statistics": np.concatenate([*(n.ravel() for n in numbers), scalars]).tobytes(),
        "valid": [float(energy) for batch in loaders.valid["default"] for energy in batch.energy],
    }


def on_hosts_of_their_own(ranks):
    """The same processes, as if each ran on another host."""
    return replace(ranks, peers=tuple(replace(peer, place=f"host {peer.rank}") for peer in ranks.peers))


def complain(ranks, plans):
    """The message of the InputError that each case causes on this rank; it has one plan for every rank."""
    ranks = on_hosts_of_their_own(ranks)
    messages = []
    for plan_of_rank in plans:
        try:
            prepare(ranks, plan_of_rank[ranks.rank])
            messages.append("nothing raised")
        except InputError as error:
            messages.append(str(error))
    return messages


@pytest.fixture
def folder(tmp_path):
    write_frames(tmp_path / "train.xyz", 40)
    return tmp_path


def test_split_and_statistics_are_the_same_on_two_ranks_and_on_one(folder):
    flags = {"E0s": "average", "valid_fraction": 0.4, **FERMI}
    plan = make_plan(folder, **flags)
    first, second = run_ranks(2, prepare, plan)
    indices = Path(plan.paths.valid_indices_file()).read_bytes()
    alone = on_one_process(prepare, plan)
    for key in ("split", "statistics"):
        assert first[key] == second[key] == alone[key]
    assert sorted(first["valid"] + second["valid"]) == sorted(alone["valid"])
    assert Path(plan.paths.valid_indices_file()).read_bytes() == indices


def test_every_rank_raises_the_same_error(folder):
    plan = make_plan(folder)
    elsewhere = make_plan(folder, train_file=folder / "nowhere.xyz")
    other = folder / "other.xyz"
    other.write_text((folder / "train.xyz").read_text())
    edit(other, ("electron=", "electron=1"), line=1)
    single = write_frames(folder / "single.xyz", 1)
    cases = {
        "nowhere.xyz' does not exist": (elsewhere, plan),
        f"data file '{folder / 'nowhere.xyz'}' does not exist": (plan, elsewhere),
        "process 1 has read other data of head default than process 0": (
            plan,
            make_plan(folder, train_file=other),
        ),
        "leaves none to validate with": (make_plan(folder, valid_fraction=0.01),) * 2,
        "average number of neighbors is 0": (make_plan(folder, r_max=0.5),) * 2,
        "Atomic number 8 not found": (make_plan(folder, E0s="{1: -1.0}"),) * 2,
        "looked for 'nothing'": (make_plan(folder, energy_key="nothing"),) * 2,
        "the training set has 1 configuration, too few for 2 processes": (
            make_plan(folder, train_file=single, valid_file=folder / "train.xyz", E0s="average"),
        )
        * 2,
    }
    first, second = run_ranks(2, complain, list(cases.values()))
    assert first == second
    for expected, message in zip(cases, first, strict=True):
        assert expected in message


def unshared_bytes():
    """Memory of this process alone: pages of files that others map too are not counted."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])


def hold_training_data(ranks, plan, temporary, apart):
    """What a rank holds when it has met every training graph, and the numbers in them."""
    tempfile.tempdir = str(temporary)
    if apart:
        ranks = on_hosts_of_their_own(ranks)
    read, reads = datasets.read_file, []
    datasets.read_file = lambda path, *how, **more: reads.append(Path(path).name) or read(path, *how, **more)
    try:
        heads = load_heads(plan, ranks)
    finally:
        datasets.read_file = read
    before = unshared_bytes()
    train = build_graphs(heads, plan, ranks).train["default"]
    size, sums = 0, []
    for graph in train:
        size += sum(value.nbytes for value in graph.to_dict().values())
        sums.append([float(value.double().sum()) for value in graph.to_dict().values()])
    return {"reads": reads, "own": unshared_bytes() - before, "size": size, "sums": sums}


def test_a_host_reads_the_data_and_holds_the_training_graphs_once(folder):
    write_frames(folder / "train.xyz", 800, nmin=10, nmax=14)
    plan = make_plan(folder, r_max=12.0)  # beyond the box: many edges
    temporary = folder / "temporary"
    temporary.mkdir()
    together = run_ranks(2, hold_training_data, plan, temporary, False)
    assert not os.listdir(temporary), "nothing is left behind"
    apart = run_ranks(2, hold_training_data, plan, temporary, True)
    assert [rank["reads"] for rank in apart] == [["train.xyz"]] * 2
    assert [rank["reads"] for rank in together] == [["train.xyz"], []]
    for rank in apart:
        assert rank["own"] > 0.9 * rank["size"] > 30e6
    for rank in together:
        assert rank["own"] < 0.2 * rank["size"]
    assert together[0]["sums"] == together[1]["sums"] == apart[0]["sums"] == apart[1]["sums"]


def hold_without_room(ranks, plan, records):
    """The same without a folder for temporary files on one rank, and what was warned of."""
    with (records / f"{ranks.rank}").open("w") as stream:
        handler = logging.StreamHandler(stream)
        logging.getLogger().addHandler(handler)
        held = hold_training_data(ranks, plan, records / "nowhere" if ranks.rank else records, False)
    return held, (records / f"{ranks.rank}").read_text()


def test_data_that_cannot_be_shared_are_held_by_every_rank(folder, tmp_path):
    answers = run_ranks(2, hold_without_room, make_plan(folder), tmp_path)
    for held, warning in answers:
        assert "cannot share the memory of the data" in warning and "nowhere" in warning
        assert "TMPDIR" in warning
        assert "train.xyz" in held["reads"]
    assert answers[0][0]["sums"] == answers[1][0]["sums"]
