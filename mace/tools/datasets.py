"""From files to the configurations of every head: reading, splitting, checking, counting."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from mace.arguments.plans import HeadPlan, TrainPlan
from mace.data import Configuration, random_train_valid_split
from mace.data.readers import LabelledFile, count_force_components, count_labels, describe_labels
from mace.data.splits import group_by_type, write_indices
from mace.data.stored import StoredConfigurations, outlines, select
from mace.exceptions import InputError
from mace.tools.data_checks import (
    check_elements,
    check_given_elements,
    check_labels,
    check_sizes,
    check_training_set,
)
from mace.tools.data_files import read_file, read_test_folder
from mace.tools.distributed import Ranks


@dataclass(frozen=True, kw_only=True)
class HeadData:
    """The configurations of one head."""

    plan: HeadPlan
    train: Sequence[Configuration]
    valid: Sequence[Configuration]
    tests: dict[str, Sequence[Configuration]]  # "<config_type>_<head>", in order of first appearance
    isolated: Mapping[
        int, float
    ]  # energies of the IsolatedAtom entries of the training file, eV, by atomic number
    held_back: Sequence[int] = ()  # which of the training file's structures validate, where it was split

    @property
    def name(self) -> str:
        """Name of the head."""
        return self.plan.name

    @property
    def elements(self) -> tuple[int, ...]:
        """Atomic numbers of the training set, sorted; the other sets hold no more."""
        numbers = (configuration.atomic_numbers for configuration in outlines(self.train))
        return tuple(sorted({int(z) for of_one in numbers for z in of_one}))


@dataclass(frozen=True, kw_only=True)
class HeadFiles:
    """The files of one head, read and checked."""

    plan: HeadPlan
    train: LabelledFile
    valid: LabelledFile | None
    test: LabelledFile | None  # its groups by config type are the test sets
    test_folder: Mapping[str, LabelledFile]  # by name of the test set

    @property
    def tests(self) -> tuple[LabelledFile, ...]:
        """All test files."""
        return (*([] if self.test is None else [self.test]), *self.test_folder.values())

    @property
    def test_sets(self) -> dict[str, Sequence[Configuration]]:
        """The configurations of every test set."""
        sets = {} if self.test is None else group_by_type(self.test.configurations)
        twice = sorted(set(sets) & set(self.test_folder))
        if twice:
            raise InputError(
                f"test set '{twice[0]}' is in '{self.plan.test_file}' and in '{self.plan.test_dir}': leave "
                "one out"
            )
        return {**sets, **{name: file.configurations for name, file in self.test_folder.items()}}


def load_heads(plan: TrainPlan, ranks: Ranks) -> list[HeadData]:
    """Read, check and split the data of all heads.

    One rank of every host reads the files; rank 0 makes the random splits and tells the others.
    The log counts the labels of each kind per file and head, masked Fermi levels too.

    Raises:
        InputError: on all ranks alike, if a file cannot be read or used, or if the ranks have read different
        data.
    """
    logging.info("===========LOADING INPUT DATA===========")
    logging.info(f"Using heads: {list(plan.data.head_names)}")
    heads = [_load_head(head, plan, ranks) for head in plan.data.heads]
    check_sizes(sum(len(head.train) for head in heads), ranks.world_size)
    return heads


def _load_head(head: HeadPlan, plan: TrainPlan, ranks: Ranks) -> HeadData:
    logging.info(f"=============    Processing head {head.name}     ===========")
    files = ranks.once_a_host(lambda: _read_files(head, plan))
    _require_same_data(files, ranks)
    _log_file("Training set", files.train, plan)
    train, valid, held_back = _train_and_valid(files, plan, ranks)
    tests = files.test_sets
    _log_tests(files, tests, plan)
    sizes = ", ".join(f"{name}: {len(test)}" for name, test in tests.items())
    logging.info(f"Total number of configurations: train={len(train)}, valid={len(valid)}, tests=[{sizes}],")
    check_training_set(outlines(train), head, plan)
    if plan.model.has_potential:
        _log_fermi_levels({"train": train, "valid": valid, **tests}, head, plan)
    others = [outlines(valid), *(file.outlines for file in files.tests)]
    check_given_elements(chain(outlines(train), *others), head)
    check_elements(outlines(train), chain(*others), head)
    return HeadData(
        plan=head,
        train=train,
        valid=valid,
        tests=tests,
        isolated=files.train.atomic_energies,
        held_back=held_back,
    )


def _read_files(head: HeadPlan, plan: TrainPlan) -> HeadFiles:
    train = read_file(head.train_file, head, training=True)
    files = HeadFiles(
        plan=head,
        train=train,
        valid=None if head.valid_file is None else read_file(head.valid_file, head),
        test=None if head.test_file is None else read_file(head.test_file, head),
        test_folder={}
        if head.test_dir is None
        else read_test_folder(head.test_dir, head, sharded=plan.data.multi_processed_test),
    )
    if not train.configurations:
        raise InputError(
            f"training file '{head.train_file}' holds IsolatedAtom entries only: nothing to train on"
        )
    check_labels(train, plan, training=True)
    for file in (files.valid, *files.tests):
        if file is not None:
            check_labels(file, plan, training=False)
    return files


def _require_same_data(files: HeadFiles, ranks: Ranks) -> None:
    """Ranks on several machines may see different files under one name."""
    if ranks.world_size == 1:
        return
    digests = ranks.gather(_digest([files.train, files.valid, *files.tests]))
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            raise InputError(
                f"process {rank} has read other data of head {files.plan.name} than process 0: give all of "
                "them the same files"
            )


def _digest(files: Sequence[LabelledFile | None]) -> str:
    digest = hashlib.blake2b()
    for file in files:
        if file is not None and isinstance(file.configurations, StoredConfigurations):
            digest.update(file.configurations.digest().encode())
            continue
        for configuration in file.configurations if file else ():
            for name, value in vars(configuration).items():
                if name != "file":
                    digest.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        digest.update(repr(sorted(file.atomic_energies.items()) if file else None).encode())
    return digest.hexdigest()


def _train_and_valid(
    files: HeadFiles, plan: TrainPlan, ranks: Ranks
) -> tuple[Sequence[Configuration], Sequence[Configuration], Sequence[int]]:
    """The configurations to train on and those to validate with: from two files, or split at random.

    Third, the indices of those that were split off.
    """
    configurations = files.train.configurations
    if files.valid is not None:
        _log_file("Validation set", files.valid, plan)
        return configurations, files.valid.configurations, ()
    train, valid = ranks.from_main(lambda: split_indices(len(configurations), files.plan, plan))
    held_back = select(configurations, valid)
    logging.info(
        f"Validaton set contains {len(held_back)} configurations [{count_labels(held_back)['energy']} "
        "energy, "
        f"{count_force_components(held_back)} forces]"
    )
    return select(configurations, train), held_back, valid


def split_indices(num_configurations: int, head: HeadPlan, plan: TrainPlan) -> tuple[list[int], list[int]]:
    """Indices to train on and to validate with; with several heads each has its own file of indices.

    Raises InputError where none is left to validate with.
    """
    return random_train_valid_split(
        range(num_configurations),
        head.valid_fraction,
        plan.seed,
        plan.paths.work_dir,
        indices_file=_indices_file(head, plan),
        write=False,
    )


def _indices_file(head: HeadPlan, plan: TrainPlan) -> Path:
    return plan.paths.valid_indices_file(plan.data.indices_name(head))


def record_splits(heads: Sequence[HeadData], plan: TrainPlan, ranks: Ranks) -> None:
    """Let rank 0 write the indices of the validation sets that were split off.

    Called when everything else has been checked: a run that is refused leaves the file of an earlier one.
    Raises InputError on all ranks if that cannot be done.
    """
    ranks.from_main(lambda: _write_splits(heads, plan))


def _write_splits(heads: Sequence[HeadData], plan: TrainPlan) -> None:
    for head in heads:
        write_held_back(_indices_file(head.plan, plan), head.held_back)


def write_held_back(path: Path, indices: Sequence[int]) -> None:
    """Write which structures of a training file validate. Raises InputError if that cannot be done."""
    try:
        write_indices(path, indices)
    except OSError as error:
        raise InputError(
            f"the indices of the validation set cannot be written to '{error.filename}': {error.strerror}"
        ) from None


def _log_fermi_levels(sets: Mapping[str, Sequence[Configuration]], head: HeadPlan, plan: TrainPlan) -> None:
    """Count the Fermi levels of every set, and the frames without, which are masked."""
    known = {
        name: count_labels(configurations, plan.data.empty_potential_value)["potential"]
        for name, configurations in sets.items()
    }
    counts = [f"{name}: {count} ({len(sets[name]) - count} masked)" for name, count in known.items()]
    logging.info(f"Fermi levels for head {head.name}: {', '.join(counts)}")
    if not known["valid"]:
        logging.warning(
            f"No validation configuration of head {head.name} has a Fermi level: its error is not available"
        )


def _log_file(what: str, file: LabelledFile, plan: TrainPlan) -> None:
    logging.info(f"{what} [{_counts(file.configurations)}] loaded from '{file.path}'")
    _log_labels(file, plan)


def _log_tests(files: HeadFiles, tests: Mapping[str, Sequence[Configuration]], plan: TrainPlan) -> None:
    for file in files.tests:
        logging.info(f"Test set ({len(file.configurations)} configs) loaded from '{file.path}':")
    for name, configurations in tests.items():
        logging.info(f"{name}: {_counts(configurations)}")
    for file in files.tests:
        _log_labels(file, plan)


def _log_labels(file: LabelledFile, plan: TrainPlan) -> None:
    found = describe_labels(file.configurations, plan.data.empty_potential_value)
    logging.info(f"Labels in '{file.path}' for head {file.outlines[0].head}: {found}")


def _counts(configurations: Sequence[Configuration]) -> str:
    energies = count_labels(configurations)["energy"]
    return (
        f"{len(configurations)} configs, {energies} energy, {count_force_components(configurations)} forces"
    )
