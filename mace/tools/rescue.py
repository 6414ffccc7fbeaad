"""What older scripts and crashed runs have left, turned into standard files: the command ``mace_rescue``."""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch

from mace.arguments.path_plan import PathPlan
from mace.exceptions import InputError
from mace.tools.checkpoint import CheckpointIO, tag_of
from mace.tools.checkpoint_models import build, find_weights
from mace.tools.checkpoint_state import STAGE_NAMES
from mace.tools.files import atomic_save
from mace.tools.pickled_models import NoObject
from mace.tools.plain import MODEL_CLASSES, RebuildError
from mace.tools.safe_files import DAMAGE, read_plain_data, require_whole
from mace.tools.saving import SaveError, save_compiled, save_model
from mace.tools.state_names import cleaned
from mace.tools.trusted_files import read_trusted
from mace.tools.wrapped_models import read_wrapped

_MODEL, _STATE = ".model", ".pt"


@dataclass(frozen=True, kw_only=True)
class RescuePlan:
    """What is to be rescued.

    Attributes:
        source: a file, or the folder of a run.
        output: file to write for a file; None for a name made from that of ``source``.
        log: the log of the run; None to look beside the checkpoint.
        name: name of the run in a folder.
        seed: its seed; None if the folder has one only.
        trust: run code that the file names, where it cannot be read otherwise.
        overwrite: replace files that are there.
    """

    source: Path
    output: Path | None = None
    log: Path | None = None
    name: str | None = None
    seed: int | None = None
    trust: bool = False
    overwrite: bool = False


def rescue(plan: RescuePlan) -> list[Path]:
    """Write the standard files for what ``plan.source`` holds; returns them.

    Raises:
        InputError: in one line, for a file that is damaged, names foreign code or does not say enough, and
            for an output that exists.
        SaveError: a file cannot be written as it should be.
    """
    if plan.source.is_dir():
        return _rescue_run(plan)
    if plan.name is not None or plan.seed is not None:
        raise InputError(f"--name and --seed belong to the folder of a run, and {plan.source} is none")
    if plan.output is not None and plan.output.suffix not in (_MODEL, _STATE):
        raise InputError(f"output {plan.output}: its name must end with {_MODEL} or {_STATE}")
    content = read(plan.source, plan.trust)
    weights = None if isinstance(content, torch.nn.Module) else find_weights(content)
    if weights is not None and (plan.output is None or plan.output.suffix == _MODEL):
        content = build(weights, plan.source, plan.log)
    return [_write(content, plan)]


