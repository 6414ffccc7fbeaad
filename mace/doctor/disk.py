"""Room for what a run will save: an estimate, stated, against what is free."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from mace.arguments.plans import TrainPlan
from mace.doctor.findings import Finding, error, ok, warning

ASSUMED_MODEL = 20e6  # bytes, where no model is known: 128x0e + 128x1o in float64 has about as much
_CHECKPOINTS = 3  # of a stage: the best one, the latest one, and one that is being written
_MODELS = 4  # of a stage: by tag, by name, as TorchScript, and one that is being written
_VOLATILE = ("tmpfs", "ramfs", "devtmpfs")
_MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A folder of the run, and the file system that it is or will be on."""

    folder: Path
    device: int
    free: int  # bytes
    kind: str | None  # type of the file system, where the system tells
    obstacle: str | None  # why no file can be made there

    @classmethod
    def of(cls, folder: Path) -> Volume:
        """Facts about a folder, or about the nearest one above that exists; nothing is left behind."""
        above = next(
            path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path)
        )
        obstacle = None
        try:
            with TemporaryFile(dir=above):
                pass
        except OSError as problem:
            obstacle = f"{above}: {problem.strerror or problem}"
        return cls(
            folder=folder,
            device=above.stat().st_dev,
            free=shutil.disk_usage(above).free,
            kind=kind_of(above.resolve(), _MOUNTS.read_text() if _MOUNTS.exists() else ""),
            obstacle=obstacle,
        )


def kind_of(path: Path, mounts: str) -> str | None:
    """The type of the file system of ``path`` by a table of mounts as Linux keeps it."""
    kinds: dict[Path, str] = {}
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split(" ")
        kinds[Path(place.replace("\\040", " "))] = kind  # of two on one place the later one is seen
    return next((kinds[above] for above in (path, *path.parents) if above in kinds), None)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bytes that the run writes."""

    checkpoints: float
    models_by_tag: float  # beside the checkpoints
    models: float  # in the model folder
    text: str

    @classmethod
    def of(cls, plan: TrainPlan, model_bytes: float | None) -> Estimate:
        """Checkpoints hold weights and two moments of each (amsgrad: three), with ema the averages too."""
        size = ASSUMED_MODEL if model_bytes is None else model_bytes
        copies = 3 + plan.optim.amsgrad + plan.optim.ema
        stages = 1 if plan.stages is None else 2
        count = _CHECKPOINTS * stages
        if plan.training.keep_checkpoints or plan.training.save_all_checkpoints:
            count = max(count, plan.training.max_num_epochs // plan.training.eval_interval + 2)
        assumed = " (assumed; give --model or --model_megabytes)" if model_bytes is None else ""
        text = (
            f"model of {size / 1e6:.1f} MB{assumed}: {count} checkpoints of {copies} times that and "
            f"{_MODELS * stages} models"
        )
        by_tag = stages * size
        return cls(
            checkpoints=count * copies * size,
            models_by_tag=by_tag,
            models=_MODELS * stages * size - by_tag,
            text=text,
        )


def check_folders(volumes: list[Volume]) -> Iterator[Finding]:
    """Every folder of the run can be written, and keeps what is written."""
    for volume in volumes:
        if volume.obstacle is not None:
            yield error(
                "folder-unwritable",
                f"cannot write to '{volume.folder}' ({volume.obstacle})",
                "choose others with --work_dir, --log_dir, --model_dir, --checkpoints_dir and --results_dir",
            )
        if volume.kind in _VOLATILE:
            yield warning(
                "folder-volatile",
                f"'{volume.folder}' is on a {volume.kind}: it is lost when the machine is switched off, and "
                "takes memory",
                "choose a folder on a disk",
            )


def check_room(volumes: list[Volume], needed: dict[Path, float], text: str) -> Iterator[Finding]:
    """What will be saved fits on the file systems, together where they are one."""
    for device in dict.fromkeys(volume.device for volume in volumes):
        here = [volume for volume in volumes if volume.device == device]
        wanted, free = sum(needed.get(volume.folder, 0.0) for volume in here), here[0].free
        room = f"{free / 1e9:.2f} GB free at '{here[0].folder}', {wanted / 1e9:.2f} GB needed ({text})"
        if not wanted:
            continue
        if free < wanted:
            yield error("disk-full", room, "make room, or choose other folders with --work_dir")
        elif free < 2 * wanted:
            yield warning("disk-short", f"{room}: logs and other programs may take the rest", "make room")
        else:
            yield ok("disk", room)


def examine_disk(plan: TrainPlan, model_bytes: float | None) -> list[Finding]:
    """Run all checks of this module."""
    volumes = [Volume.of(folder) for folder in plan.paths.folders()]
    estimate = Estimate.of(plan, model_bytes)
    needed: dict[Path, float] = {}
    for folder, size in (
        (plan.paths.checkpoints_dir, estimate.checkpoints + estimate.models_by_tag),
        (plan.paths.model_dir, estimate.models),
    ):
        needed[folder] = needed.get(folder, 0.0) + size
    return [*check_folders(volumes), *check_room(volumes, needed, estimate.text)]
