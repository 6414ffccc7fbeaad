"""The commands that turn model files into others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mace.arguments import model_parsers
from mace.cli import convert, convert_cueq_e3nn, convert_device, convert_e3nn_cueq, select_head
from mace.exceptions import InputError
from mace.tools.loading import load_from_json, load_model
from mace.tools.rebuild import extract_config_mace_model, rebuild
from mace.tools.same import differences, same_bits
from mace.tools.saving import save_model
from tests import small_models
from tests.unit.tools.test_head_selection import HEADS
from tests.upstream_pickles import save_as_upstream

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(rebuild(small_models.fermi()), tmp_path / "m.model")
    return tmp_path / "m.model"


def run_convert(*given: object) -> None:
    convert.run(model_parsers.build_convert_arg_parser().parse_args([str(item) for item in given]))


def test_a_chain_through_every_format_ends_where_it_began(saved: Path, tmp_path: Path) -> None:
    chain = ["a.safetensors", "b_compiled.model", "c.pt", "d.model"]
    last: Path = saved
    for name in chain:
        form = ["--format=cp-mace"] if name.endswith(".pt") else []
        run_convert(last, tmp_path / name, *form)
        last = tmp_path / name
    model, found = load_model(saved), load_model(last)
    ours, theirs = model.state_dict(), found.state_dict()
    assert ours.keys() == theirs.keys() and all(same_bits(ours[key], theirs[key]) for key in ours)
    assert not differences(model, load_from_json(tmp_path / "b_compiled.model"))


def test_a_model_of_upstream_becomes_one_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model = small_models.fermi(electron_input=False, use_global_state=True)
    save_as_upstream(model, tmp_path / "theirs.model")
    run_convert(tmp_path / "theirs.model", tmp_path / "ours.model", "--dtype=float32")
    found = load_model(tmp_path / "ours.model")
    assert next(found.parameters()).dtype == torch.float32
    assert f"model written to {tmp_path / 'ours.model'}" in capsys.readouterr().out


def test_the_format_must_be_known(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not say which format"):
        run_convert(saved, tmp_path / "m.pt")
    with pytest.raises(InputError, match="give that of the weights"):
        run_convert(saved, tmp_path / "m.json", "--format=cp-mace")


def test_models_on_cuequivariance_reach_other_programs_on_e3nn(saved: Path, tmp_path: Path) -> None:
    args = model_parsers.build_e3nn_cueq_arg_parser().parse_args([str(saved)])
    convert_e3nn_cueq.run_command(args)
    fast = tmp_path / "m.cueq_model.pt"
    assert extract_config_mace_model(load_model(fast))["cueq_config"]["enabled"]
    run_convert(fast, tmp_path / "x_compiled.model")
    run_convert(fast, tmp_path / "x.pt", "--format=cp-mace")
    for path in (tmp_path / "x_compiled.model", tmp_path / "x.pt"):
        model = load_model(path)
        batch = small_models.batch()
        assert torch.allclose(
            model(dict(batch))["energy"], load_model(saved)(dict(batch))["energy"], atol=1e-12
        )


def test_c14_the_back_end_commands_always_write(saved: Path, tmp_path: Path) -> None:
    convert_e3nn_cueq.run_command(
        model_parsers.build_e3nn_cueq_arg_parser().parse_args([str(saved), "--return_model"])
    )
    given = [str(tmp_path / "m.cueq_model.pt"), "--output_model=back.model"]
    convert_cueq_e3nn.run_command(model_parsers.build_cueq_to_e3nn_arg_parser().parse_args(given))
    assert not differences(load_model(saved), load_model(tmp_path / "m.cueq_model.back.model"))


def test_c10_the_target_device_is_that_of_the_output(saved: Path, tmp_path: Path) -> None:
    args = model_parsers.build_convert_device_arg_parser().parse_args([str(saved)])
    convert_device.run(args)
    assert not differences(load_model(saved), load_model(f"{saved}.cpu"))
    args = model_parsers.build_convert_device_arg_parser().parse_args([str(saved), "-t", "meta"])
    with pytest.raises(InputError, match="meta"):
        convert_device.run(args)


def test_c9_a_head_is_selected_without_names(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "heads.model"
    save_model(rebuild(small_models.scale_shift(**HEADS)), path)
    parse = model_parsers.build_select_head_arg_parser().parse_args
    select_head.run(parse([str(path), "-l"]))
    assert capsys.readouterr().out == "Available heads:\n  pt_head\n  a\n  b\n"
    select_head.run(parse([str(path)]))
    assert load_model(f"{path}.a").heads == ["a"]
    select_head.run(parse([str(path), "-n", "b", "-d", "cpu"]))
    assert load_model(f"{path}.b.cpu").heads == ["b"]
    select_head.run(parse([str(path), "-n", "b", "-o", str(tmp_path / "out")]))
    assert load_model(tmp_path / "out").heads == ["b"]


@pytest.mark.parametrize(
    "module", ["convert", "convert_device", "select_head", "convert_e3nn_cueq", "convert_cueq_e3nn"]
)
def test_the_modules_run_and_say_in_one_line_what_is_wrong(module: str, tmp_path: Path) -> None:
    given = ["no.model"] + ["out.model"] * (module == "convert")
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"mace.cli.{module}", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].endswith("error: model file no.model does not exist")
    assert "Traceback" not in result.stderr
