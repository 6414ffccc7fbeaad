"""Files that are either whole or not there: the one way in which results of a long run get onto the disk."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch


def atomic_write(
    path: str | os.PathLike[str],
    write: Callable[[BinaryIO], object],
    check: Callable[[Path], object] | None = None,
) -> None:
    """Let ``write`` fill a new file that then takes the place of ``path``: whole, or not at all.

    The bytes go to a temporary file in the same folder (which is made if it does not exist) and are forced to
    the disk, ``check`` may look at that file and raise, then it is renamed and the folder is forced to the
    disk as well. Whatever goes wrong before the rename leaves ``path`` as it was and no temporary file
    behind; only a killed process leaves one, named ``.NAME.PID-RANDOM.tmp``, which the next write to the same
    path removes (a path has one writer at a time). A symbolic link is followed, not replaced. Raises what
    ``write`` and ``check`` raise, and OSError.
    """
    final = Path(os.path.realpath(path))
    final.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(final)
    temporary = final.with_name(f".{final.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(temporary)
        os.replace(temporary, final)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.filename is None and error.errno is not None:
            # A full disk, for example: Python knows no name for what was being written.
            raise OSError(error.errno, error.strerror, str(final)) from error
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _force_to_disk(final.parent)


def atomic_save(
    obj: Any, path: str | os.PathLike[str], check: Callable[[Path], object] | None = None
) -> None:
    """`torch.save` through `atomic_write`.

    Serialised in memory first: torch's own writer turns an error of the disk into one about positions.
    """
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    atomic_write(path, lambda file: file.write(buffer.getbuffer()), check)


def _remove_leftovers(final: Path) -> None:
    """Temporary files of writers of ``final`` that are no longer alive.

    Not with ``glob``: it keeps a compiled pattern for every name that it has ever been asked for, and each
    checkpoint of a long run has another one.
    """
    prefix = f".{final.name}."
    for name in os.listdir(final.parent):
        process, _, rest = name.removeprefix(prefix).partition("-")
        is_temporary = name.startswith(prefix) and process.isdigit() and rest.endswith(".tmp")
        if is_temporary and not _is_alive(int(process)):
            (final.parent / name).unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it exists but belongs to somebody else
        return True
    return True


def _force_to_disk(folder: Path) -> None:
    """Make a rename in ``folder`` survive a loss of power. Only POSIX lets a folder be opened for that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
