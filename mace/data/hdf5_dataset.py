"""Graphs from HDF5 files, and graphs and configurations to them, under their well-known address."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import torch
from torch.utils.data import ConcatDataset, Dataset

from mace.tools.utils import AtomicNumberTable

from .atomic_data import AtomicData
from .hdf5_files import HDF5File, files_of, save_configurations_as_HDF5
from .hdf5_layout import unpack_value, write_value
from .labels import LABELS

__all__ = [
    "HDF5Dataset",
    "dataset_from_sharded_hdf5",
    "save_AtomicData_to_HDF5",
    "save_configurations_as_HDF5",
    "save_dataset_as_HDF5",
    "unpack_value",
    "write_value",
]

_GRAPH_FIELDS = (
    "num_nodes",
    "edge_index",
    "positions",
    "shifts",
    "unit_shifts",
    "cell",
    "node_attrs",
    "weight",
    "head",
    "potential_flag",
    *(label.name for label in LABELS),
    *(label.weight for label in LABELS if label.weight is not None),
)


class HDF5Dataset(Dataset[AtomicData]):
    """The graphs of one file of mace_prepare_data, each built when it is asked for.

    Args:
        file_path: the file.
        r_max: cutoff, Angstrom.
        z_table: elements of the model.
        heads: names of the model's heads.
        head: the head of every graph; without it the stored one, which must be among ``heads``.
        empty_potential_value: a potential that is this number is no label, V.
        dtype: of floating point tensors: that of the file unless another is asked for.

    Attributes:
        drop_last: what the file says of itself to upstream's loaders; a run of ours evaluates every graph.

    Raises:
        InputError: the file cannot be read; when a graph is asked for, also its element or head.
    """

    def __init__(
        self,
        file_path: str | Path,
        r_max: float,
        z_table: AtomicNumberTable,
        *,
        heads: Sequence[str] | None = None,
        head: str | None = None,
        empty_potential_value: float | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self._file = HDF5File(file_path)
        self.drop_last = self._file.drop_last
        self._r_max, self._z_table, self._heads, self._head = r_max, z_table, heads, head
        self._empty_potential_value, self._dtype = empty_potential_value, dtype

    def __len__(self) -> int:
        return len(self._file)

    def __getitem__(self, index: int) -> AtomicData:
        configuration = self._file[index + len(self) if index < 0 else index]
        if self._head is not None:
            configuration.head = self._head
        return AtomicData.from_config(
            configuration,
            z_table=self._z_table,
            cutoff=self._r_max,
            heads=self._heads,
            empty_potential_value=self._empty_potential_value,
            dtype=self._dtype,
        )


def dataset_from_sharded_hdf5(
    files: str | Path, z_table: AtomicNumberTable, r_max: float, **settings: Any
) -> ConcatDataset[AtomicData]:
    """The graphs of all HDF5 files of a folder, one file after the other.

    ``settings`` are the keywords of :class:`HDF5Dataset`; it raises what that does.
    """
    return ConcatDataset([HDF5Dataset(file, r_max, z_table, **settings) for file in files_of(files)])


def save_dataset_as_HDF5(dataset: Sequence[AtomicData], out_name: str | Path) -> None:  # noqa: N802
    """Write graphs to a new file, ``config_<i>`` a graph; the file appears whole or not at all."""
    from mace.tools.files import atomic_write  # comes with a patch: a run without it may not need it

    def write(path: str) -> None:
        with h5py.File(path, "w") as file:
            for index, data in enumerate(dataset):
                save_AtomicData_to_HDF5(data, index, file)

    atomic_write(out_name, lambda file: write(file.name))


def save_AtomicData_to_HDF5(data: AtomicData, i: int, h5_file: h5py.File) -> None:  # noqa: N802
    """Write a graph as the group ``config_<i>`` of an open file; what is None is left out."""
    group = h5_file.create_group(f"config_{i}")
    for field in _GRAPH_FIELDS:
        value = data[field]
        if value is not None:
            group[field] = value.numpy(force=True) if isinstance(value, torch.Tensor) else value
