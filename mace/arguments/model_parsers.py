"""The parsers of the commands that make model files of other files."""

from __future__ import annotations

import argparse

from mace.arguments.parsers import parser_of

FORMATS = ("model", "bundle", "torchscript", "mace-torch", "cp-mace")
_DTYPES = ("float32", "float64")


def build_convert_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of ``mace_convert``."""
    parser = parser_of("mace_convert", "Turn a model into another format.", (), config=False)
    parser.add_argument("input", help="model file of any kind")
    parser.add_argument("output", help="file to write")
    parser.add_argument("--format", choices=FORMATS, help="format of the output; else by its ending")
    parser.add_argument("--device", default="cpu", help="where to convert")
    parser.add_argument(
        "--dtype", choices=_DTYPES, help="floating type of the output; else that of the input"
    )
    parser.add_argument("--config", help="JSON file of a state dict, if it is not NAME.json beside it")
    return parser


def build_convert_device_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of ``mace_convert_device``."""
    parser = parser_of("mace_convert_device", "Move a model to another device.", (), config=False)
    parser.add_argument("model_file", help="model file")
    parser.add_argument("--target_device", "-t", default="cpu", help="device, e.g. cpu or cuda")
    parser.add_argument("--output_file", "-o", help="file to write; else <model_file>.<target_device>")
    return parser


def build_rescue_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of ``mace_rescue``."""
    parser = parser_of(
        "mace_rescue",
        "Turn what an older script or a crashed run has left into standard files.",
        (),
        config=False,
    )
    parser.add_argument("source", help="checkpoint, pickled module or state dict; or the folder of a run")
    parser.add_argument("--output", "-o", help="file to write, .model or .pt; else <source>_rescued.<ending>")
    parser.add_argument(
        "--log", help="log of the run of a checkpoint, if it is not ../logs/<tag>[_debug].log"
    )
    parser.add_argument("--name", help="name of the run in a folder")
    parser.add_argument("--seed", type=int, help="its seed, if the folder has several")
    parser.add_argument("--trust", action="store_true", help="run the code that the file names, if need be")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    return parser


def build_select_head_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of ``mace_select_head``."""
    parser = parser_of("mace_select_head", "Make a model of one head.", (), config=False)
    parser.add_argument("model_file", help="model file")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--head_name", "-n", help="head to keep; else the first that is not pt_head")
    group.add_argument("--list_heads", "-l", action="store_true", help="name the heads and stop")
    parser.add_argument("--target_device", "-d", help="device of the output; else the CPU")
    parser.add_argument(
        "--output_file", "-o", help="file to write; else <model_file>.<head_name>[.<target_device>]"
    )
    return parser


def build_e3nn_cueq_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of ``mace_e3nn_cueq``."""
    return _backend_parser("mace_e3nn_cueq", "Let cuEquivariance evaluate a model.", "cueq_model.pt")


def build_cueq_to_e3nn_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of ``mace_cueq_to_e3nn``."""
    return _backend_parser("mace_cueq_to_e3nn", "Let e3nn evaluate a model.", "e3nn_model.pt")


def _backend_parser(program: str, description: str, ending: str) -> argparse.ArgumentParser:
    parser = parser_of(program, description, (), config=False)
    parser.add_argument("input_model", help="model file")
    parser.add_argument("--output_model", default=ending, help="written to <input without ending>.<this>")
    parser.add_argument("--device", default="cpu", help="where to convert")
    parser.add_argument(
        "--return_model", action="store_false", help="without effect: the command always writes the file"
    )
    return parser
