"""Flags of ``mace_prepare_data``.

Upstream also parses four flags of a sampler that it never runs; they do not exist here.
"""

import os

from mace.arguments.data_flags import CONFIG_TYPE_WEIGHTS, KEY_FLAGS
from mace.arguments.flags import ON, REQUIRED, Flag, FlagGroup
from mace.arguments.limits import AT_LEAST_ONE, POSITIVE, SEED
from mace.arguments.parsing import str2bool

PREPROCESS = (
    FlagGroup(
        "data",
        (
            Flag("--train_file", str, REQUIRED, "training data, any format that ASE reads"),
            Flag("--valid_file", str, None, "validation data; without it they are split off"),
            Flag("--valid_fraction", float, 0.1, "fraction split off for validation"),
            Flag("--test_file", str, None, "test data"),
            Flag("--heads", str, None, "dict of heads", later="prepare the data of each head apart"),
            Flag("--r_max", float, 5.0, "cutoff radius, Angstrom", limit=POSITIVE),
            CONFIG_TYPE_WEIGHTS,
            Flag("--atomic_numbers", str, None, "elements, a list; without it those of the data"),
            Flag("--E0s", str, None, "energies of isolated atoms, for the statistics"),
        ),
    ),
    FlagGroup("names of the labels in the files", KEY_FLAGS),
    FlagGroup(
        "output",
        (
            Flag(
                "--num_process",
                int,
                max(1, (os.cpu_count() or 1) // 4),
                "number of processes, and of files for each set",
                limit=AT_LEAST_ONE,
            ),
            Flag("--work_dir", str, ".", "folder of the indices of a split"),
            Flag("--h5_prefix", str, "", "folder of the folders train, val and test"),
            Flag("--compute_statistics", ON, False, "also write statistics.json"),
            Flag("--batch_size", int, 16, "without effect: the statistics are exact", limit=AT_LEAST_ONE),
            Flag(
                "--scaling",
                str,
                "rms_forces_scaling",
                "how the scale is measured",
                choices=("std_scaling", "rms_forces_scaling", "no_scaling"),
            ),
            Flag("--shuffle", str2bool, True, "shuffle training and validation data"),
            Flag("--seed", int, 123, "seed of split and shuffle", limit=SEED),
        ),
    ),
)
