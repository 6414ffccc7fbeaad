"""The model that a checkpoint belongs to: from its own description, or from the log of the run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mace.exceptions import InputError, RunError
from mace.tools.checkpoint import tag_of
from mace.tools.logged_model import logged_config
from mace.tools.plain import RebuildError, model_class_called
from mace.tools.rebuild import adopt
from mace.tools.run_log import LoggedRun, read_log
from mace.tools.same import same_bits
from mace.tools.state_names import is_state

_STATES = ("model", "state_dict", "model_state_dict")
_OF_EVERY_MODEL = frozenset(["node_embedding.linear.weight", "radial_embedding.cutoff_fn.p"])


@dataclass(frozen=True)
class SavedWeights:
    """The state dict of one of MACE's models, and what the file says about the model."""

    state: Mapping[str, torch.Tensor]
    description: Mapping[str, Any] | None


def find_weights(content: Any) -> SavedWeights | None:
    """The weights of a model of MACE in a state dict or checkpoint; None if there are none."""
    if not isinstance(content, Mapping):
        return None
    for state in (content, *(content.get(name) for name in _STATES)):
        if is_state(state) and state.keys() >= _OF_EVERY_MODEL:
            return SavedWeights(state, content.get("description"))
    return None


def build(weights: SavedWeights, path: Path, log: Path | None) -> torch.nn.Module:
    """The model with these weights, on the CPU.

    Args:
        weights: from the file ``path``.
        path: the logs of its run are looked for beside it.
        log: the log of the run, if it is somewhere else.

    Raises:
        InputError: nothing says what the model was built from, or it does not fit the weights.
        RunError: the rebuilt model does not have the weights.
    """
    if weights.description is not None:
        ours, (name, config) = True, _described(weights.description)
        source = "the description in the checkpoint"
    else:
        run, found = _logged(path, log)
        ours, (name, config) = run.ours, logged_config(run, weights.state)
        source = f"the log {found}"
    try:
        model = adopt(model_class_called(name), config, weights.state)
    except RebuildError as error:
        raise InputError(f"{source} does not fit the weights in {path}: {error}") from error
    _require_same_weights(model, weights.state)
    logging.info("%s: %s, built from %s", path, name, source)
    return model.train(ours)  # as runs of this package save it; it computes the same


def _described(description: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(description, Mapping) or not isinstance(description.get("class"), str):
        raise InputError("the description in the checkpoint is not that of a model")
    config = {str(key): value for key, value in description.items() if key not in ("class", "dtype")}
    return description["class"], config


def _logged(path: Path, log: Path | None) -> tuple[LoggedRun, Path]:
    """The newest run of the first log that holds arguments."""
    candidates = _logs_beside(path) if log is None else [log, *_debug_log(log)]
    for candidate in candidates:
        if run := read_log(candidate):
            return run, candidate
    if log is not None:
        raise InputError(
            f"neither the log {log} nor the debug log beside it holds a line 'Configuration: Namespace(...)'"
        )
    raise InputError(
        f"{path} does not say what its model was built from, and no log of its run is beside it: give the "
        "debug log of the run with --log, or an output that ends with .pt for the weights alone"
    )


def _debug_log(log: Path) -> list[Path]:
    beside = log.with_name(f"{log.stem}_debug{log.suffix}")
    return [beside] if beside.is_file() else []


def _logs_beside(path: Path) -> list[Path]:
    tag = tag_of(path)
    folders = (path.absolute().parent.parent / "logs", path.absolute().parent)
    names = [] if tag is None else [f"{tag}_debug.log", f"{tag}.log"]
    return [folder / name for folder in folders for name in names if (folder / name).is_file()]


def _require_same_weights(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    own = model.state_dict()
    changed = [name for name in state if name in own and not same_bits(own[name], state[name])]
    if changed:
        raise RunError(f"the rebuilt model changes {len(changed)} tensors, {changed[0]} among them")
