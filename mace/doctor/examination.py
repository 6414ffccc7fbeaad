"""The table of contents of an examination: what is looked at, and in which order."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import torch
from torch import nn

from mace.arguments.doctor_plan import DoctorPlan, data_files, fitted
from mace.arguments.plans import TrainPlan
from mace.doctor.data import examine_data
from mace.doctor.disk import examine_disk
from mace.doctor.findings import ADVICE_CURE, Finding, Severity, error, warning
from mace.doctor.launching import Start, examine_start
from mace.doctor.lesson import architecture_of, examine_with_data
from mace.doctor.machine import Machine, examine_machine
from mace.doctor.processes import Trial, examine_processes
from mace.doctor.reading import HeadReading
from mace.doctor.tensors import bytes_of
from mace.exceptions import InputError
from mace.tools.loading import load_from_json, load_model


def examine(plan: DoctorPlan) -> list[Finding] | None:
    """Everything but the installation; None in a process that only takes part, process 0 prints."""
    start = Start.found(os.environ, plan.launcher)
    machine = Machine.here(plan.device, start.launch)
    group = examine_processes(_trial(plan), start, machine.gpus)
    if not start.is_main:
        _complain(group, start)
        return None
    findings = [*examine_machine(machine), *examine_start(start), *group, *check_flags(plan)]
    model, found = _model_of(plan, machine)
    findings += found
    run = plan.run
    if run is not None and model is not None and (architecture := architecture_of(model)) is not None:
        run = fitted(run, architecture)
    readings: Sequence[HeadReading] = ()
    if run is not None and plan.has_data:
        only_the_file = model is not None and not plan.architecture_given
        readings, found = examine_data(run, start.world_size, e0s_known=only_the_file)
        findings += found
    if model is not None:
        findings += examine_with_data(model, run, readings)
    if run is not None:
        known = plan.model_bytes if model is None else float(bytes_of(model))
        findings += examine_disk(run, known)
    return findings


def _trial(plan: DoctorPlan) -> Trial:
    files = data_files(plan.run) if plan.run is not None and plan.has_data else ()
    return Trial(device=plan.device, launcher=plan.launcher, patience=plan.group_patience, files=files)


def _complain(group: Sequence[Finding], start: Start) -> None:
    """Say on stderr what only this process may know; its status stays 0, so that process 0 can report."""
    assert start.launch is not None
    for finding in group:
        if finding.severity is Severity.ERROR:
            print(f"rank {start.launch.rank}: {finding.code}: {finding.found}", file=sys.stderr, flush=True)


def check_flags(plan: DoctorPlan) -> list[Finding]:
    """What the run would say about its command line."""
    findings = []
    if plan.refusal is not None:
        findings.append(error("flags-refused", plan.refusal, "the run would not start: do as the line says"))
    for text, level in () if plan.run is None else plan.run.messages:
        if level >= logging.WARNING:
            findings.append(warning("flags-advice", text, ADVICE_CURE))
    if plan.other_data:
        text = f"{', '.join(plan.other_data)} without --train_file: not read"
        findings.append(warning("data-no-training", text, "give --train_file too"))
    return findings


def _model_of(plan: DoctorPlan, machine: Machine) -> tuple[nn.Module | None, list[Finding]]:
    """The model to look at; a TorchScript archive as the model that it was made of, where it says so."""
    if plan.model_file is None:
        return None, []
    place = torch.device("cuda" if plan.device == "cuda" and machine.gpus else "cpu")
    try:
        model = load_model(plan.model_file, map_location=place)
    except InputError as refusal:
        cure = "give a model file, or an architecture that mace_run_train --help names"
        return None, [error("model-unreadable", str(refusal), cure)]
    if isinstance(model, torch.jit.ScriptModule):
        try:
            model = load_from_json(plan.model_file, map_location=place)
        except InputError:  # it can be looked at as it is, and the examination says what it is
            return model, []
    return model, _other_architecture(plan, plan.run, model)


def _other_architecture(plan: DoctorPlan, run: TrainPlan | None, model: nn.Module) -> list[Finding]:
    found = architecture_of(model)
    if run is None or not plan.architecture_given or found in (None, run.model.model):
        return []
    text = f"--model={run.model.model}, but '{plan.model_file}' is a {found}"
    return [warning("model-other", text, "what follows is about the file")]
