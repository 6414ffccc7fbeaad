"""What the data of a run are good for: labels, frames, and how they fall into steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import ase
import numpy as np

from mace.arguments.plans import TrainPlan
from mace.data.labels import ELECTRON, POTENTIAL
from mace.data.readers import count_labels, describe_labels, read_frames
from mace.doctor.findings import Finding, error, listed, note, ok, warning
from mace.doctor.frames import TOO_CLOSE, FrameFacts, facts_of
from mace.doctor.reading import HeadReading, read_head
from mace.exceptions import InputError
from mace.tools.data_checks import check_sizes

_LEFT_OUT = 0.1  # of the training set: more of it is worth a warning


def check_labels(reading: HeadReading, plan: TrainPlan) -> Iterator[Finding]:
    """How many labels of each kind there are, and what the model makes of the Fermi levels."""
    for what, file in reading.files.items():
        found = describe_labels(file.configurations, plan.data.empty_potential_value)
        yield ok("labels", f"{what} file '{file.path}': {len(file.configurations)} frames, labels {found}")
    if not reading.train:
        return
    counts = count_labels(reading.train, plan.data.empty_potential_value)
    known, total = counts[POTENTIAL.name], len(reading.train)
    if not plan.model.has_potential:
        if known or counts[ELECTRON.name]:
            yield note(
                "fermi-unused",
                f"the training set has {counts[ELECTRON.name]} electron numbers and {known} Fermi levels, "
                f"which --model={plan.model.model} does not use",
                "--model=FermiMACE --loss=fermi_weighted learns them",
            )
        return
    if 0 < known < total:
        yield note(
            "fermi-masked",
            f"{total - known} of {total} training frames have no Fermi level: they do not count in that term",
            "nothing, if that is meant",
        )
    valid = count_labels(reading.valid, plan.data.empty_potential_value)[POTENTIAL.name]
    if reading.valid and not valid:
        yield warning(
            "fermi-none-valid",
            "no validation frame has a Fermi level: its error will not be available",
            "give validation frames that have one",
        )


def check_close_atoms(facts: dict[str, list[FrameFacts]]) -> Iterator[Finding]:
    """No atoms are on top of each other, and every cell can be used."""
    for what, frames in facts.items():
        close = [frame.origin for frame in frames if frame.close_pairs]
        if close:
            yield error(
                "atoms-close",
                f"{len(close)} {what} frames have atoms closer than {TOO_CLOSE} Angstrom: {listed(close)}",
                "take the frames out: their labels are wrong, or spoil the training",
            )
        unusable = [f"{frame.origin}: {frame.refusal}" for frame in frames if frame.refusal is not None]
        if unusable:
            yield error(
                "frame-unusable",
                f"{len(unusable)} {what} frames have no neighbour list: {listed(unusable, 1)}",
                "repair cell and pbc of the frames, or take them out",
            )


def check_zero_forces(facts: dict[str, list[FrameFacts]]) -> Iterator[Finding]:
    """Forces are not those of an optimiser that has set some to zero."""
    for what, frames in facts.items():
        marked = [frame for frame in frames if frame.atoms_without_force]
        if marked:
            atoms = sum(len(frame.atoms_without_force) for frame in marked)
            held = _held_by_constraints(marked)
            yield warning(
                "forces-zero",
                f"{atoms} atoms in {len(marked)} {what} frames have forces of exactly zero beside others "
                f"that have some ({listed([frame.origin for frame in marked])}); {held} of them are held by "
                "a constraint in the file",
                "label raw forces (get_forces(apply_constraint=False)), or give these frames "
                "config_forces_weight=0",
            )


def _held_by_constraints(frames: Sequence[FrameFacts]) -> int:
    """How many of the atoms a constraint of their file holds; HDF5 files keep no constraints."""
    held = 0
    for path in {frame.file for frame in frames if frame.file is not None}:
        try:
            stored = read_frames(path)
        except InputError:  # HDF5: what can be read there has been read
            continue
        for frame in frames:
            if frame.file == path and frame.frame is not None:
                held += len(_constrained(stored[frame.frame]) & set(frame.atoms_without_force))
    return held


def _constrained(atoms: ase.Atoms) -> set[int]:
    """Atoms that a constraint fixes; those that only tie distances name no indices."""
    fixing = [c for c in atoms.constraints if hasattr(c, "get_indices")]
    return {int(i) for c in fixing for i in np.atleast_1d(c.get_indices())}


def check_duplicates(facts: dict[str, list[FrameFacts]]) -> Iterator[Finding]:
    """Frames that are learned are not those that judge."""
    trained = {frame.digest: frame.origin for frame in facts["training"]}
    for what, frames in facts.items():
        if what == "training":
            continue
        twice = [f"{frame.origin} = {trained[frame.digest]}" for frame in frames if frame.digest in trained]
        if twice:
            yield warning(
                "frames-duplicate",
                f"{len(twice)} of {len(frames)} {what} frames are training frames too: {listed(twice)}; "
                "their errors say nothing",
                f"take them out of the {what} set",
            )


def check_steps(num_training: int, plan: TrainPlan, world_size: int) -> Iterator[Finding]:
    """The training set fills steps of all processes."""
    try:
        check_sizes(num_training, world_size)
    except InputError as refusal:
        yield error("ranks-many", str(refusal), f"start {num_training} processes at most")
        return
    batch_size, share = plan.data.batch_size, num_training // world_size
    if batch_size > share:
        yield warning(
            "batch-large",
            f"--batch_size={batch_size}, but {num_training} training frames on {world_size} process(es) are "
            f"{share} for each: the run takes that",
            f"give --batch_size={share}, or fewer processes",
        )
        batch_size = share
    steps, left_out = divmod(num_training, batch_size * world_size)
    text = (
        f"{steps} steps of {world_size} x {batch_size} frames an epoch, {left_out} of {num_training} left out"
    )
    if left_out > _LEFT_OUT * num_training:
        yield warning("frames-left-out", f"{text} (others each time)", "take a smaller --batch_size")
    else:
        yield ok("steps", text)


def examine_data(
    plan: TrainPlan, world_size: int, e0s_known: bool = False
) -> tuple[list[HeadReading], list[Finding]]:
    """Read the data of all heads; what was read, and all findings about it.

    ``e0s_known``: the data are for a model that has its E0s.
    """
    readings = [read_head(head, plan, e0s_known) for head in plan.data.heads]
    findings: list[Finding] = []
    for reading in readings:
        findings += [*reading.findings, *check_labels(reading, plan)]
        sets = {"training": reading.train, "validation": reading.valid, **reading.tests}
        facts = {what: facts_of(configurations) for what, configurations in sets.items()}
        for check in (check_close_atoms, check_zero_forces, check_duplicates):
            findings += check(facts)
    count = sum(len(reading.train) for reading in readings)
    if all(reading.train for reading in readings):
        findings += check_steps(count, plan, world_size)
    return readings, findings
