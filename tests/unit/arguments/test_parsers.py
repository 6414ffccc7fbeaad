"""The parsers have upstream's flags, with the differences named here and no others."""

import argparse
import json
from pathlib import Path

import pytest

from mace.arguments import (
    build_default_arg_parser,
    build_eval_arg_parser,
    build_preprocess_arg_parser,
    check_float_or_none,
    str2bool,
)
from mace.arguments.model_flags import TWO_BODY_BLOCKS
from mace.exceptions import InputError

UPSTREAM = json.loads((Path(__file__).parent / "upstream_flags.json").read_text())
PARSERS = {
    "mace_run_train": build_default_arg_parser,
    "mace_run_train_additions": build_default_arg_parser,
    "mace_prepare_data": build_preprocess_arg_parser,
    "mace_eval_configs": build_eval_arg_parser,
}
TYPES = {
    "str": str,
    "int": int,
    "float": float,
    "bool (parsed)": str2bool,
    "float or None": check_float_or_none,
}
# (command, flag) -> what differs, and why.
DIFFERENT = {
    ("mace_run_train", "--compute_potential"): {
        "default": None,  # A6: on for models with a Fermi level; False is told from nothing
    },
    ("mace_run_train", "--amsgrad"): {
        "type": "bool (parsed)",  # D19: it can be switched off: --amsgrad=False
    },
    ("mace_run_train", "--wandb_log_hypers"): {
        "type": "str",  # D19: upstream splits the text into characters; here it takes several names
    },
    ("mace_run_train_additions", "--launcher"): {
        "default": None,  # recognised from the environment
    },
    ("mace_run_train_additions", "--plot"): {
        "default": False,  # nothing is plotted yet
    },
    ("mace_run_train_additions", "--les_arguments"): {
        "type": "str",  # the file is read where it is used
    },
    ("mace_prepare_data", "--num_process"): {
        "default": build_preprocess_arg_parser().get_default("num_process"),  # F3: 1 at least, see below
    },
}
ADDED_CHOICES = {
    "--error_table": {"DipolePolarRMSE"},
    "--model": {"PolarMACE", "MACELES", "AtomicDielectricMACE"},
    "--interaction": {"RealAgnosticResidualNonLinearInteractionBlock", *TWO_BODY_BLOCKS},
    "--interaction_first": {"RealAgnosticResidualNonLinearInteractionBlock", *TWO_BODY_BLOCKS},
    "--loss": {"dipole_polar", "l1l2energyforces"},
}
# A21: flags of a sampler that upstream parses and never runs.
DROPPED = {"--mdecay", "--burn_in", "--sample_interval", "--max_samples"}

ROWS = [
    pytest.param(command, row, id=f"{command}{row['flags'][0]}")
    for command, rows in UPSTREAM.items()
    for row in rows
    if row["flags"][0] not in DROPPED
]


def action_of(parser: argparse.ArgumentParser, flag: str) -> argparse.Action:
    return parser._option_string_actions[flag]


@pytest.mark.parametrize(("command", "row"), ROWS)
def test_flag_is_as_upstream(command, row):
    parser = PARSERS[command]()
    flag = row["flags"][0]
    expected = {**row, **DIFFERENT.get((command, flag), {})}
    added = ADDED_CHOICES.get(flag, set()) if command == "mace_run_train" else set()
    action = action_of(parser, flag)
    assert set(row["flags"]) <= set(action.option_strings)
    assert action.dest == row.get("dest", flag.removeprefix("--"))
    assert action.required == row.get("required", False)
    if not action.required:
        assert action.default == expected["default"]
    assert set(action.choices or ()) == set(row.get("choices", ())) | added
    if expected["type"].startswith("flag"):
        assert action.nargs == 0
        assert action.const is ("True" in expected["type"])
    else:
        assert action.type is TYPES[expected["type"]]


def test_every_difference_is_one():
    for (command, flag), change in DIFFERENT.items():
        row = next(row for row in UPSTREAM[command] if flag in row["flags"])
        assert any(row[key] != value for key, value in change.items()), flag


def test_a21_flags_without_effect_are_gone():
    known = build_preprocess_arg_parser()._option_string_actions
    assert not DROPPED & set(known)


def test_f3_at_least_one_process():
    assert build_preprocess_arg_parser().get_default("num_process") >= 1


@pytest.mark.parametrize(
    "flag", ["--electron_key", "--potential_key", "--swa_potential_weight", "--stage_two_potential_weight"]
)
def test_a3_a20_own_flags(flag):
    assert action_of(build_default_arg_parser(), flag)


@pytest.mark.parametrize(
    ("given", "amsgrad"), [([], True), (["--amsgrad"], True), (["--amsgrad=False"], False)]
)
def test_d19_amsgrad_can_be_switched_off(given, amsgrad):
    assert build_default_arg_parser().parse_args(["--name=x", *given]).amsgrad is amsgrad


@pytest.mark.parametrize(
    ("text", "value"), [("yes", True), ("T", True), ("1", True), ("No", False), ("f", False), (True, True)]
)
def test_str2bool(text, value):
    assert str2bool(text) is value


def test_str2bool_refuses_other_words():
    with pytest.raises(argparse.ArgumentTypeError, match="Boolean value expected."):
        str2bool("perhaps")


def test_check_float_or_none():
    assert check_float_or_none("None") is None
    assert check_float_or_none("2.5") == 2.5
    with pytest.raises(argparse.ArgumentTypeError):
        check_float_or_none("none")


@pytest.mark.parametrize(
    "wrong", ["--no_such_flag=1", "--model=NoModel", "--r_max=far", "--compute_stress=perhaps"]
)
def test_wrong_arguments_end_with_status_2_and_one_line(wrong, capsys):
    with pytest.raises(SystemExit) as stop:
        build_default_arg_parser().parse_args(["--name=x", wrong])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert wrong.split("=")[0] in error


def parse_config(tmp_path, text, *given):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return build_default_arg_parser().parse_args([f"--config={path}", *given])


def test_config_file(tmp_path):
    text = """
name: from_file
r_max: 4.5
ema: true
amsgrad: false
hidden_irreps: null
radial_MLP: [32, 32]
wandb_log_hypers: [lr, seed]
stage_two_lr: 0.5
heads:
  one:
    train_file: one.xyz
    E0s: {1: -13.6}
"""
    args = parse_config(tmp_path, text, "--r_max=6")
    assert args.name == "from_file"
    assert args.r_max == 6.0  # the command line wins
    assert args.ema is True
    assert args.amsgrad is False
    assert args.hidden_irreps is None
    assert args.radial_MLP == "[32, 32]"
    assert args.wandb_log_hypers == ["lr", "seed"]
    assert args.swa_lr == 0.5
    assert args.heads == "{'one': {'train_file': 'one.xyz', 'E0s': {1: -13.6}}}"


def test_config_with_an_unknown_key(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        parse_config(tmp_path, "name: x\nno_such_key: 1\n")
    assert stop.value.code == 2
    assert "no_such_key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("- a\n- b\n", "not a mapping"), ("just words", "not a mapping"), ("a: [1", "not a YAML file")],
)
def test_config_that_is_no_mapping(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint) as error:
        parse_config(tmp_path, text)
    assert "\n" not in str(error.value)


def test_config_that_does_not_exist(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        build_default_arg_parser().parse_args([f"--config={tmp_path / 'none.yaml'}", "--name=x"])
