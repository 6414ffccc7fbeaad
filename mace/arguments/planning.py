"""From arguments to the plan of a training run: every check that needs no data happens here."""

from __future__ import annotations

import importlib.util
import json
import logging
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mace.arguments.data_plan import DataPlan, HeadPlan
from mace.arguments.flags import check_values
from mace.arguments.heads import plan_heads
from mace.arguments.model_plan import MODEL_KINDS, ModelPlan
from mace.arguments.model_planning import plan_model
from mace.arguments.parsing import weights_by_name
from mace.arguments.path_plan import PathPlan
from mace.arguments.reconcile import Message, check_args
from mace.arguments.statistics_file import with_statistics
from mace.arguments.train_flags import DEFAULTS, TRAIN
from mace.arguments.training_plan import (
    LoopPlan,
    LossPlan,
    LossWeights,
    OptimPlan,
    ReportPlan,
    StagePlan,
    StepPlan,
    WandbPlan,
)
from mace.exceptions import InputError

_LONGEST_NAME = 180  # bytes; most file systems allow 255 for a name, suffixes and temporary names included
_SCHEDULERS = ("ReduceLROnPlateau", "ExponentialLR")
# Flags that change nothing beside certain others: the condition, and how it is said.
_IDLE_FLAGS: tuple[tuple[tuple[str, ...], Callable[[Namespace], bool], str], ...] = (
    (("ema_decay",), lambda args: not args.ema, "--ema is not given"),
    (("swa_lr",), lambda args: not args.swa, "there is no stage two"),
    (
        ("lr_factor", "scheduler_patience"),
        lambda args: args.scheduler != "ReduceLROnPlateau",
        "it belongs to --scheduler=ReduceLROnPlateau",
    ),
    (
        ("lr_scheduler_gamma",),
        lambda args: args.scheduler != "ExponentialLR",
        "it belongs to --scheduler=ExponentialLR",
    ),
    (
        ("beta1_schedulefree", "beta2_schedulefree"),
        lambda args: args.optimizer != "schedulefree",
        "it belongs to --optimizer=schedulefree",
    ),
    (
        ("huber_delta",),
        lambda args: args.loss not in ("huber", "universal"),
        "it belongs to --loss=huber and --loss=universal",
    ),
    (("correlation",), lambda args: MODEL_KINDS[args.model].two_body, "BOTNet has no products"),
    (("scaling",), lambda args: not MODEL_KINDS[args.model].has_scale, "the model has no scale"),
    (
        ("wandb_dir", "wandb_project", "wandb_entity", "wandb_name", "wandb_log_hypers"),
        lambda args: not args.wandb,
        "--wandb is not given",
    ),
)


def plan_training(args: Namespace) -> dict[str, Any]:
    """Make the fields of a ``TrainPlan``; see ``TrainPlan.from_namespace``."""
    check_values(args, TRAIN)
    args, messages = check_args(args)
    if args.distributed and args.launcher == "none":
        raise InputError("--distributed contradicts --launcher=none: leave out one of them")
    paths = _plan_paths(args)
    data = _plan_data(args, messages)
    model = plan_model(args, messages)
    _require_one_head(model, data)
    _warn_of_idle_flags(args, messages)
    _warn_of_idle_settings(args, data, messages)
    _refuse_scale_without_scaling(args, data)
    loss = _plan_loss(args, model, messages)
    return dict(
        name=args.name,
        seed=args.seed,
        device=args.device,
        default_dtype=args.default_dtype,
        distributed=args.distributed,
        launcher=args.launcher,
        dist_timeout=args.dist_timeout,
        dist_debug=args.dist_debug,
        log_all_ranks=args.log_all_ranks or args.dist_debug,
        log_level=_log_level(args.log_level),
        messages=tuple(messages),
        paths=paths,
        data=data,
        model=model,
        loss=loss,
        optim=_plan_optim(args),
        stages=StagePlan(start=args.start_swa, lr=args.swa_lr) if args.swa else None,
        steps=_plan_steps(args),
        training=_plan_loop(args),
        report=_plan_report(args, data),
        wandb=_plan_wandb(args) if args.wandb else None,
    )


