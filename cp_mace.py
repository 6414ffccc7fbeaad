"""Doors of the console commands, outside the import package ``mace``.

mace-torch has the same import package. Where it hides ours, nothing inside ``mace`` could say so; this module can, and that is all it does.
"""

import importlib.util
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path


def run_train() -> int:
    """Command ``mace_run_train``; returns the exit status."""
    return _open("run_train")


def eval_configs() -> int:
    """Command ``mace_eval_configs``; returns the exit status."""
    return _open("eval_configs")


def _open(command: str) -> int:
    spec = importlib.util.find_spec("mace")
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    if not any((place / "cli" / "launch.py").is_file() for place in places):
        _report_hidden(places)
        return 1
    from mace.cli import launch

    entry: Callable[[], int] = getattr(launch, command)
    return entry()


def _report_hidden(places: list[Path]) -> None:
    try:
        other = f"mace-torch {metadata.version('mace-torch')}"
    except metadata.PackageNotFoundError:
        other = "another package"
    where = f" in {places[0]}" if places else ""
    print(
        f"error: {other} provides the import package 'mace'{where} and hides cp-mace: "
        "run 'pip uninstall mace-torch', then install cp-mace again",
        file=sys.stderr,
    )
