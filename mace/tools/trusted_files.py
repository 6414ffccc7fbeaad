"""Files that the user vouches for: read as torch reads them, which runs code that they name.

The one place of the package that does so for a file of somebody else, and only where the user asks for it.
"""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from mace.exceptions import InputError
from mace.tools.safe_files import DAMAGE
from mace.tools.wrapped_models import WRAPPERS

_OF_PROCESSES = "torch.distributed."


class _Wrapper(torch.nn.Module):
    """In the place of torch's wrappers, which want a process group and the attributes of their version."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({name: value for name, value in state.items() if name.startswith("_")})
        self.training = state.get("training", False)


class _Settings:
    """In the place of what only a wrapper uses."""

    def __new__(cls, *_: Any, **__: Any) -> _Settings:
        return super().__new__(cls)

    def __setstate__(self, _: Any) -> None:
        pass


class _Unknown(torch.nn.Module):
    """In the place of a class that cannot be imported here: what it holds is kept, what it does is not."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in WRAPPERS:
            return _Wrapper
        if full.startswith((_OF_PROCESSES, "torch.nn.parallel.")):
            return _Settings
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            logging.warning("%s cannot be imported here: of such an object only its tensors are read", full)
            return type(name, (_Unknown,), {"__module__": __name__})


def read_trusted(path: Path) -> Any:
    """The object in ``path``, on the CPU, without the wrappers of distributed training around it.

    Runs whatever the file names. Raises InputError if that fails.
    """
    readers = SimpleNamespace(__name__="pickle", Unpickler=_Unpickler, load=pickle.load)
    try:
        found = torch.load(path, map_location="cpu", weights_only=False, pickle_module=readers)
        while isinstance(found, _Wrapper):
            found = found.module
        return found
    except (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, TypeError) as error:
        raise _unreadable(path, error) from error  # of the code that the file names
    except (pickle.UnpicklingError, *DAMAGE) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = next(iter(str(error).strip().splitlines()), "no reason given")
    return InputError(f"{path} cannot be read with --trust either: {type(error).__name__}: {reason}")