def _plan_paths(args: Namespace) -> PathPlan:
    if not args.name.strip() or "/" in args.name or args.name.startswith("."):
        raise InputError(
            f"--name={args.name!r} names files: give a text without '/' that does not begin with '.'"
        )
    if len(args.name.encode()) > _LONGEST_NAME:
        raise InputError(
            f"--name={args.name[:20]}... has {len(args.name.encode())} bytes, and file names that begin with "
            f"it would be too long: give at most {_LONGEST_NAME}"
        )
    return PathPlan(
        name=args.name,
        seed=args.seed,
        work_dir=Path(args.work_dir),
        log_dir=Path(args.log_dir),
        model_dir=Path(args.model_dir),
        checkpoints_dir=Path(args.checkpoints_dir),
        results_dir=Path(args.results_dir),
    )


def _log_level(text: str) -> int:
    level = int(text) if text.isdigit() else logging.getLevelName(text.upper())
    if not isinstance(level, int):
        raise InputError(f"--log_level={text!r} is no level: give DEBUG, INFO, WARNING, ERROR or a number")
    return level


def _plan_data(args: Namespace, messages: list[Message]) -> DataPlan:
    heads = [
        with_statistics(head, _shown("statistics_file", head, args), args, messages)
        for head in plan_heads(args)
    ]
    return DataPlan(
        heads=tuple(heads),
        seed=args.seed,
        r_max=args.r_max,
        batch_size=args.batch_size,
        valid_batch_size=args.valid_batch_size,
        num_workers=args.num_workers,
        pin_memory=args.pin_memory,
        multi_processed_test=args.multi_processed_test,
        empty_potential_value=args.empty_potential_value,
    )


def _require_one_head(model: ModelPlan, data: DataPlan) -> None:
    if len(data.heads) > 1 and (model.kind.two_body or model.kind.has_dipole):
        raise InputError(
            f"--model={model.model} has one head, and --heads names {len(data.heads)}: give one, or use "
            "--model=MACE"
        )


def _warn_of_idle_flags(args: Namespace, messages: list[Message]) -> None:
    for attributes, condition, reason in _IDLE_FLAGS:
        given = [name for name in attributes if getattr(args, name) != DEFAULTS[name]]
        if condition(args):
            messages += [(f"--{name} has no effect: {reason}", logging.WARNING) for name in given]


def _warn_of_idle_settings(args: Namespace, data: DataPlan, messages: list[Message]) -> None:
    """Say which settings of heads, given as flags or inside a head, change nothing."""
    for head in data.heads:
        idle = {}
        if head.compute_avg_num_neighbors and head.avg_num_neighbors != DEFAULTS["avg_num_neighbors"]:
            idle["avg_num_neighbors"] = "it is measured unless --compute_avg_num_neighbors=False is given"
        if head.mean is not None and not MODEL_KINDS[args.model].has_shift:
            idle["mean"] = f"--model={args.model} has no shift, --model=ScaleShiftMACE has one"
        if head.std is not None and not MODEL_KINDS[args.model].has_scale:
            idle["std"] = f"--model={args.model} has no scale"
        if head.valid_file is not None and head.valid_fraction != DEFAULTS["valid_fraction"]:
            idle["valid_fraction"] = "the validation set comes from a file"
        if head.is_prepared:
            idle.update(_chosen_when_prepared(head))
        if head.keys.head != DEFAULTS["head_key"]:
            idle["head_key"] = "every frame belongs to the head whose file it is in"
        for setting, reason in idle.items():
            text = f"{_shown(setting, head, args)} has no effect: {reason}"
            messages.append((text, logging.WARNING))


