"""Light doors of the console commands: parse first, and load torch only when there is something to do."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import sys
import warnings
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import mace
from mace.arguments.model_parsers import (
    build_convert_arg_parser,
    build_convert_device_arg_parser,
    build_cueq_to_e3nn_arg_parser,
    build_e3nn_cueq_arg_parser,
    build_rescue_arg_parser,
    build_select_head_arg_parser,
)
from mace.arguments.parsers import (
    build_default_arg_parser,
    build_doctor_arg_parser,
    build_eval_arg_parser,
    build_preprocess_arg_parser,
)
from mace.doctor.installation import UNINSTALL, find_mace_torch
from mace.exceptions import InputError

# What the import of torch or e3nn raises where packages or shared libraries are missing or do not fit.
_UNFIT = (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError)


def run_train() -> None:
    """Command ``mace_run_train``: train as the command line says. Exits with status 1 or 2 for bad input."""
    _launch("mace.cli.run_train", build_default_arg_parser())


def eval_configs() -> None:
    """Command ``mace_eval_configs``: label frames with a model. Exits with status 1 or 2 for bad input."""
    _launch("mace.cli.eval_configs", build_eval_arg_parser())


def prepare_data() -> None:
    """Command ``mace_prepare_data``: files to HDF5. Exits with status 1 or 2 for bad input."""
    _launch("mace.cli.preprocess_data", build_preprocess_arg_parser())


def convert() -> None:
    """Command ``mace_convert``: a model in another format. Exits with status 1 or 2 for bad input."""
    _launch("mace.cli.convert", build_convert_arg_parser())


def convert_device() -> None:
    """Command ``mace_convert_device``. Exits with status 1 or 2 for bad input."""
    _launch("mace.cli.convert_device", build_convert_device_arg_parser())


def select_head() -> None:
    """Command ``mace_select_head``. Exits with status 1 or 2 for bad input."""
    _launch("mace.cli.select_head", build_select_head_arg_parser())


def e3nn_cueq() -> None:
    """Command ``mace_e3nn_cueq``. Exits with status 1 or 2 for bad input."""
    _launch("mace.cli.convert_e3nn_cueq", build_e3nn_cueq_arg_parser())


def cueq_to_e3nn() -> None:
    """Command ``mace_cueq_to_e3nn``. Exits with status 1 or 2 for bad input."""
    _launch("mace.cli.convert_cueq_e3nn", build_cueq_to_e3nn_arg_parser())


def doctor() -> None:
    """Command ``mace_doctor``. Exits with 0, 3 (warnings) or 4 (errors), and with 1 or 2 for bad input."""
    parser = build_doctor_arg_parser()
    try:
        args = _parse(parser)
        _quieten_scripting()
        status = importlib.import_module("mace.cli.doctor").run(args)
    except InputError as error:
        _report_failure(f"{parser.prog}: error: {error}")
        status = 1
    sys.exit(status)


def rescue() -> None:
    """Command ``mace_rescue``. Exits with status 1 or 2 for bad input."""
    _launch("mace.cli.rescue", build_rescue_arg_parser())


def still_to_come() -> None:
    """A command of MACE that is not built yet. Exits with status 1."""
    name = Path(sys.argv[0]).stem
    sys.exit(f"{name}: error: this command of MACE is not built yet in cp-mace {mace.__version__}")


def _launch(module: str, parser: argparse.ArgumentParser) -> None:
    try:
        args = _parse(parser)
        _look_for_mace_torch()
        _quieten_scripting()
        target = importlib.import_module(module)
        # Where ``run`` is what Python programs call with a model, the command is another function.
        getattr(target, "run_command", target.run)(args)
    except SystemExit:
        raise
    except BaseException as error:  # whatever it is, it is told once, in full, and recorded
        logging.getLogger().debug("The run ended with an error", exc_info=True)
        failures = _room_of_failures()
        if failures is None and isinstance(error, InputError):
            sys.exit(f"{parser.prog}: error: {error}")
        if failures is None:  # which is then, most likely, this very error
            raise
        failures.end(parser.prog, error)


def _quieten_scripting() -> None:
    """Drop warnings about e3nn's own code, which come by the dozen and tell a user nothing to do."""
    warnings.filterwarnings(
        "ignore", message="The TorchScript type system doesn't support instance-level annotations"
    )
    warnings.filterwarnings("ignore", message=r"`torch\.jit\.\w+` is deprecated", category=DeprecationWarning)


def _parse(parser: argparse.ArgumentParser) -> Namespace:
    """Parse the command line; a complaint of the parser is printed by one process of the run, not by each."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return parser.parse_args()
    except SystemExit:
        if complaint.getvalue():
            _report_failure(complaint.getvalue().rstrip())
        raise


def _look_for_mace_torch() -> None:
    """Name an installed mace-torch: its import package has the same name.

    Files of both in one folder overwrite each other, which is an error. In another folder it is only hidden
    now, and may hide this package from a program that looks there first, which is worth a warning.
    """
    other = find_mace_torch()
    if other is None:
        return
    if other.overwrites:
        raise InputError(
            f"mace-torch {other.version} is installed into {other.folder} too, where its files and those of "
            f"cp-mace overwrite each other: {UNINSTALL}"
        )
    # The room that knows ranks needs torch, which a command without complaints may never load.
    from mace.tools.ranks.failures import report_once

    report_once(
        f"warning: mace-torch {other.version} is installed too, with the same import package 'mace'; "
        f"this is cp-mace {mace.__version__} in {other.folder}. To be sure of it everywhere, {UNINSTALL}"
    )


def _report_failure(message: str) -> None:
    failures = _room_of_failures()
    if failures is None:
        print(message, file=sys.stderr, flush=True)
    else:
        failures.report_failure(message)


def _room_of_failures() -> ModuleType | None:
    """What tells failures once for all processes; None where torch, which it needs, cannot be imported."""
    try:
        return importlib.import_module("mace.tools.ranks.failures")
    except _UNFIT:  # mace_doctor names what is wrong there
        return None
