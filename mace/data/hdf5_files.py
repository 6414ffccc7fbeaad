"""HDF5 files of configurations: written, and read a configuration at a time."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from mace.arguments.parsing import HDF5_SUFFIXES
from mace.exceptions import InputError

from .configuration import Configuration
from .hdf5_layout import StoredFrame, write_configuration

FORMAT, VERSION = "mace configurations", 1  # of the file attributes "format" and "format_version"


def save_configurations_as_HDF5(  # noqa: N802 (public name)
    configurations: Iterable[Configuration], _: object, h5_file: h5py.File
) -> None:
    """Write configurations to an open file, as the group ``config_batch_0`` of upstream's layout.

    The second argument is upstream's and is ignored.
    """
    h5_file.attrs["format"], h5_file.attrs["format_version"] = FORMAT, VERSION
    batch = h5_file.create_group("config_batch_0")
    for index, configuration in enumerate(configurations):
        write_configuration(batch.create_group(f"config_{index}"), configuration)


class HDF5File:
    """One file of configurations, opened at the first use in each process and never pickled open.

    Raises:
        InputError: for what is missing, damaged, or no file of this kind.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._handle: h5py.File | None = None
        self._process = 0
        handle = self._open()
        with _damage_is_named(self.path, "its structure"):
            self.drop_last = bool(handle.attrs.get("drop_last", False))
            self._own = self._is_own(handle)
            names = sorted((name for name in handle if name.startswith("config_batch_")), key=natural_order)
            sizes = [len(handle[name]) for name in names]
        if not names:
            raise InputError(
                f"data file {self.path!r} is an HDF5 file without configurations of mace_prepare_data: it "
                f"holds {', '.join(sorted(handle)[:5]) or 'nothing'}"
            )
        self._batches = names
        self._ends = np.cumsum(sizes).tolist()  # batches may differ in size

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Configuration:
        """One configuration, whole. Raises InputError if it cannot be read."""
        return self._read(index, outline=False)

    def outline(self, index: int) -> Configuration:
        """One configuration without its arrays. Raises InputError if it cannot be read."""
        return self._read(index, outline=True)

    def close(self) -> None:
        """Close it; the next use opens it again."""
        if self._handle is not None and self._process == os.getpid():
            self._handle.close()
        self._handle = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_handle": None}

    def _read(self, index: int, *, outline: bool) -> Configuration:
        if not 0 <= index < len(self):
            raise IndexError(f"{index} of {len(self)} configurations of {self.path!r}")
        batch = bisect_right(self._ends, index)
        within = index - (self._ends[batch - 1] if batch else 0)
        name = f"{self._batches[batch]}/config_{within}"
        with _damage_is_named(self.path, name):
            frame = StoredFrame(self._open()[name], own=self._own, file=self.path, frame=index)
            return frame.outline() if outline else frame.configuration()

    def _open(self) -> h5py.File:
        """The open file of this process: one that a fork has inherited is not used."""
        if self._handle is None or self._process != os.getpid():
            # Readers need no lock, which some network file systems lack: files appear whole, by renaming.
            self._handle, self._process = open_file(self.path), os.getpid()
        return self._handle

    def _is_own(self, handle: h5py.File) -> bool:
        """Whether we wrote it; upstream's files have no mark."""
        if handle.attrs.get("format") != FORMAT:
            return False
        version = int(handle.attrs.get("format_version", 0))
        if version > VERSION:
            raise InputError(
                f"data file {self.path!r} has version {version} of its format, this release reads up to "
                f"{VERSION}: use a newer release of cp-mace, or prepare the data again"
            )
        return True


@contextmanager
def _damage_is_named(path: str, what: str) -> Iterator[None]:
    """Say in one line what of a file can't be read."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, OSError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        # h5py raises any of these for bytes that it can't follow, or for a group where numbers should be.
        reason = " ".join(str(error).split())
        raise InputError(f"data file {path!r} is damaged: {what} can't be read ({reason})") from error


def open_file(path: str) -> h5py.File:
    """Open an HDF5 file for reading. Raises InputError with the reason."""
    if not os.path.exists(path):
        raise InputError(f"data file {path!r} does not exist")
    if os.path.getsize(path) == 0:
        raise InputError(f"data file {path!r} is empty")
    try:
        if not h5py.is_hdf5(path):
            raise InputError(f"data file {path!r} is no HDF5 file: run mace_prepare_data")
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"data file {path!r} cannot be read, it may be truncated: {reason}") from None


def files_of(path: str | Path) -> list[Path]:
    """The HDF5 file itself, or all of a folder, shard 2 before shard 10.

    Raises:
        InputError: a folder without such files.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    files = sorted(
        (file for file in path.iterdir() if file.suffix in HDF5_SUFFIXES and not file.name.startswith(".")),
        key=lambda file: natural_order(file.name),
    )
    if not files:
        raise InputError(f"Got directory {path} with no .h5/.hdf5 files")
    return files


def natural_order(name: str) -> tuple[list[str], list[int]]:
    """Sort key: by the text between numbers first, then by the numbers."""
    return re.split(r"\d+", name), [int(number) for number in re.findall(r"\d+", name)]


def open_files(paths: Sequence[str | Path]) -> list[HDF5File]:
    """Open files one after the other. Raises InputError if there is no configuration in any."""
    files = [HDF5File(path) for path in paths]
    if not any(map(len, files)):
        raise InputError(f"data file {str(paths[0])!r} holds no structure")
    return files


def outlines_of(files: Iterable[HDF5File]) -> Iterator[Configuration]:
    """Every configuration without its arrays; each file is closed after its last."""
    for file in files:
        for index in range(len(file)):
            yield file.outline(index)
        file.close()
