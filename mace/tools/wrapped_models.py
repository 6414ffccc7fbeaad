"""Whole pickles of what distributed training wraps around a model, read without running what they name.

No process group, NCCL or GPU is needed: of the wrapper nothing but its ``module`` is looked at.
"""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import torch

from mace.tools.loading import adopt_pickled
from mace.tools.pickled_models import PickledModule, read_pickled_module
from mace.tools.rebuild import RebuildError, restore_model

State = dict[str, torch.Tensor]

WRAPPERS = (
    "torch.nn.parallel.distributed.DistributedDataParallel",
    "torch.nn.parallel.data_parallel.DataParallel",
)
_RESTORE = f"{restore_model.__module__}.{restore_model.__qualname__}"
# A name of these stands for notes that do nothing: those of layers, and of settings of the wrapper.
_HARMLESS = ("torch.nn.", "torch.distributed.")


def read_wrapped(path: Path) -> torch.nn.Module | State:
    """What is in a wrapper, or the module itself if there is none, on the CPU.

    Returns:
        A model of this package; of a module that consists of torch's own layers, its state dict.

    Raises:
        pickle.UnpicklingError: it names what neither torch's layers nor MACE's models consist of, or holds no
            module.
        RebuildError: it is a model whose parts do not belong together.
    """
    if not zipfile.is_zipfile(path):
        raise pickle.UnpicklingError("it holds an object in the form of torch before 1.6")
    with zipfile.ZipFile(path) as archive:
        module = read_pickled_module(archive, _is_known)
        while module.kind in WRAPPERS:
            module = module["module"].alone()
        if module.is_model:
            return adopt_pickled(module)
        if module.kind == _RESTORE:
            return _restored(module)
        if not module.kind.startswith("torch.nn.modules."):
            raise pickle.UnpicklingError(f"it holds a {module.kind}, not a model")
        return module.state()[0]


def _is_known(full: str) -> bool:
    return full.startswith(_HARMLESS) or full in ("torch.device", _RESTORE)


def _restored(record: PickledModule) -> torch.nn.Module:
    match record.arguments():
        case [str() as text, dict() as state]:
            return restore_model(text, state)
    raise RebuildError("it is not a model as this package writes it")
