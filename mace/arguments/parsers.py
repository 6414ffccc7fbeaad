"""The parsers of the commands, with values from a YAML file where a command has ``--config``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any, NoReturn, TextIO

import configargparse
import yaml

from mace.arguments.doctor_flags import DOCTOR
from mace.arguments.eval_flags import EVAL
from mace.arguments.flags import FlagGroup, add_groups
from mace.arguments.preprocess_flags import PREPROCESS
from mace.arguments.train_flags import TRAIN
from mace.exceptions import InputError


def build_default_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of ``mace_run_train``."""
    parser = parser_of("mace_run_train", "Train a MACE force field.", TRAIN, config=True)
    parser.usage = "mace_run_train --name NAME --train_file FILE [flags]"
    return parser


def build_preprocess_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of ``mace_prepare_data``."""
    return parser_of("mace_prepare_data", "Prepare large data sets.", PREPROCESS, config=True)


def build_eval_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of ``mace_eval_configs``."""
    return parser_of("mace_eval_configs", "Label frames with a model.", EVAL, config=False)


def build_doctor_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of ``mace_doctor``, which takes what that of ``mace_run_train`` takes."""
    parser = parser_of("mace_doctor", "Look at what a long run needs, before it starts.", DOCTOR, config=True)
    parser.usage = "mace_doctor [--model FILE] [flags of mace_run_train]"
    parser.epilog = "status: 0 nothing worse than notes, 1 warnings, 2 errors, 3 a wrong command line"
    return parser


_LIST_LITERALS = ("radial_MLP", "atomic_numbers")  # flags that take the text of a Python list


class _Parser(configargparse.ArgumentParser):  # type: ignore[misc]  # the package has no types
    """A parser whose complaint is one line: the usage of two hundred flags would hide it."""

    def error(self, message: str) -> NoReturn:
        cause = sys.exc_info()[1]
        if isinstance(cause, InputError):  # raised by _open_config; it says better what is wrong
            raise cause
        sys.stderr.write(f"{self.prog}: error: {message} (see {self.prog} --help)\n")
        sys.exit(2)

    def convert_item_to_command_line_arg(self, action: argparse.Action | None, key: str, value: Any) -> Any:
        """Let a YAML list stand for the text of a Python list."""
        if isinstance(value, list) and key in _LIST_LITERALS:
            value = str(value)
        return super().convert_item_to_command_line_arg(action, key, value)


class _YamlFile(configargparse.YAMLConfigFileParser):  # type: ignore[misc]  # the package has no types
    """YAML settings; a file that is no mapping is the user's error, said in one line."""

    def parse(self, stream: TextIO) -> Any:
        try:
            settings = yaml.safe_load(stream)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"--config {stream.name!r} is not a YAML file: {reason}") from None
        if not isinstance(settings, dict):
            raise InputError(
                f"--config {stream.name!r} is not a mapping: give lines of the form 'flag: value'"
            )
        stream.seek(0)
        return super().parse(stream)


def _open_config(path: str) -> TextIO:
    try:
        return open(path, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--config {path!r} cannot be read ({error.strerror}): give an existing file"
        ) from None


def parser_of(
    program: str, description: str, groups: Iterable[FlagGroup], *, config: bool
) -> argparse.ArgumentParser:
    """Return a parser with the flags of ``groups``, and with ``--config`` for a YAML file if asked for."""
    parser = _Parser(
        prog=program,
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        config_file_parser_class=_YamlFile,
        config_file_open_func=_open_config,
    )
    if config:
        parser.add_argument(
            "--config", type=str, is_config_file=True, help="YAML file with values of any other flags"
        )
    add_groups(parser, groups)
    assert isinstance(parser, argparse.ArgumentParser)
    return parser
