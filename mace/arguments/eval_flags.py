"""Flags of ``mace_eval_configs``."""

from __future__ import annotations

import argparse

from mace.arguments.flags import ON, REQUIRED, Flag, FlagGroup, check_values
from mace.arguments.limits import AT_LEAST_ONE
from mace.arguments.parsing import str2bool
from mace.exceptions import InputError

EVAL = (
    FlagGroup(
        "evaluation",
        (
            Flag("--configs", str, REQUIRED, "frames to label, any format that ASE reads"),
            Flag("--model", str, REQUIRED, "model file"),
            Flag("--output", str, REQUIRED, "extended XYZ file to write"),
            Flag("--device", str, "cpu", "where to compute", choices=("cpu", "cuda")),
            Flag(
                "--default_dtype",
                str,
                "float64",
                "floating type that model and data are converted to",
                choices=("float32", "float64"),
            ),
            Flag("--batch_size", int, 64, "frames of a batch", limit=AT_LEAST_ONE),
            Flag("--compute_stress", ON, False, "also write the stress"),
            Flag("--return_contributions", ON, False, "also write the energies of the layers"),
            Flag("--info_prefix", str, "MACE_", "put before the names of what is written"),
            Flag("--head", str, None, "head to evaluate"),
            Flag("--electron_key", str, "electron", "info key of the number of electrons"),
            Flag("--enable_cueq", ON, False, "evaluate with cuequivariance"),
            Flag("--charges_key", str, "REF_charges", "arrays key of the charges of dipole models, e"),
            Flag("--compute_bec", ON, False, "Born effective charges", later="MACELES"),
            Flag("--return_descriptors", ON, False, "also write the features of the atoms"),
            Flag("--descriptor_num_layers", int, -1, "of how many layers, from the first; -1: of all"),
            Flag(
                "--descriptor_aggregation_method",
                str,
                None,
                "one descriptor a frame: the mean over its atoms, or over those of each element",
                choices=("mean", "per_element_mean"),
            ),
            Flag("--descriptor_invariants_only", str2bool, True, "the scalars of every layer only"),
            Flag("--return_node_energies", ON, False, "also write the energies of the atoms, E0 included"),
        ),
    ),
)


def check_eval_args(args: argparse.Namespace) -> None:
    """Raise ``InputError`` for values out of range, contradictions and what is not built yet."""
    check_values(args, EVAL)
    if args.return_descriptors:
        return
    for flag in EVAL[0].flags:
        if flag.attribute.startswith("descriptor_") and getattr(args, flag.attribute) != flag.default:
            raise InputError(f"{flag.name} has no effect without --return_descriptors: add it")
