"""Command-line arguments: parsers, and the plans made from them. Nothing here imports torch or numpy."""

from mace.arguments.eval_flags import check_eval_args
from mace.arguments.parsers import (
    build_default_arg_parser,
    build_eval_arg_parser,
    build_preprocess_arg_parser,
)
from mace.arguments.parsing import check_float_or_none, str2bool
from mace.arguments.plans import TrainPlan
from mace.arguments.reconcile import check_args

__all__ = [
    "TrainPlan",
    "build_default_arg_parser",
    "build_eval_arg_parser",
    "build_preprocess_arg_parser",
    "check_args",
    "check_eval_args",
    "check_float_or_none",
    "str2bool",
]
