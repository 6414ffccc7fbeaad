"""Parsers of the commands, under upstream's path."""

from mace.arguments.parsers import build_default_arg_parser, build_preprocess_arg_parser
from mace.arguments.parsing import check_float_or_none, str2bool

__all__ = ["build_default_arg_parser", "build_preprocess_arg_parser", "check_float_or_none", "str2bool"]
