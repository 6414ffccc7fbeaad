"""From data files to graphs: labels, readers, neighbour lists."""

from .atomic_data import AtomicData
from .hdf5_dataset import (
    HDF5Dataset,
    dataset_from_sharded_hdf5,
    save_AtomicData_to_HDF5,
    save_configurations_as_HDF5,
    save_dataset_as_HDF5,
)
from .neighborhood import get_neighborhood
from .utils import (
    Configuration,
    Configurations,
    compute_average_E0s,
    config_from_atoms,
    config_from_atoms_list,
    load_from_xyz,
    random_train_valid_split,
    test_config_types,
)

__all__ = [
    "AtomicData",
    "Configuration",
    "Configurations",
    "HDF5Dataset",
    "compute_average_E0s",
    "config_from_atoms",
    "config_from_atoms_list",
    "dataset_from_sharded_hdf5",
    "get_neighborhood",
    "load_from_xyz",
    "random_train_valid_split",
    "save_AtomicData_to_HDF5",
    "save_configurations_as_HDF5",
    "save_dataset_as_HDF5",
    "test_config_types",
]
