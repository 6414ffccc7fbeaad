"""The plan of ``mace_prepare_data``: what the command line asked for, checked once and frozen."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path

from mace.arguments.data_plan import HeadPlan
from mace.arguments.flags import check_values
from mace.arguments.heads import plan_heads
from mace.arguments.parsing import is_hdf5_path
from mace.arguments.preprocess_flags import PREPROCESS
from mace.arguments.train_flags import DEFAULTS
from mace.exceptions import InputError

STORED_HEAD = "Default"  # of structures that name none


@dataclass(frozen=True, kw_only=True)
class PreparePlan:
    """Everything one call of ``mace_prepare_data`` does."""

    head: HeadPlan  # files and how they are read; structures without a head of their own get its name
    folder: Path  # of train, val, test and statistics.json
    work_dir: Path  # of the indices of a split
    num_process: int
    r_max: float  # Angstrom
    scaling: str
    compute_statistics: bool
    shuffle: bool
    seed: int

    @property
    def valid_indices_file(self) -> Path:
        """Which structures of the training file validate, where it is split."""
        return self.work_dir / f"valid_indices_{self.seed}.txt"

    @classmethod
    def from_namespace(cls, args: Namespace) -> PreparePlan:
        """Turn parsed arguments into a plan. Raises ``InputError`` for values that cannot be used."""
        check_values(args, PREPROCESS)
        for flag in ("train_file", "valid_file", "test_file"):
            path = getattr(args, flag)
            if path is not None and is_hdf5_path(path):
                raise InputError(
                    f"--{flag} is {path!r}: give the file to make HDF5 data of, one that ASE reads"
                )
        (head,) = plan_heads(Namespace(**{**DEFAULTS, **vars(args)}))
        return cls(
            head=replace(head, name=STORED_HEAD),
            folder=Path(args.h5_prefix),
            work_dir=Path(args.work_dir),
            num_process=args.num_process,
            r_max=args.r_max,
            scaling=args.scaling,
            compute_statistics=args.compute_statistics,
            shuffle=args.shuffle,
            seed=args.seed,
        )
