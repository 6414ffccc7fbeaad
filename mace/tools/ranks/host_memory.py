"""One copy of what all processes of a host hold: arrays and tensors in files that each of them maps."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import torch

T = TypeVar("T")

_ALIGNMENT = 16  # bytes, of every array
_END = 2 * 8  # bytes: the two numbers at the end of a file


def is_possible() -> bool:
    """Whether a process can open a file of another that has no name: Linux's way."""
    return Path("/proc/self/fd").exists()


def map_all(
    value: object, mates: Sequence[int], gather: Callable[[Any], list[Any]]
) -> tuple[list[Any] | None, str]:
    """The values of all processes of this host, in memory that they share. Every process of the run calls it.

    Arrays and CPU tensors of the values lie in files without a name, in Python's folder for temporary files
    (``TMPDIR``). Whoever maps them holds the pages that all hold, and a page of its own only where it writes.
    However a process ends, nothing is left behind.

    Args:
        value: what this process adds: anything that can be pickled.
        mates: ranks of the processes of this host.
        gather: gives what every process of the run passes, in the order of the ranks.

    Returns:
        The values in the order of ``mates``, and an empty text; on all processes None and the reason, if one
        of them could not write or read.
    """
    file, trouble = _tried(lambda: HostFile(value))
    try:
        told = gather((None if file is None else file.address, trouble))
        troubles = [said for _, said in told if said]
        if troubles:
            return None, troubles[0]
        values, trouble = _tried(lambda: [map_value(told[rank][0]) for rank in mates])
        troubles = [said for said in gather(trouble) if said]
        return (None, troubles[0]) if troubles else (values, "")
    finally:
        if file is not None:
            file.close()


class HostFile:
    """A value in a file without a name, which other processes of this host can map until it is closed.

    Raises:
        OSError: there is no folder for temporary files, or no room in it.
    """

    def __init__(self, value: object) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (whoever made this closes it)
        try:
            _write(value, self._file)
            self._file.flush()
        except BaseException:
            self._file.close()
            raise

    @property
    def address(self) -> str:
        """Where another process of this host and user finds it."""
        return f"/proc/{os.getpid()}/fd/{self._file.fileno()}"

    def close(self) -> None:
        """Let it go; what is mapped stays as long as it is used."""
        self._file.close()


def map_value(address: str) -> Any:
    """The value of the :class:`HostFile` that a process of this run has written.

    Raises:
        OSError: the file cannot be seen from here.
    """
    with open(address, "rb") as file:
        # Copy on write: pages are shared, and arrays are nevertheless writable, as torch wants them.
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    size, count = np.frombuffer(content[-_END:], np.int64).tolist()
    table = len(content) - _END - 16 * count
    places = np.frombuffer(content[table:-_END], np.int64).reshape(count, 2).tolist()
    buffers = (content[start:end] for start, end in places)
    return pickle.loads(content[table - size : table], buffers=buffers)


def _write(value: object, file: BinaryIO) -> None:
    """Buffers; the pickle without them; begin and end of each; size of the pickle and number of buffers."""
    places: list[tuple[int, int]] = []

    def put(buffer: pickle.PickleBuffer) -> None:
        file.write(bytes(-file.tell() % _ALIGNMENT))
        start = file.tell()
        file.write(buffer.raw())
        places.append((start, file.tell()))

    described = io.BytesIO()
    _Pickler(described, protocol=5, buffer_callback=put).dump(value)
    file.write(described.getbuffer())
    file.write(np.array(places, np.int64).tobytes())
    file.write(np.array([described.tell(), len(places)], np.int64).tobytes())


class _Pickler(pickle.Pickler):
    """Writes tensors as arrays, whose bytes can stay out of the pickle."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.from_numpy, (value.detach().numpy(),)
        return NotImplemented


def _tried(action: Callable[[], T]) -> tuple[T | None, str]:
    """What an action gives, or what the system said against it."""
    try:
        return action(), ""
    except OSError as error:
        return None, str(error)
