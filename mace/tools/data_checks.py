"""What can be wrong with the data of a run: one clear line each, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import ase.data

from mace.arguments.plans import HeadPlan, TrainPlan
from mace.data import Configuration
from mace.data.labels import CHARGES, DIPOLE, ELECTRON, LABELS_BY_NAME, POTENTIAL, Label
from mace.data.readers import LabelledFile
from mace.exceptions import InputError

NAMED_FRAMES = 5  # as many frames are named in a message; of more only the number is told


def contributes(
    configuration: Configuration, label: Label, empty_potential_value: float | None = None
) -> bool:
    """Whether a configuration has a label to learn from: it is there, and its weights are not zero."""
    term_weight = 1.0 if label.weight is None else getattr(configuration, label.weight)
    return configuration.weight * term_weight > 0.0 and configuration.has(label, empty_potential_value)


def check_labels(file: LabelledFile, plan: TrainPlan, *, training: bool) -> None:
    """Refuse a file without any label of a quantity in the loss, or with frames that the model can't take.

    Those lack the number of electrons or, for dipole models, the dipole. All frames have charges, or none
    does, which makes them zero. A validation or test file without any Fermi level can be used: its error is
    not available then.
    """
    for check in label_checks(file, plan, training=training):
        check()


def label_checks(file: LabelledFile, plan: TrainPlan, *, training: bool) -> list[Callable[[], None]]:
    """The checks of :func:`check_labels`, each of which raises InputError for one thing that is missing."""
    required = plan.loss.required_labels(stage_two=plan.stages is not None)
    names = [name for name in required if training or name != POTENTIAL.name]
    empty = plan.data.empty_potential_value
    checks: list[Callable[[], None]] = [partial(file.require, [name], empty) for name in names]
    if plan.model.kind.has_dipole:
        # It has no weight by which a frame could be left out.
        checks.append(partial(file.require_in_all, DIPOLE.name))
        if any(configuration.has(CHARGES) for configuration in file.outlines):
            checks.append(partial(file.require_in_all, CHARGES.name))
    if plan.model.needs_electron:
        checks.append(partial(_require_electrons, file, plan.model.model))
    return checks


def _require_electrons(file: LabelledFile, model: str) -> None:
    file.require([ELECTRON.name])
    without = [configuration for configuration in file.outlines if not configuration.has(ELECTRON)]
    if without:
        place, flag = file.sought(ELECTRON)
        raise InputError(
            f"{_frames(without, file.path)} {'has' if len(without) == 1 else 'have'} no electron "
            f"number (key {place}, {flag}): {model} needs one for every frame"
        )


def _frames(configurations: Sequence[Configuration], path: str) -> str:
    """The frames of a file by number: "frame 3 of 'a.xyz'", "12 frames (0, 1, 2, 3, 4, ...) of 'a.xyz'".

    Where ``path`` is a folder, the number of them, and the place of the first.
    """
    first = configurations[0]
    if first.file != path:
        if len(configurations) == 1:
            return first.origin
        return f"{len(configurations)} frames of '{path}' ({first.origin}, ...; the first is 0)"
    numbers = ", ".join(str(configuration.frame) for configuration in configurations[:NAMED_FRAMES])
    if len(configurations) > NAMED_FRAMES:
        return f"{len(configurations)} frames ({numbers}, ...; the first is 0) of '{path}'"
    return f"frame{'s' if len(configurations) > 1 else ''} {numbers} (the first is 0) of '{path}'"


def check_training_set(training: Sequence[Configuration], head: HeadPlan, plan: TrainPlan) -> None:
    """Refuse the training set of a head that lacks what the loss compares.

    The file had some, so they all have weight zero or were split off for validation.
    """
    for name in plan.loss.required_labels(stage_two=plan.stages is not None):
        label = LABELS_BY_NAME[name]
        if not any(
            contributes(configuration, label, plan.data.empty_potential_value) for configuration in training
        ):
            raise InputError(
                f"no training configuration of head {head.name} has a label of non-zero weight for {name} "
                "(key "
                f"'{getattr(head.keys, name)}' in '{head.train_file}'): all of them have weight zero or were "
                "split off for validation"
            )


def check_elements(
    training: Iterable[Configuration], others: Iterable[Configuration], head: HeadPlan
) -> None:
    """Refuse validation and test configurations with elements that the training set of their head lacks."""
    known = {int(z) for configuration in training for z in configuration.atomic_numbers}
    for configuration in others:
        unknown = _other_elements(configuration, known)
        if unknown:
            raise InputError(
                f"{configuration.origin} is for validation or test and holds {unknown}, which no training "
                "configuration of head "
                f"{head.name} does: add some to '{head.train_file}', or take the frame out"
            )


def check_given_elements(configurations: Iterable[Configuration], head: HeadPlan) -> None:
    """Refuse configurations with elements that ``--atomic_numbers``, where it is given, lacks."""
    if head.atomic_numbers is None:
        return
    for configuration in configurations:
        unknown = _other_elements(configuration, set(head.atomic_numbers))
        if unknown:
            raise InputError(
                f"{configuration.origin} holds {unknown}, which --atomic_numbers={list(head.atomic_numbers)} "
                f"(head {head.name}) lacks: add it to the list, or leave out --atomic_numbers"
            )


def _other_elements(configuration: Configuration, known: set[int]) -> str:
    """The elements of a configuration that are not known: "Cu (29), Pt (78)", or nothing."""
    unknown = sorted({int(z) for z in configuration.atomic_numbers} - known)
    return ", ".join(f"{ase.data.chemical_symbols[z]} ({z})" for z in unknown)


def check_sizes(num_training: int, num_processes: int) -> None:
    """Refuse a training set that leaves a process without work."""
    if num_training < num_processes:
        raise InputError(
            f"the training set has {num_training} configuration{'' if num_training == 1 else 's'}, too few "
            f"for {num_processes} "
            "processes: start as many processes as there are configurations at most"
        )
