"""The plan of ``mace_doctor``: the plan of the run to come, or why there is none, and what to look at."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path

from mace.arguments.doctor_flags import OWN
from mace.arguments.flags import check_values
from mace.arguments.model_plan import MODEL_KINDS
from mace.arguments.plans import TrainPlan
from mace.arguments.train_flags import DEFAULTS, TRAIN
from mace.exceptions import InputError

_KNOWN_MODELS = next(flag for group in TRAIN for flag in group.flags if flag.name == "--model")
_NO_FILE = "none"  # stands for the training data where there are none


@dataclass(frozen=True, kw_only=True)
class DoctorPlan:
    """Everything one call of ``mace_doctor`` looks at."""

    run: TrainPlan | None  # the run to come; None: it would be refused
    refusal: str | None  # why
    has_data: bool  # the run has training data
    other_data: tuple[str, ...]  # flags of data that are given without training data
    model_file: Path | None
    architecture_given: bool  # --model names an architecture
    device: str
    launcher: str | None
    enable_cueq: bool
    group_patience: int  # s
    model_bytes: float | None  # of the model to come, where it is known

    @classmethod
    def from_namespace(cls, args: Namespace) -> DoctorPlan:
        """Turn parsed arguments into a plan. Raises ``InputError`` for flags of its own out of range."""
        check_values(args, (OWN,))
        named = args.model in _architectures()
        file = args.model_file if named else args.model
        if not named and args.model_file is not None:
            raise InputError(
                f"--model={args.model!r} is no architecture, and --model_file={args.model_file!r} is given "
                "too: leave one out"
            )
        has_data = args.train_file is not None or args.heads is not None
        others = ("valid_file", "test_file", "test_dir")
        run, refusal = _plan_run(args, named, has_data)
        return cls(
            run=run,
            refusal=refusal,
            has_data=has_data,
            other_data=() if has_data else tuple(f"--{name}" for name in others if getattr(args, name)),
            model_file=None if file is None else Path(file),
            architecture_given=named and args.model != DEFAULTS["model"],
            device=args.device,
            launcher=args.launcher,
            enable_cueq=args.enable_cueq,
            group_patience=args.group_patience,
            model_bytes=None if args.model_megabytes is None else args.model_megabytes * 1e6,
        )


def _architectures() -> tuple[str, ...]:
    return _KNOWN_MODELS.choices or ()


def _plan_run(args: Namespace, named: bool, has_data: bool) -> tuple[TrainPlan | None, str | None]:
    changes = {} if named else {"model": _architecture_of(args.loss)}
    if not has_data:
        changes["train_file"] = _NO_FILE
    try:
        return TrainPlan.from_namespace(Namespace(**{**vars(args), **changes})), None
    except InputError as refusal:
        return None, str(refusal)


def _architecture_of(loss: str) -> str:
    """The first architecture that a loss trains: until the file of the model has been read."""
    return next((name for name, kind in MODEL_KINDS.items() if loss in kind.losses), DEFAULTS["model"])


def fitted(plan: TrainPlan, architecture: str) -> TrainPlan:
    """The plan with another architecture, and with a loss that trains all of it."""
    kind = MODEL_KINDS[architecture]
    loss = plan.loss if plan.loss.loss in kind.losses else replace(plan.loss, loss=kind.losses[0])
    model = replace(plan.model, model=architecture, compute_potential=kind.has_potential)
    return replace(plan, model=model, loss=loss)


def data_files(plan: TrainPlan) -> tuple[str, ...]:
    """Every file and folder that the run reads."""
    named = [
        file
        for head in plan.data.heads
        for file in (head.train_file, head.valid_file, head.test_file, head.test_dir)
        if file is not None
    ]
    return tuple(os.fspath(file) for file in dict.fromkeys(named))
