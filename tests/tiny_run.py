"""Data and plan of a tiny run, for tests of what lies between a command line and a model."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from mace.arguments.parsers import build_default_arg_parser
from mace.arguments.plans import TrainPlan
from tests.data.make_tiny import main as make_tiny

FLAGS = {
    "name": "tiny",
    "seed": 1,
    "E0s": "{1: -1.0, 8: -2.0}",
    "r_max": 4.0,
    "hidden_irreps": "8x0e + 8x1o",
    "max_ell": 2,
    "correlation": 2,
    "MLP_irreps": "4x0e",
    "num_radial_basis": 4,
    "batch_size": 2,
    "valid_batch_size": 2,
    "max_num_epochs": 3,
}
FERMI = {"model": "FermiMACE", "loss": "fermi_weighted", "error_table": "Fermi_PerAtomRMSE"}


def write_frames(path: Path, count: int, seed: int = 1, **options: Any) -> Path:
    """A file of tiny labelled frames; options as in make_tiny.py."""
    make_tiny(path, count, seed, **options)
    return path


def edit(path: Path, *replacements: tuple[str, str], line: int | None = None) -> Path:
    """Replace text in a file, everywhere or in one line (from 0)."""
    lines = path.read_text().split("\n")
    for number in range(len(lines)) if line is None else [line]:
        for old, new in replacements:
            lines[number] = lines[number].replace(old, new)
    path.write_text("\n".join(lines))
    return path


def parse(folder: Path, **flags: Any) -> Namespace:
    """The arguments of a run in ``folder`` on its files train.xyz and valid.xyz, if no others are given.

    A flag of value None is left out; True stands for a flag without value.
    """
    files = {kind: folder / f"{kind}.xyz" for kind in ("train", "valid")}
    given = {f"{kind}_file": path for kind, path in files.items() if path.exists()}
    merged = {"work_dir": folder, **FLAGS, **given, **flags}
    if "heads" in flags:
        merged.update(train_file=None, valid_file=None)
    words = [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in merged.items()
        if value is not None
    ]
    return build_default_arg_parser().parse_args(words)


def make_plan(folder: Path, **flags: Any) -> TrainPlan:
    """The plan of such a run."""
    return TrainPlan.from_namespace(parse(folder, **flags))
