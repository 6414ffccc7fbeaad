"""Large data sets made ready for training: files to HDF5 shards and statistics."""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import h5py

from mace.arguments.data_plan import HeadPlan
from mace.arguments.parsing import HDF5_SUFFIXES
from mace.arguments.preprocess_plan import PreparePlan
from mace.data import Configuration, get_neighborhood, random_train_valid_split
from mace.data.hdf5_files import save_configurations_as_HDF5
from mace.data.labels import LABELS
from mace.data.readers import LabelledFile, count_labels, describe_labels
from mace.data.splits import group_by_type
from mace.data.stored import select
from mace.exceptions import InputError, RunError
from mace.tools.data_checks import check_elements, check_given_elements
from mace.tools.data_files import read_file
from mace.tools.datasets import HeadData
from mace.tools.files import atomic_write
from mace.tools.graphs import element_table
from mace.tools.statistics import checked_average, energies_of, mean_of, scale_of

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file to write."""

    path: Path
    configurations: Sequence[Configuration]
    drop_last: bool  # upstream's loaders ask for it
    r_max: float | None  # Angstrom; None: neighbours are not counted


def read_data(plan: PreparePlan) -> HeadData:
    """Read, check and split the files.

    Raises:
        InputError: a file that cannot be used, or elements that training data or ``--atomic_numbers`` lack.
    """
    head = plan.head
    train_file = _read(head.train_file, head, training=True)
    train: Sequence[Configuration] = train_file.configurations
    held_back: Sequence[int] = ()
    if head.valid_file is None:
        kept, held_back = random_train_valid_split(
            range(len(train)), head.valid_fraction, plan.seed, plan.work_dir, write=False
        )
        train, valid = select(train, kept), select(train, held_back)
    else:
        valid = list(_read(head.valid_file, head).configurations)
    test = [] if head.test_file is None else _read(head.test_file, head).configurations
    check_given_elements([*train, *valid, *test], head)
    check_elements(train, [*valid, *test], head)
    return HeadData(
        plan=head,
        train=train,
        valid=valid,
        tests=group_by_type(test),
        isolated=train_file.atomic_energies,
        held_back=held_back,
    )


def _read(path: str, head: HeadPlan, *, training: bool = False) -> LabelledFile:
    file = read_file(path, head, training=training, heads_from_file=True)
    if not file.configurations:
        raise InputError(f"training file '{path}' holds IsolatedAtom entries only: nothing to prepare")
    if not any(count_labels(file.configurations).values()):
        keys = " ".join(file.keys[label.name] for label in LABELS)
        raise InputError(
            f"no structure of '{path}' has a label: looked for {keys} (--energy_key, --forces_key ...), the "
            f"file has {file.describe_found()}"
        )
    logging.info(f"'{path}': {len(file.configurations)} configs, {describe_labels(file.configurations)}")
    return file


def shards_of(data: HeadData, plan: PreparePlan) -> list[Shard]:
    """All files to write; those of the training set come first, and count neighbours for the statistics.

    Training and validation set are shuffled before. A set that is smaller than the number of processes has
    as many files as configurations.
    """
    generator = random.Random(plan.seed)
    sets = [list(data.train), list(data.valid)]
    if plan.shuffle:
        for configurations in sets:
            generator.shuffle(configurations)
    counted = plan.r_max if plan.compute_statistics else None
    train, valid = sets
    shards = [*_shards(plan.folder / "train" / "train", train, plan, counted)]
    shards += _shards(plan.folder / "val" / "val", valid, plan)
    for name, test in data.tests.items():
        if "/" in name:
            raise InputError(f"test set '{name}' (config_type and head) names files: take '/' out of it")
        shards += _shards(plan.folder / "test" / name, test, plan)
    return shards


def _shards(
    stem: Path, configurations: Sequence[Configuration], plan: PreparePlan, r_max: float | None = None
) -> Iterator[Shard]:
    drop_last = len(configurations) % 2 == 1
    for index, part in enumerate(_parts(configurations, plan.num_process)):
        path = stem.with_name(f"{stem.name}_{index}.h5")
        yield Shard(path=path, configurations=part, drop_last=drop_last, r_max=r_max)


def _parts(items: Sequence[Item], count: int) -> Iterator[Sequence[Item]]:
    """At most ``count`` parts in order, of sizes as ``numpy.array_split`` makes them, none of them empty."""
    size, larger = divmod(len(items), count)
    start = 0
    for index in range(min(count, len(items))):
        end = start + size + (index < larger)
        yield items[start:end]
        start = end


def require_no_leftovers(shards: Iterable[Shard]) -> None:
    """Refuse folders with HDF5 files that would stay: training reads every file of a folder."""
    paths = {shard.path for shard in shards}
    for folder in sorted({path.parent for path in paths}):
        others = sorted(
            path for path in folder.glob("*") if path.suffix in HDF5_SUFFIXES and path not in paths
        )
        if others:
            raise InputError(
                f"'{folder}' holds {others[0].name} of other data, which training would read too: remove it, "
                "or give another --h5_prefix"
            )


def write_shards(shards: Sequence[Shard], num_process: int) -> int:
    """Write every file, whole or not at all, and return the number of edges that were counted.

    Raises:
        InputError: a structure without neighbour list, or a file that cannot be written.
        RunError: a process was killed.
    """
    try:
        if num_process == 1:
            return sum(map(_write_shard, shards))
        context = multiprocessing.get_context("spawn")  # a fork may copy threads in the middle of something
        with ProcessPoolExecutor(min(num_process, len(shards)), mp_context=context) as pool:
            return sum(pool.map(_write_shard, shards))
    except BrokenProcessPool:
        raise RunError(
            "a process of mace_prepare_data was killed, perhaps for want of memory: give a smaller "
            "--num_process"
        ) from None


def _write_shard(shard: Shard) -> int:
    """Write one file; the number of edges, 0 where they are not asked for."""
    edges = 0 if shard.r_max is None else sum(_count_edges(c, shard.r_max) for c in shard.configurations)

    def write(path: str) -> None:
        with h5py.File(path, "w") as file:
            file.attrs["drop_last"] = shard.drop_last
            save_configurations_as_HDF5(shard.configurations, None, file)

    try:
        atomic_write(shard.path, lambda file: write(file.name))
    except OSError as error:
        raise InputError(f"'{shard.path}' cannot be written: {error.strerror or error}") from None
    return edges


def _count_edges(configuration: Configuration, r_max: float) -> int:
    try:
        edges, *_ = get_neighborhood(
            configuration.positions, r_max, pbc=configuration.pbc, cell=configuration.cell
        )
    except InputError as error:
        raise InputError(f"{configuration.origin}: {error}") from None
    return int(edges.shape[1])


@dataclass(frozen=True, kw_only=True)
class PreparedNumbers:
    """What ``statistics.json`` says, but for the neighbours; units as there."""

    atomic_energies: dict[int, float]
    mean: float
    std: float
    atomic_numbers: list[int]


def measure_labels(data: HeadData, plan: PreparePlan) -> PreparedNumbers:
    """E0s and scale as a training run measures them: every configuration counts, in float64.

    Raises:
        InputError: they cannot be had from these data.
    """
    table = element_table([data])
    energies = energies_of(data, table)
    return PreparedNumbers(
        atomic_energies=energies,
        mean=mean_of(data, energies, plan.scaling),
        std=scale_of(data, energies, plan.scaling),
        atomic_numbers=[int(z) for z in table.zs],
    )


def write_statistics(numbers: PreparedNumbers, edges: int, data: HeadData, plan: PreparePlan) -> None:
    """Write ``statistics.json``: upstream's keys and texts, and how the scale was measured.

    Raises:
        InputError: no atom has a neighbour, or the file cannot be written.
    """
    atoms = sum(len(configuration.atomic_numbers) for configuration in data.train)
    content = {
        "atomic_energies": str(numbers.atomic_energies),
        "avg_num_neighbors": checked_average(edges / atoms, plan.r_max),
        "mean": numbers.mean,
        "std": numbers.std,
        "atomic_numbers": str(numbers.atomic_numbers),
        "r_max": plan.r_max,
        "scaling": plan.scaling,
    }
    path = plan.folder / "statistics.json"
    logging.info(f"Mean: {numbers.mean}, scale: {numbers.std}")
    try:
        atomic_write(path, lambda file: file.write(json.dumps(content).encode()))
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror or error}") from None
