"""Reading what `torch.save` wrote, as long as it is plain data; what else a file names is refused by name."""

from __future__ import annotations

import os
import pickle
import re
import warnings
from typing import Any

import torch

_NAMED = re.compile(r"(?:GLOBAL|global|function|class) <?(?:class |built-in function )?'?([\w.]+\.[\w.]+)")


def read_plain_data(
    path: str | os.PathLike[str], map_location: str | torch.device = "cpu", mmap: bool = False
) -> Any:
    """The content of a file: tensors, numbers, text, lists and dictionaries of them.

    Raises:
        pickle.UnpicklingError: in one line, for a file that holds or calls anything else.
        OSError, EOFError, RuntimeError, ValueError: as torch.load.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected pickle protocol")
        try:
            return torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
        except pickle.UnpicklingError as error:
            # torch's text goes on to recommend its unsafe way of reading.
            found = _NAMED.search(str(error))
            what = f"names {found[1]}" if found else "holds more than tensors and plain data"
            raise pickle.UnpicklingError(f"it {what}, which is refused: no file may run code") from error
        except (AttributeError, IndexError, TypeError, AssertionError) as error:  # of a malformed pickle
            raise pickle.UnpicklingError(f"its pickle is malformed ({error})") from error
