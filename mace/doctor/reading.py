"""The files of a head, each read for itself, so that one that cannot be used does not hide the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from mace.arguments.plans import HeadPlan, TrainPlan
from mace.data import Configuration
from mace.data.readers import LabelledFile
from mace.data.stored import outlines, select
from mace.doctor.findings import ADVICE_CURE, Finding, error, warning
from mace.exceptions import InputError
from mace.tools.data_checks import check_elements, check_given_elements, check_training_set, label_checks
from mace.tools.data_files import read_file, read_test_folder
from mace.tools.datasets import HeadData, split_indices
from mace.tools.graphs import element_table
from mace.tools.statistics import energies_of

T = TypeVar("T")
_CURES = {
    "data-unreadable": "repair the file, or give another one",
    "data-labels": "give the key under which the file has them (--energy_key, --forces_key ...), or add them",
    "data-split": "give a --valid_file or a larger --valid_fraction",
    "data-weights": "look at config_weight, --config_type_weights and --valid_fraction",
    "data-elements": "add training frames with the element, or take the frames out",
    "data-e0s": "give --E0s for every element, or IsolatedAtom frames",
}


@dataclass
class HeadReading:
    """What could be read of a head; what could not is None or empty, and a finding says why."""

    plan: HeadPlan
    files: dict[str, LabelledFile] = field(default_factory=dict)  # "training", "validation", "test ..."
    train: Sequence[Configuration] = ()
    valid: Sequence[Configuration] = ()
    findings: list[Finding] = field(default_factory=list)

    @property
    def tests(self) -> dict[str, Sequence[Configuration]]:
        """The configurations of the test files, by the name of the file's part in the run."""
        return {n: file.configurations for n, file in self.files.items() if n.startswith("test")}

    def attempt(self, code: str, action: Callable[[], T]) -> T | None:
        """Run an action; its refusal becomes a finding with that code."""
        try:
            return action()
        except InputError as refusal:
            self.findings.append(error(code, str(refusal), _CURES[code]))
            return None


@contextmanager
def advice_kept(findings: list[Finding]) -> Iterator[None]:
    """What is logged as a warning meanwhile becomes a finding."""

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            findings.append(warning("data-advice", record.getMessage(), ADVICE_CURE))

    logger, keeper = logging.getLogger(), Keeper(logging.WARNING)
    logger.addHandler(keeper)
    try:
        yield
    finally:
        logger.removeHandler(keeper)


def read_head(head: HeadPlan, plan: TrainPlan, e0s_known: bool = False) -> HeadReading:
    """Read, split and check the files of a head as a run does, and go on after what a run refuses.

    ``e0s_known``: the data are for a model that has its E0s, so that none need be given.
    """
    reading = HeadReading(plan=head)
    with advice_kept(reading.findings):
        _read_files(reading, plan)
        _split(reading, plan)
        if reading.train:
            _check_sets(reading, plan)
            if plan.model.kind.has_energy and not (e0s_known and head.E0s is None):
                _check_energies(reading)
    return reading


def _read_files(reading: HeadReading, plan: TrainPlan) -> None:
    head = reading.plan
    named = {"training": head.train_file, "validation": head.valid_file, "test": head.test_file}
    for what, path in named.items():
        if path is not None:
            is_training = what == "training"
            _keep(reading, what, lambda p=path, t=is_training: read_file(p, head, training=t))  # type: ignore[misc]
    folder = head.test_dir
    if folder is not None:
        sharded = plan.data.multi_processed_test
        tests = reading.attempt("data-unreadable", lambda: read_test_folder(folder, head, sharded=sharded))
        reading.files |= {f"test {name}": file for name, file in (tests or {}).items()}
    for what, file in reading.files.items():
        for check in label_checks(file, plan, training=what == "training"):
            reading.attempt("data-labels", check)


def _keep(reading: HeadReading, what: str, read: Callable[[], LabelledFile]) -> None:
    file = reading.attempt("data-unreadable", read)
    if file is not None:
        reading.files[what] = file


def _split(reading: HeadReading, plan: TrainPlan) -> None:
    """Training and validation set: from two files, or as the run will split one."""
    if "training" in reading.files:
        reading.train = reading.files["training"].configurations
        if not reading.train:
            text = f"'{reading.plan.train_file}' holds IsolatedAtom entries only: nothing to train on"
            reading.findings.append(error("data-unreadable", text, _CURES["data-unreadable"]))
    if reading.plan.valid_file is not None:
        if "validation" in reading.files:
            reading.valid = reading.files["validation"].configurations
    elif reading.train:
        size = len(reading.train)
        parts = reading.attempt("data-split", lambda: split_indices(size, reading.plan, plan))
        if parts is not None:
            reading.train, reading.valid = (select(reading.train, part) for part in parts)


def _check_sets(reading: HeadReading, plan: TrainPlan) -> None:
    head, train = reading.plan, outlines(reading.train)
    reading.attempt("data-weights", lambda: check_training_set(train, head, plan))
    others = {"validation": outlines(reading.valid)}
    others |= {name: outlines(test) for name, test in reading.tests.items()}
    everything = chain(train, *others.values())
    reading.attempt("data-elements", lambda: check_given_elements(everything, head))
    for other in others.values():
        reading.attempt("data-elements", lambda other=other: check_elements(train, other, head))  # type: ignore[misc]


def _check_energies(reading: HeadReading) -> None:
    isolated = reading.files["training"].atomic_energies
    data = HeadData(plan=reading.plan, train=reading.train, valid=reading.valid, tests={}, isolated=isolated)
    reading.attempt("data-e0s", lambda: energies_of(data, element_table([data])))
