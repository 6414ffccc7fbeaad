"""A lesson for a model that was read: a batch of the data and the loss that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import nn

from mace.arguments.model_plan import MODEL_KINDS
from mace.arguments.plans import TrainPlan
from mace.calculators.inputs import ModelInputs, choose_head
from mace.data import AtomicData, Configuration
from mace.data.labels import LABELS_BY_NAME
from mace.doctor.findings import Finding, warning
from mace.doctor.model import Lesson, examine_model
from mace.doctor.reading import HeadReading
from mace.exceptions import InputError
from mace.tools.data_checks import contributes
from mace.tools.losses import build_loss, requested_outputs
from mace.tools.torch_geometric import Batch

_LARGEST = 8  # frames: which parameters get a gradient does not depend on more


def architecture_of(model: nn.Module) -> str | None:
    """The name of a model's architecture on the command line; None for a class that has none there."""
    if getattr(model, "potential_output", False):
        for option, name in (
            ("pred_uncertainty", "FermiMACE_uncertainty"),
            ("pred_evidential", "FermiMACE_evidential"),
            ("use_global_state", "FermiMACE_2"),
        ):
            if getattr(model, option, False):
                return name
        return "FermiMACE"
    name = type(model).__name__
    return name if name in MODEL_KINDS else None


def examine_with_data(
    model: nn.Module, plan: TrainPlan | None, readings: Sequence[HeadReading]
) -> list[Finding]:
    """Examine a model that was read from a file, with data where there are some that it can take."""
    if plan is None or not any(reading.train for reading in readings) or architecture_of(model) is None:
        return examine_model(model)
    try:
        return examine_model(model, lesson_of(model, plan, readings))
    except InputError as refusal:
        text = f"the model cannot take these data: {refusal}"
        return [
            *examine_model(model),
            warning("model-data", text, "give data or a model that fit each other"),
        ]


def lesson_of(model: nn.Module, plan: TrainPlan, readings: Sequence[HeadReading]) -> Lesson:
    """A batch of frames that have every label of the loss, as graphs for the model, and that loss.

    Raises InputError for data that the model cannot take.
    """
    inputs = ModelInputs.of(model)
    chosen = list(_fit_frames(plan, readings))[:_LARGEST]
    if not chosen:
        raise InputError(f"no training frame has every label of --loss={plan.loss.loss}")
    graphs = [
        AtomicData.from_config(
            replace(frame, head=choose_head(inputs.heads, frame.head, frame.origin)),
            z_table=inputs.z_table,
            cutoff=inputs.r_max,
            heads=inputs.heads,
            empty_potential_value=plan.data.empty_potential_value,
            dtype=inputs.dtype,
        )
        for frame in chosen
    ]
    place = next(model.parameters()).device
    return Lesson(
        loss_fn=build_loss(plan.loss).to(place),
        batch=Batch.from_data_list(graphs),
        output_args=requested_outputs(plan),
    )


def _fit_frames(plan: TrainPlan, readings: Sequence[HeadReading]) -> Iterator[Configuration]:
    labels = [LABELS_BY_NAME[name] for name in plan.loss.required_labels()]
    for reading in readings:
        for frame in reading.train:
            if all(contributes(frame, label, plan.data.empty_potential_value) for label in labels):
                yield frame
