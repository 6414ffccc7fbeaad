"""The files of a head: extended XYZ and whatever else ASE reads, or HDF5 files of mace_prepare_data."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from mace.arguments.parsing import is_hdf5_path
from mace.arguments.plans import HeadPlan
from mace.data.hdf5_files import files_of
from mace.data.readers import LabelledFile, read_configurations, read_prepared
from mace.exceptions import InputError

_SHARD = re.compile(r"_\d+$")  # what mace_prepare_data puts at the end of a name


def read_file(
    path: str, head: HeadPlan, *, training: bool = False, heads_from_file: bool = False
) -> LabelledFile:
    """Read a file, or a folder of HDF5 files, for a head.

    Args:
        path: the file.
        head: says how it is read; all configurations belong to it.
        training: isolated atoms are told apart, which happens in training files only.
        heads_from_file: structures that name their head keep it.

    Raises:
        InputError: the file or one of its values cannot be used.
    """
    if is_hdf5_path(path):
        return read_prepared(files_of(path), path, head.name)
    keys = dataclasses.asdict(head.keys)
    return read_configurations(
        path,
        keys={name: key for name, key in keys.items() if name != "head"},
        config_type_weights=head.config_type_weights,
        head_name=head.name,
        head_key=head.keys.head,
        extract_atomic_energies=training,
        keep_isolated_atoms=head.keep_isolated_atoms,
        heads_from_file=heads_from_file,
    )


def read_test_folder(folder: str, head: HeadPlan, *, sharded: bool) -> dict[str, LabelledFile]:
    """The test sets of a folder by name, ``<set>_<head>``.

    A set is a file, or the shards ``<set>_0.h5``, ``<set>_1.h5`` ... that mace_prepare_data wrote (whose own
    name of the head at the end of ``<set>`` does not count); with ``sharded`` it is a folder of such files.

    Raises:
        InputError: no folder, no set in it, or one that cannot be read.
    """
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"--test_dir={folder} (head {head.name}) is no folder: give one of HDF5 files")
    sets: dict[str, list[Path]] = {}
    if sharded:
        sets = {inner.name: files_of(inner) for inner in sorted(path.iterdir()) if inner.is_dir()}
        if not sets:
            raise InputError(
                f"--test_dir={folder} (head {head.name}) holds no folder, and --multi_processed_test asks "
                "for a folder a set: leave out the latter, or name the folder above"
            )
    else:
        for file in files_of(path):
            sets.setdefault(_SHARD.sub("", file.stem), []).append(file)
    tests: dict[str, LabelledFile] = {}
    for name, files in sets.items():
        shown, test = _read_set(name, files, path, head)
        if shown in tests:
            raise InputError(f"--test_dir={folder} (head {head.name}) holds two sets '{shown}': rename one")
        tests[shown] = test
    return tests


def _read_set(name: str, files: list[Path], folder: Path, head: HeadPlan) -> tuple[str, LabelledFile]:
    shown = str(files[0] if len(files) == 1 else folder / name)
    stored = read_prepared(files, shown)
    inner = stored.outlines[0].head
    # mace-torch 0.3.16 knows no head there and writes "Default__0.h5".
    bare = name.removesuffix(f"_{inner}").rstrip("_")
    return f"{bare}_{head.name}", stored.with_head(head.name)
