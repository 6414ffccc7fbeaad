"""Arguments that depend on each other are brought into agreement, with messages for the log."""

from __future__ import annotations

import logging
import os
from argparse import Namespace

from mace.arguments.irreps import feature_irreps, format_irreps, spherical_irreps
from mace.arguments.model_plan import MODEL_KINDS, ModelKind
from mace.exceptions import InputError

Message = tuple[str, int]

STRESS_LOSSES = ("stress", "virials", "huber", "universal")
_STRESS_TABLE = "PerAtomRMSEstressvirials"
_DEFAULT_TABLE = "PerAtomRMSE"
_FERMI_TABLE = "Fermi_PerAtomRMSE"
_NO_STAGE_TWO = ("forces_only", "dipole")
_FOLDERS = {
    "log_dir": "logs",
    "model_dir": "",
    "checkpoints_dir": "checkpoints",
    "results_dir": "results",
    "downloads_dir": "downloads",
}


def check_args(args: Namespace) -> tuple[Namespace, list[Message]]:
    """Bring arguments into agreement.

    Returns a new namespace and messages as (text, logging level), to be logged once there is a log. Filled in
    are the folders, ``hidden_irreps``, ``num_channels`` and ``max_L``, ``swa`` and ``start_swa``,
    ``compute_potential``, ``swa_potential_weight`` and what a loss with stress asks for. Raises
    ``InputError`` where arguments contradict each other.
    """
    args = Namespace(**vars(args))
    messages: list[Message] = []
    _fill_folders(args)
    _fill_irreps(args, messages)
    _fill_stage_two(args, messages)
    _fill_outputs(args, messages)
    return args, messages


def _fill_folders(args: Namespace) -> None:
    for attribute, folder in _FOLDERS.items():
        if getattr(args, attribute) is None:
            setattr(args, attribute, os.path.join(args.work_dir, folder) if folder else args.work_dir)


def _fill_irreps(args: Namespace, messages: list[Message]) -> None:
    given = [args.hidden_irreps, args.num_channels, args.max_L]
    if args.hidden_irreps is not None and None in given:
        _derive_from_irreps(args)
        return
    if None not in given:
        feature_irreps(args.hidden_irreps, "--hidden_irreps")
        messages.append(("All of hidden_irreps, num_channels and max_L are specified", logging.WARNING))
    args.num_channels = 128 if args.num_channels is None else args.num_channels
    args.max_L = 1 if args.max_L is None else args.max_L
    args.hidden_irreps = spherical_irreps(args.num_channels, args.max_L)
    if None not in given:
        text = f"Using num_channels and max_L to create hidden_irreps: {args.hidden_irreps}."
        messages.append((text, logging.WARNING))


def _derive_from_irreps(args: Namespace) -> None:
    terms = feature_irreps(args.hidden_irreps, "--hidden_irreps")
    derived = {"num_channels": terms[0].multiplicity, "max_L": max(term.l for term in terms)}
    for attribute, value in derived.items():
        given = getattr(args, attribute)
        if given not in (None, value):
            raise InputError(
                f"--{attribute}={given} contradicts --hidden_irreps={args.hidden_irreps!r}: "
                "leave out one of them"
            )
        setattr(args, attribute, value)
    args.hidden_irreps = format_irreps(terms)


def _fill_stage_two(args: Namespace, messages: list[Message]) -> None:
    if args.swa_potential_weight is None:
        args.swa_potential_weight = args.potential_weight
    if args.start_swa is not None:
        args.swa = True
        messages.append(("Stage Two is activated as start_stage_two was defined", logging.INFO))
    if not args.swa:
        return
    if args.loss in _NO_STAGE_TWO:
        raise InputError(
            f"--swa contradicts --loss={args.loss}, which has no stage two: leave out one of them"
        )
    if args.start_swa is None:
        args.start_swa = max(1, args.max_num_epochs // 4 * 3)
    if args.start_swa >= args.max_num_epochs:
        sign = ">" if args.start_swa > args.max_num_epochs else "="
        args.swa = False
        messages += [
            (
                "start_stage_two must be less than max_num_epochs, "
                f"got {args.start_swa} {sign} {args.max_num_epochs}",
                logging.WARNING,
            ),
            (f"Stage Two will not start, as start_stage_two {sign} max_num_epochs", logging.WARNING),
        ]


def _fill_outputs(args: Namespace, messages: list[Message]) -> None:
    kind = MODEL_KINDS[args.model]
    has_potential = kind.has_potential
    if args.compute_potential is None:
        args.compute_potential = has_potential
    if args.compute_potential and not has_potential:
        raise InputError(
            f"--compute_potential=True contradicts --model={args.model}, which has no Fermi level: "
            "use --model=FermiMACE"
        )
    if has_potential and not args.compute_potential:
        raise InputError(
            f"--compute_potential=False contradicts --model={args.model}, which gives the Fermi level: "
            "leave it out, or use --model=MACE"
        )
    args.compute_virials = args.loss in STRESS_LOSSES
    if args.loss in STRESS_LOSSES:
        args.compute_stress = True
        if args.error_table not in (_DEFAULT_TABLE, _STRESS_TABLE):
            text = (
                f"--loss={args.loss} sets the error table to {_STRESS_TABLE}, in place of {args.error_table}"
            )
            messages.append((text, logging.WARNING))
        args.error_table = _STRESS_TABLE
    _fill_error_table(args, kind, messages)
    if has_potential and args.error_table != _FERMI_TABLE:
        text = f"The errors shown leave out the Fermi level: --error_table={_FERMI_TABLE} shows it"
        messages.append((text, logging.INFO))


def _fill_error_table(args: Namespace, kind: ModelKind, messages: list[Message]) -> None:
    """The errors of dipoles are shown for the models that have them, and for no others."""
    of_dipoles = {table for other in MODEL_KINDS.values() for table in other.error_tables}
    if kind.error_tables and args.error_table == _DEFAULT_TABLE:
        args.error_table = kind.error_tables[0]
        messages.append((f"--error_table is {args.error_table} for --model={args.model}", logging.INFO))
    fits = args.error_table in kind.error_tables if kind.error_tables else args.error_table not in of_dipoles
    if not fits:
        fitting = " or ".join(kind.error_tables or (_DEFAULT_TABLE,))
        raise InputError(
            f"--error_table={args.error_table} contradicts --model={args.model}: use --error_table={fitting}"
        )