def _chosen_when_prepared(head: HeadPlan) -> dict[str, str]:
    """Settings that HDF5 data do not ask for: the data were read with those of mace_prepare_data."""
    given = {f"{name}_key": key for name, key in asdict(head.keys).items() if name != "head"}
    chosen = [setting for setting, key in given.items() if key != DEFAULTS[setting]]
    if head.config_type_weights != weights_by_name(DEFAULTS["config_type_weights"], "config_type_weights"):
        chosen.append("config_type_weights")
    return dict.fromkeys(chosen, "it was chosen when the HDF5 data were prepared")


def _shown(setting: str, head: HeadPlan, args: Namespace) -> str:
    """A setting of a head as the user gave it: as a flag, or inside the head."""
    return f"--{setting}" if args.heads is None else f"{setting} of head {head.name!r}"


def _refuse_scale_without_scaling(args: Namespace, data: DataPlan) -> None:
    for head in data.heads:
        if args.scaling == "no_scaling" and head.std is not None:
            shown = _shown("std", head, args)
            raise InputError(
                f"{shown} contradicts --scaling=no_scaling, which is a scale of 1: leave one out"
            )


def _plan_loss(args: Namespace, model: ModelPlan, messages: list[Message]) -> LossPlan:
    plan = LossPlan(
        loss=args.loss,
        weights=_loss_weights(args, ""),
        stage_two_weights=_loss_weights(args, "swa_"),
        huber_delta=args.huber_delta,
    )
    _require_labels_of_model(plan, model)
    if not args.compute_forces and "forces" in plan.labels:
        raise InputError(f"--compute_forces=False contradicts --loss={args.loss}, which compares forces")
    if not plan.required_labels():
        raise InputError(f"--loss={args.loss} has no term: every weight of {', '.join(plan.labels)} is 0")
    _require_all_trained(plan, model)
    if model.has_potential and "potential" not in plan.required_labels(stage_two=args.swa):
        text = f"--potential_weight=0: the readout of the Fermi level of {args.model} stays as it begins"
        messages.append((text, logging.WARNING))
    _warn_of_idle_weights(args, plan, messages)
    return plan


def _require_labels_of_model(plan: LossPlan, model: ModelPlan) -> None:
    """Refuse a loss that compares what the model does not give."""
    lacking = {
        "potential": (model.has_potential, "no Fermi level: use --model=FermiMACE"),
        "dipole": (model.kind.has_dipole, "no dipole: use --model=EnergyDipolesMACE or AtomicDipolesMACE"),
        "energy": (model.kind.has_energy, "no energy: use --loss=dipole"),
        "forces": (model.kind.has_energy, "no forces: use --loss=dipole"),
    }
    for label, (given, text) in lacking.items():
        if label in plan.labels and not given:
            raise InputError(f"--loss={plan.loss} contradicts --model={model.model}, which has {text}")


def _require_all_trained(plan: LossPlan, model: ModelPlan) -> None:
    """Refuse a loss that does not depend on some part of the model, or needs what another one gives."""
    losses = model.kind.losses
    if plan.loss in losses:
        return
    if model.has_potential and "potential" not in plan.labels:
        raise InputError(
            f"--loss={plan.loss} does not train the Fermi level of --model={model.model}: use "
            f"--loss={losses[0]}, or --model=MACE"
        )
    raise InputError(
        f"--loss={plan.loss} does not fit --model={model.model}: use --loss={' or '.join(losses)}"
    )


def _loss_weights(args: Namespace, prefix: str) -> LossWeights:
    """Weights of a stage; the loss ``ef`` is defined with weights 1 in stage one."""
    names = ("energy", "forces", "potential", "stress", "virials", "dipole")
    weights = {name: getattr(args, f"{prefix}{name}_weight") for name in names}
    if args.loss == "ef" and not prefix:
        for name in ("energy", "forces"):
            if weights[name] != DEFAULTS[f"{name}_weight"]:
                raise InputError(
                    f"--{name}_weight contradicts --loss=ef, whose weights are 1: use --loss=weighted"
                )
            weights[name] = 1.0
    return LossWeights(**weights)


