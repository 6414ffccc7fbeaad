"""Configurations, their readers and what is done with lists of them, under their well-known address."""

from mace.tools.utils import AtomicNumberTable

from .atomic_energies import compute_average_E0s
from .configuration import (
    DEFAULT_CONFIG_TYPE,
    DEFAULT_CONFIG_TYPE_WEIGHTS,
    Cell,
    Charges,
    Configuration,
    Configurations,
    Forces,
    Pbc,
    Positions,
    Stress,
    Vector,
    Virials,
    config_from_atoms,
    config_from_atoms_list,
)
from .hdf5_dataset import (
    save_AtomicData_to_HDF5,
    save_configurations_as_HDF5,
    save_dataset_as_HDF5,
    write_value,
)
from .readers import load_from_xyz
from .splits import random_train_valid_split, test_config_types

__all__ = [
    "DEFAULT_CONFIG_TYPE",
    "DEFAULT_CONFIG_TYPE_WEIGHTS",
    "AtomicNumberTable",
    "Cell",
    "Charges",
    "Configuration",
    "Configurations",
    "Forces",
    "Pbc",
    "Positions",
    "Stress",
    "Vector",
    "Virials",
    "compute_average_E0s",
    "config_from_atoms",
    "config_from_atoms_list",
    "load_from_xyz",
    "random_train_valid_split",
    "save_AtomicData_to_HDF5",
    "save_configurations_as_HDF5",
    "save_dataset_as_HDF5",
    "test_config_types",
    "write_value",
]
