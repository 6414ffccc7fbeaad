"""Whether a model can be copied, written and read again: what ends a run that has nothing to save."""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import e3nn.util.jit
import torch
from torch import nn

from mace.doctor.findings import Finding, error, note, ok, one_line, warning
from mace.tools.loading import load_model
from mace.tools.rebuild import rebuild
from mace.tools.saving import scripted

_RECORDS = "_recorded_config"  # what mace.tools.rebuild.records_config leaves in an instance


def failure_of(action: Callable[[], object]) -> str | None:
    """Why an action fails, or None if it does not.

    Modules of other people raise whatever they like when they are copied; here that is the answer.
    """
    try:
        action()
    except Exception as problem:
        return one_line(problem)
    return None


def check_rebuild(module: nn.Module) -> Iterator[Finding]:
    """A copy can be made from the recorded configuration, as the save stage does."""
    failure = failure_of(lambda: rebuild(module))
    if failure is None:
        yield ok(
            "copy-rebuild", "it can be rebuilt from its configuration, and the copy is the same to the bit"
        )
    elif _RECORDS in vars(module):
        yield error(
            "copy-rebuild",
            f"it cannot be rebuilt from its configuration, so that a run could not save it: {failure}",
            "undo what was changed after it was built, or build it anew and load its state dict",
        )
    else:
        yield warning(
            "copy-rebuild",
            f"it cannot be rebuilt: {failure}",
            "put the decorator mace.tools.rebuild.records_config on its class, and build it anew",
        )


def check_deepcopy(module: nn.Module) -> Iterator[Finding]:
    """``copy.deepcopy`` works, which many scripts and averages of weights use."""
    failure = failure_of(lambda: copy.deepcopy(module))
    if failure is None:
        yield ok("copy-deepcopy", "copy.deepcopy works")
    else:
        yield warning(
            "copy-deepcopy",
            f"copy.deepcopy fails: {failure}",
            "build it inside mace.tools.rebuild.disable_e3nn_codegen(), or use mace.tools.rebuild.rebuild",
        )


def check_pickle(module: nn.Module) -> Iterator[Finding]:
    """It can be pickled, and the file can be read again without running code that it names."""
    failure = failure_of(lambda: pickle.dumps(module))
    if failure is not None:
        yield warning(
            "copy-pickle",
            f"pickle and torch.save of the model fail: {failure}",
            "build it inside mace.tools.rebuild.disable_e3nn_codegen(), or save its state_dict()",
        )
        return
    yield ok("copy-pickle", "pickle works")
    failure = failure_of(lambda: _read_back(module))
    if failure is None:
        yield ok("read-safely", "a file of it is read without running code of its own (weights_only)")
    else:
        yield warning(
            "read-safely",
            f"a file of it cannot be read without running code that it names: {failure}",
            "save its state_dict(), or put mace.tools.rebuild.records_config on its class",
        )


def _read_back(module: nn.Module) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trial.model"
        torch.save(module, file)
        load_model(file)


def check_state(module: nn.Module) -> Iterator[Finding]:
    """The weights alone can be written and read, which is all that checkpoints need."""

    def write_and_read() -> None:
        with tempfile.TemporaryFile() as file:
            torch.save(module.state_dict(), file)
            file.seek(0)
            torch.load(file, weights_only=True)

    failure = failure_of(write_and_read)
    if failure is None:
        yield ok("copy-state", "its state dict is read with weights_only=True")
    else:
        yield error(
            "copy-state",
            f"its state dict cannot be read with weights_only=True: {failure}",
            "let get_extra_state and state_dict hold tensors, numbers and texts only",
        )


def check_script(module: nn.Module) -> Iterator[Finding]:
    """It can be exported to TorchScript."""
    failure = failure_of(lambda: _exported(module))
    if failure is None:
        yield ok("copy-script", "it can be exported to TorchScript")
    else:
        yield warning(
            "copy-script",
            f"it cannot be exported to TorchScript: {failure}",
            "a run would end without its _compiled.model; the .model file does not depend on it",
        )


def _exported(module: nn.Module) -> object:
    """The TorchScript of a copy; e3nn's compiler works on what it is given."""
    if _RECORDS in vars(module):
        return scripted(module)
    return torch.jit.script(e3nn.util.jit.compile(copy.deepcopy(module)))


COPY_CHECKS = (check_rebuild, check_deepcopy, check_pickle, check_state, check_script)


def of_archive(module: nn.Module) -> Iterator[Finding]:
    """What can be said about the copies of a TorchScript archive."""
    yield note(
        "model-archive",
        "a TorchScript archive without the configuration of a model: it can be used, not trained or copied",
        "take the .model file of the same run",
    )
