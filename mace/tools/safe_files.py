"""Reading what `torch.save` wrote, as long as it is plain data; what else a file names is refused by name."""

from __future__ import annotations

import lzma
import os
import pickle
import pickletools
import re
import warnings
import zlib
from typing import Any
from zipfile import BadZipFile, ZipFile, is_zipfile

import torch

# What zipfile and torch raise for bytes that they cannot follow: their meaning decides which.
DAMAGE = (BadZipFile, EOFError, OSError, RuntimeError, ValueError, lzma.LZMAError, zlib.error)

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


def require_whole(path: str | os.PathLike[str]) -> None:
    """Compare every entry of an archive with its checksum, which torch.load does not; follow a pickle.

    Raises:
        one of DAMAGE: a part is missing or another than was written.
    """
    if not is_zipfile(path):
        with open(path, "rb") as file:
            for _ in pickletools.genops(file):
                pass
        return
    with ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise BadZipFile(f"its entry {damaged} is damaged")