def read(path: Path, trust: bool) -> torch.nn.Module | dict[str, Any]:
    """A model of this package, or the state dicts and plain values of a file, as their models name them.

    Raises:
        InputError: see `rescue`.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    if _is_torchscript(path):
        raise InputError(f"{path} is a TorchScript archive, which is a standard file: mace_convert reads it")
    try:
        require_whole(path)
        content = _restricted(path)
    except pickle.UnpicklingError as error:
        if not trust:
            raise InputError(
                f"{path} cannot be rescued as it is: {error}; if you know where the file comes from, --trust "
                "reads it with the code it names"
            ) from error
        content = read_trusted(path)
    except RebuildError as error:
        raise InputError(f"{path} cannot be rescued: {error}") from error
    except DAMAGE as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"{path} is damaged, or torch has not written it ({reason})") from error
    if isinstance(content, torch.nn.Module) and type(content) in MODEL_CLASSES.values():
        return content
    return cleaned(content, path)


def _is_torchscript(path: Path) -> bool:
    if not is_zipfile(path):
        return False
    with ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _restricted(path: Path) -> Any:
    """The content of a file, as far as nothing of it has to be run."""
    try:
        return read_plain_data(path)
    except pickle.UnpicklingError as refusal:
        if not is_zipfile(path):  # the form of torch before 1.6
            raise
        try:
            return read_wrapped(path)
        except NoObject:
            raise refusal from None  # it names an object within


def _write(content: torch.nn.Module | dict[str, Any], plan: RescuePlan) -> Path:
    """The file for a file."""
    is_model = isinstance(content, torch.nn.Module)
    ending = _MODEL if is_model else _STATE
    path = plan.output or plan.source.with_name(f"{plan.source.stem}_rescued{ending}")
    _require_free([path], plan.overwrite)
    if path.suffix == _STATE:
        _save_state(content.state_dict() if is_model else content, path)
    elif is_model:
        save_model(content, path)
    else:
        raise InputError(f"{plan.source} holds no model of MACE: give an output that ends with {_STATE}")
    return path


def _save_state(content: dict[str, Any], path: Path) -> None:
    try:
        atomic_save(dict(content), path, read_plain_data)
    except (pickle.UnpicklingError, OSError) as error:
        raise SaveError(f"{path} was not written: {error}") from error


def _require_free(paths: list[Path], overwrite: bool) -> None:
    there = [path for path in paths if path.exists()]
    if there and not overwrite:
        raise InputError(f"{there[0]} exists: move it away, or give --overwrite")


def _rescue_run(plan: RescuePlan) -> list[Path]:
    """The model files that the run would have written, of each stage that has a checkpoint."""
    if plan.output is not None:
        raise InputError(
            f"--output is for a file: those of the run in {plan.source} have the names of the run"
        )
    paths = _paths(plan)
    stages = _best_of_stages(CheckpointIO(paths.checkpoints_dir, paths.tag))
    files = {
        stage_two: [
            paths.tagged_model_file(stage_two=stage_two),
            paths.model_file(stage_two=stage_two),
            paths.compiled_file(stage_two=stage_two),
        ]
        for stage_two in stages
    }
    _require_free([path for of_stage in files.values() for path in of_stage], plan.overwrite)
    for stage_two, checkpoint in stages.items():
        weights = find_weights(read(checkpoint, plan.trust))
        if weights is None:
            raise InputError(f"{checkpoint} holds no weights of a model of MACE")
        model = build(weights, checkpoint, plan.log)
        *models, compiled = files[stage_two]
        for path in models:
            save_model(model, path)
        if not save_compiled(model, compiled):
            files[stage_two].remove(compiled)
    return [path for of_stage in files.values() for path in of_stage]


def _paths(plan: RescuePlan) -> PathPlan:
    """The names of the run in a folder, which is that of its checkpoints, logs and models."""
    folder = plan.source
    checkpoints = folder / "checkpoints"
    tags = sorted({tag for path in checkpoints.glob("*.pt") if (tag := tag_of(path)) is not None})
    fitting = [
        (name, int(seed))
        for name, _, seed in (tag.rpartition("_run-") for tag in tags)
        if seed.isdigit() and plan.name in (None, name) and plan.seed in (None, int(seed))
    ]
    if len(fitting) != 1:
        what = "several runs fit" if fitting else "there is no checkpoint of such a run"
        raise InputError(f"{checkpoints}: {what}, it has {', '.join(tags) or 'none'}: give --name and --seed")
    ((name, seed),) = fitting
    return PathPlan(
        name=name,
        seed=seed,
        work_dir=folder,
        log_dir=folder / "logs",
        model_dir=folder,
        checkpoints_dir=checkpoints,
        results_dir=folder / "results",
    )


def _best_of_stages(files: CheckpointIO) -> dict[bool, Path]:
    """The best checkpoint of each stage that has one."""
    newest = files.newest()
    if newest is None:
        raise InputError(f"{files.directory} has no checkpoint of {files.tag} that can be read")
    progress = newest[0].get("progress")
    if progress is None:
        # Upstream's do not say which is the best; it writes one after an improvement only.
        stages = {info.swa: Path(info.path) for info in files.files()}
    else:
        stages = _named_and_there(progress.get("best", {}), files, newest[1])
    if not stages:
        raise InputError(
            f"{files.directory} has no best checkpoint of {files.tag}: give a file in place of the folder"
        )
    return stages


def _named_and_there(best: dict[str, str], files: CheckpointIO, newest: Path) -> dict[bool, Path]:
    """The files that the newest checkpoint names; others are of older runs, or no longer the best."""
    stages = {}
    for two, stage in STAGE_NAMES.items():
        if stage not in best:
            continue
        path = files.directory / Path(best[stage]).name
        if path.is_file():
            stages[two] = path
        else:
            logging.warning(
                f"{path}, the best checkpoint of stage {stage} as {newest.name} says, is not there: no model "
                "of that stage is written; give another checkpoint in place of the folder to use that one"
            )
    return stages