def _warn_of_idle_weights(args: Namespace, plan: LossPlan, messages: list[Message]) -> None:
    for label in ("potential", "stress", "virials", "dipole"):
        attribute = f"{label}_weight"
        if label not in plan.labels and getattr(args, attribute) != DEFAULTS[attribute]:
            messages.append((f"--{attribute} has no effect: --loss={args.loss} lacks it", logging.WARNING))


def _plan_optim(args: Namespace) -> OptimPlan:
    if args.scheduler not in _SCHEDULERS:
        raise InputError(f"Unknown scheduler: '{args.scheduler}' (known are {' and '.join(_SCHEDULERS)})")
    if args.optimizer == "schedulefree":
        _need_package("schedulefree", "--optimizer=schedulefree")
    return OptimPlan(
        optimizer=args.optimizer,
        lr=args.lr,
        beta=args.beta,
        beta1_schedulefree=args.beta1_schedulefree,
        beta2_schedulefree=args.beta2_schedulefree,
        weight_decay=args.weight_decay,
        amsgrad=args.amsgrad,
        scheduler=args.scheduler,
        lr_factor=args.lr_factor,
        scheduler_patience=args.scheduler_patience,
        lr_scheduler_gamma=args.lr_scheduler_gamma,
        ema=args.ema,
        ema_decay=args.ema_decay,
        clip_grad=args.clip_grad,
    )


def _plan_steps(args: Namespace) -> StepPlan:
    if args.autocast and args.default_dtype != "float32":
        raise InputError(
            f"--autocast={args.autocast} contradicts --default_dtype={args.default_dtype}: it makes float32 "
            "steps faster; give --default_dtype=float32"
        )
    if args.shard_optimizer and args.optimizer == "schedulefree":
        raise InputError(
            "--shard_optimizer contradicts --optimizer=schedulefree, whose weights belong to its state: use "
            "adam or adamw"
        )
    return StepPlan(
        accumulation=args.gradient_accumulation_steps,
        recompute=args.activation_checkpointing,
        shard_optimizer=args.shard_optimizer,
        autocast=args.autocast is not None,
    )


def _plan_loop(args: Namespace) -> LoopPlan:
    return LoopPlan(
        max_num_epochs=args.max_num_epochs,
        patience=args.patience,
        eval_interval=args.eval_interval,
        restart_latest=args.restart_latest,
        keep_checkpoints=args.keep_checkpoints,
        save_all_checkpoints=args.save_all_checkpoints,
        progress=args.progress,
    )


def _plan_report(args: Namespace, data: DataPlan) -> ReportPlan:
    skipped = tuple(name.strip() for name in args.skip_evaluate_heads.split(",") if name.strip())
    unknown = [name for name in skipped if name not in (*data.head_names, DEFAULTS["skip_evaluate_heads"])]
    if unknown:
        raise InputError(
            f"--skip_evaluate_heads names {unknown[0]!r}, which is no head: the heads are "
            f"{', '.join(data.head_names)}"
        )
    return ReportPlan(error_table=args.error_table, skip_evaluate_heads=skipped)


def _plan_wandb(args: Namespace) -> WandbPlan:
    _need_package("wandb", "--wandb")
    unknown = [name for name in args.wandb_log_hypers if not hasattr(args, name)]
    if unknown:
        raise InputError(f"--wandb_log_hypers names {unknown[0]!r}, which is no argument of this command")
    plain: dict[str, Any] = json.loads(json.dumps(vars(args), default=str))
    return WandbPlan(
        project=args.wandb_project,
        entity=args.wandb_entity,
        name=args.wandb_name,
        directory=args.wandb_dir,
        hypers={name: plain[name] for name in args.wandb_log_hypers},
        arguments=plain,
    )


def _need_package(package: str, flag: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise InputError(f"{flag} needs the package {package}: run 'pip install {package}'")
