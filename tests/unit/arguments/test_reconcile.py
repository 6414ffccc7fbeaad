"""Arguments that depend on each other."""

import logging

import pytest

from mace.arguments import build_default_arg_parser, check_args
from mace.exceptions import InputError
from mace.tools.arg_parser_tools import check_args as upstream_path

WARNING, INFO = logging.WARNING, logging.INFO


def reconciled(*given):
    return check_args(build_default_arg_parser().parse_args(["--name=x", *given]))


def test_the_function_has_upstreams_path():
    assert upstream_path is check_args


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ("128x0e+128x1o", 128, 1)),
        (["--num_channels=32", "--max_L=2"], ("32x0e+32x1o+32x2e", 32, 2)),
        (["--num_channels=16"], ("16x0e+16x1o", 16, 1)),
        (["--max_L=0"], ("128x0e", 128, 0)),
        (["--hidden_irreps=8x1o + 8x0e"], ("8x0e+8x1o", 8, 1)),
        (["--hidden_irreps=8x0e", "--num_channels=8"], ("8x0e", 8, 0)),
        (["--hidden_irreps=8x0e + 8x1o", "--max_L=1"], ("8x0e+8x1o", 8, 1)),
    ],
)
def test_features(given, expected):
    args, messages = reconciled(*given)
    assert (args.hidden_irreps, args.num_channels, args.max_L) == expected
    assert messages == []


def test_all_three_of_the_features():
    args, messages = reconciled("--hidden_irreps=8x0e", "--num_channels=4", "--max_L=1")
    assert args.hidden_irreps == "4x0e+4x1o"
    assert messages == [
        ("All of hidden_irreps, num_channels and max_L are specified", WARNING),
        ("Using num_channels and max_L to create hidden_irreps: 4x0e+4x1o.", WARNING),
    ]


@pytest.mark.parametrize(
    ("given", "start"),
    [
        (["--swa", "--max_num_epochs=100"], 75),
        (["--swa", "--max_num_epochs=2"], 1),
        (["--start_stage_two=0", "--max_num_epochs=3"], 0),
        (["--start_swa=2", "--max_num_epochs=3"], 2),
    ],
)
def test_start_of_stage_two(given, start):
    args, messages = reconciled(*given)
    assert args.swa is True
    assert args.start_swa == start
    said = [("Stage Two is activated as start_stage_two was defined", INFO)]
    assert messages == (said if any("start" in flag for flag in given) else [])


@pytest.mark.parametrize(("start", "sign"), [(5, ">"), (3, "=")])
def test_a_stage_two_after_the_end_is_off(start, sign):
    args, messages = reconciled(f"--start_swa={start}", "--max_num_epochs=3")
    assert args.swa is False
    assert messages[1:] == [
        (f"start_stage_two must be less than max_num_epochs, got {start} {sign} 3", WARNING),
        (f"Stage Two will not start, as start_stage_two {sign} max_num_epochs", WARNING),
    ]


def test_folders():
    args, _ = reconciled("--work_dir=w", "--results_dir=r")
    assert (args.log_dir, args.model_dir, args.results_dir) == ("w/logs", "w", "r")
    assert (args.checkpoints_dir, args.downloads_dir) == ("w/checkpoints", "w/downloads")


def test_the_given_namespace_is_left_as_it_is():
    given = build_default_arg_parser().parse_args(["--name=x"])
    args, _ = check_args(given)
    assert given.hidden_irreps is None and args.hidden_irreps == "128x0e+128x1o"


def test_reconciled_arguments_stay_as_they_are():
    once, _ = reconciled("--model=FermiMACE", "--start_swa=1")
    twice, _ = check_args(once)
    assert vars(twice) == vars(once)


def test_contradiction():
    with pytest.raises(InputError, match="--num_channels=4 contradicts"):
        reconciled("--hidden_irreps=8x0e", "--num_channels=4")
