"""Doors of the console commands, outside the import package ``mace``.

mace-torch has the same import package. Where it hides ours, nothing inside ``mace`` could say so; this module
can, and that is all it does.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path


def run_train() -> None:
    """Command ``mace_run_train``."""
    _open("run_train")


def eval_configs() -> None:
    """Command ``mace_eval_configs``."""
    _open("eval_configs")


def prepare_data() -> None:
    """Command ``mace_prepare_data``."""
    _open("prepare_data")


def convert() -> None:
    """Command ``mace_convert``."""
    _open("convert")


def convert_device() -> None:
    """Command ``mace_convert_device``."""
    _open("convert_device")


def select_head() -> None:
    """Command ``mace_select_head``."""
    _open("select_head")


def e3nn_cueq() -> None:
    """Command ``mace_e3nn_cueq``."""
    _open("e3nn_cueq")


def cueq_to_e3nn() -> None:
    """Command ``mace_cueq_to_e3nn``."""
    _open("cueq_to_e3nn")


def doctor() -> None:
    """Command ``mace_doctor``."""
    _open("doctor")


def rescue() -> None:
    """Command ``mace_rescue``."""
    _open("rescue")


def still_to_come() -> None:
    """Every command of MACE that is not built yet: it says so, under its own name."""
    _open("still_to_come")


def _open(command: str) -> None:
    spec = importlib.util.find_spec("mace")
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    if not any((place / "cli" / "launch.py").is_file() for place in places):
        sys.exit(_hidden(places))
    entry: Callable[[], None] = getattr(importlib.import_module("mace.cli.launch"), command)
    entry()


def _hidden(places: list[Path]) -> str:
    try:
        other = f"mace-torch {metadata.version('mace-torch')}"
    except metadata.PackageNotFoundError:
        other = "another package"
    where = f" in {places[0]}" if places else ""
    return (
        f"error: {other} provides the import package 'mace'{where} and hides cp-mace: "
        "run 'pip uninstall mace-torch', then install cp-mace again"
    )
