"""From data files to graphs: labels, readers, neighbour lists."""

from .atomic_data import AtomicData
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
    "compute_average_E0s",
    "config_from_atoms",
    "config_from_atoms_list",
    "get_neighborhood",
    "load_from_xyz",
    "random_train_valid_split",
    "test_config_types",
]
