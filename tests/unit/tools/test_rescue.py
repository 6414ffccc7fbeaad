"""Files of older scripts and crashed runs: what is read of them, what is refused, and what is written."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mace.exceptions import InputError
from mace.modules import ScaleShiftMACE
from mace.tools.description import describe
from mace.tools.loading import load_model
from mace.tools.model_building import build_model, model_class_and_config
from mace.tools.rebuild import disable_e3nn_codegen, extract_config_mace_model, rebuild, recorded_config
from mace.tools.rescue import RescuePlan, rescue
from mace.tools.same import differences, same_bits
from mace.tools.statistics import Statistics
from mace.tools.upstream_files import for_upstream
from mace.tools.utils import AtomicNumberTable
from tests import malicious, small_models
from tests.tiny_run import FERMI, make_plan, parse, write_frames

REST = {"optimizer": {"state": {}, "param_groups": []}, "lr_scheduler": {}, "epoch": 3}
_DIPOLE = {"model": "AtomicDipolesMACE", "loss": "dipole", "error_table": "DipoleRMSE"}
RUNS: dict[str, dict[str, Any]] = {
    "MACE": {"model": "MACE", "max_L": 1, "num_channels": 8, "hidden_irreps": None, "gate": "None"},
    "ScaleShiftMACE": {"model": "ScaleShiftMACE", "pair_repulsion": True, "distance_transform": "Agnesi"},
    "reduced": {"model": "MACE", "use_reduced_cg": "True", "correlation": 3, "radial_type": "chebyshev"},
    "FermiMACE": FERMI,
    "FermiMACE_2": {**FERMI, "model": "FermiMACE_2", "radial_type": "gaussian"},
    "FermiMACE_uncertainty": {
        **FERMI,
        "model": "FermiMACE_uncertainty",
        "loss": "fermi_weighted_uncertainty",
        "gate": "tanh",
    },
    "FermiMACE_evidential": {**FERMI, "model": "FermiMACE_evidential", "loss": "fermi_weighted_evidential"},
    "BOTNet": {"model": "BOTNet"},
    "ScaleShiftBOTNet": {"model": "ScaleShiftBOTNet"},
    "AtomicDipolesMACE": {**_DIPOLE, "MLP_irreps": None},
    "EnergyDipolesMACE": {
        "model": "EnergyDipolesMACE",
        "loss": "energy_forces_dipole",
        "error_table": "EnergyDipoleRMSE",
        "MLP_irreps": None,
    },
}


def rescued(source: Path, **how: Any) -> Path:
    (path,) = rescue(RescuePlan(source=source, **how))
    return path


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return path


def plain(path: Path) -> Any:
    return torch.load(path, weights_only=True)


# ---- state dicts


def test_prefixes_go_from_a_state_dict(tmp_path: Path) -> None:
    state = {"module._orig_mod.a.weight": torch.ones(2), "module._orig_mod.b._orig_mod.bias": torch.zeros(1)}
    path = rescued(write(tmp_path / "s.pt", state))
    assert path == tmp_path / "s_rescued.pt"
    found = plain(path)
    assert list(found) == ["a.weight", "b.bias"] and found["a.weight"].tolist() == [1, 1]


def test_prefixes_go_from_every_state_dict_of_a_checkpoint(tmp_path: Path) -> None:
    state = {"module.a": torch.ones(2), "module.module.b": torch.ones(1)}
    content = {"model": state, "ema": {"shadow": [torch.ones(1)], "copy": dict(state)}, "epoch": 3, **REST}
    found = plain(rescued(write(tmp_path / "c.pt", content)))
    assert list(found) == list(content)
    assert list(found["model"]) == list(found["ema"]["copy"]) == ["a", "module.b"]
    assert found["epoch"] == 3 and found["optimizer"] == REST["optimizer"]


def test_an_averaged_model_loses_its_counter(tmp_path: Path) -> None:
    averaged = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 1))
    found = plain(rescued(write(tmp_path / "a.pt", averaged.state_dict())))
    assert list(found) == ["weight", "bias"]


def test_names_that_are_the_models_own_stay(tmp_path: Path) -> None:
    state = {"module.a": torch.ones(2), "b": torch.ones(1)}
    assert list(plain(rescued(write(tmp_path / "s.pt", state)))) == list(state)
    counter = {"n_averaged": torch.tensor(0)}
    assert plain(rescued(write(tmp_path / "n.pt", counter))) == counter


def test_two_tensors_never_become_one(tmp_path: Path) -> None:
    state = {"a._orig_mod.b": torch.ones(2), "a.b": torch.ones(1)}
    with pytest.raises(InputError, match=r"two tensors would be called a\.b"):
        rescue(RescuePlan(source=write(tmp_path / "s.pt", state)))


def test_tensors_of_a_gpu_are_put_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
    source = write(tmp_path / "s.pt", {"model": {"module.a": torch.arange(3.0)}})
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(source, weights_only=True)
    found = plain(rescued(source))["model"]["a"]
    assert found.device.type == "cpu" and found.tolist() == [0, 1, 2]


# ---- what is refused


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("disguise", malicious.PICKLES)
def test_nothing_of_a_file_is_run(tmp_path: Path, disguise: str, zipped: bool) -> None:
    bait, source = tmp_path / "bait", tmp_path / "evil.pt"
    malicious.write(source, disguise, bait, zipped)
    with pytest.raises(InputError) as refusal:
        rescue(RescuePlan(source=source))
    assert "\n" not in str(refusal.value) and str(source) in str(refusal.value)
    assert sorted(tmp_path.iterdir()) == [source]


def test_code_runs_where_the_user_says_so(tmp_path: Path) -> None:
    bait, source = tmp_path / "bait", tmp_path / "evil.pt"
    malicious.write(source, "in a checkpoint", bait)
    with pytest.raises(InputError, match=r"names posix\.system.*--trust"):
        rescue(RescuePlan(source=source))
    rescue(RescuePlan(source=source, trust=True))
    assert bait.exists()


def test_what_is_no_plain_data_is_left_out_of_a_trusted_file(tmp_path: Path, caplog: Any) -> None:
    content = {
        "model": torch.nn.DataParallel(torch.nn.Linear(2, 1)),
        "args": argparse.Namespace(lr=1),
        "loss": np.float64(0.5),
    }
    source = write(tmp_path / "c.pt", content)
    with pytest.raises(InputError, match=r"names argparse\.Namespace.*--trust"):
        rescue(RescuePlan(source=source))
    found = plain(rescued(source, trust=True))
    assert list(found["model"]) == ["weight", "bias"] and found["loss"] == 0.5 and "args" not in found
    assert "['args'] is left out, a Namespace is no plain data" in caplog.text


def test_an_object_within_a_dictionary_needs_trust(tmp_path: Path) -> None:
    source = write(tmp_path / "c.pt", {"model": torch.nn.DataParallel(torch.nn.Linear(2, 1)), "epoch": 3})
    with pytest.raises(InputError, match=r"names torch\.nn\.parallel\.data_parallel\.DataParallel.*--trust"):
        rescue(RescuePlan(source=source))
    assert list(plain(rescued(source, trust=True))["model"]) == ["weight", "bias"]


def test_files_of_another_kind(tmp_path: Path) -> None:
    whole = write(tmp_path / "s.pt", {"a": torch.ones(1000)})
    (tmp_path / "cut.pt").write_bytes(whole.read_bytes()[:2000])
    (tmp_path / "text.pt").write_text("hello")
    flipped = bytearray(whole.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    (tmp_path / "flipped.pt").write_bytes(flipped)
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), str(tmp_path / "jit.pt"))
    write(tmp_path / "list.pt", [1])
    for name, part in (
        ("cut.pt", "is damaged"),
        ("text.pt", "is damaged, or torch has not written it"),
        ("flipped.pt", "is damaged"),
        ("jit.pt", "mace_convert reads it"),
        ("list.pt", "no dictionary of tensors"),
        ("none.pt", "does not exist"),
    ):
        with pytest.raises(InputError, match=part):
            rescue(RescuePlan(source=tmp_path / name))
    assert not list(tmp_path.glob("*_rescued*"))


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    source = write(tmp_path / "s.pt", {"module.a": torch.ones(1)})
    (tmp_path / "o.pt").write_text("mine")
    for output in (source, tmp_path / "o.pt"):
        before = output.read_bytes()
        with pytest.raises(InputError, match=r"exists: .*--overwrite"):
            rescue(RescuePlan(source=source, output=output))
        assert output.read_bytes() == before
    assert list(plain(rescued(source, output=source, overwrite=True))) == ["a"]


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    source = write(tmp_path / "s.pt", {"module.a": torch.ones(1)})
    for output, part in (("o.txt", r"must end with \.model or \.pt"), ("o.model", "holds no model of MACE")):
        with pytest.raises(InputError, match=part):
            rescue(RescuePlan(source=source, output=tmp_path / output))
    with pytest.raises(InputError, match="belong to the folder of a run"):
        rescue(RescuePlan(source=source, name="m"))


# ---- checkpoints


@pytest.mark.parametrize("kind", small_models.MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_description_is_all_that_a_model_needs(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    model = rebuild(small_models.MODELS[kind](dtype)).train()
    description = describe(model, extract_config_mace_model(model))
    content = {"model": {f"module.{name}": t for name, t in model.state_dict().items()}, **REST}
    path = rescued(write(tmp_path / "any.pt", {**content, "description": description}))
    assert path == tmp_path / "any_rescued.model"
    assert not differences(model, load_model(path))


def run_of(folder: Path, heads: tuple[str, ...] = ("default",), **flags: Any) -> tuple[Any, Any]:
    """Arguments and model of a run with statistics that nobody would guess."""
    for name in ("train", "valid"):
        write_frames(folder / f"{name}.xyz", 2)
    plan = make_plan(folder, **flags).model
    rng = np.random.default_rng(len(heads))
    statistics = Statistics(
        z_table=AtomicNumberTable([1, 8]),
        heads=heads,
        atomic_energies=rng.normal(size=(len(heads), 2)),
        avg_num_neighbors=7.3125,
        mean=rng.normal(size=len(heads)),
        std=1 + rng.random(len(heads)),
        mean_electron=0.125 if plan.has_potential else None,
        mean_potential=-3.5 if plan.has_potential else None,
    )
    with disable_e3nn_codegen():
        model = build_model(*model_class_and_config(plan, statistics), "float64")
    return parse(folder, **flags), model


def log_of(args: Any, heads: tuple[str, ...] = ("default",), ours: bool = True) -> str:
    lines = ["INFO: MACE version: 0.3.10"]
    lines += ["DEBUG: Plan: TrainPlan(name='m')"] * ours
    lines += [f"DEBUG: Configuration: {args}", f"INFO: Using heads: {list(heads)}"]
    lines += ["INFO: Atomic Numbers used: " + ("[1, 8]" if ours else "[np.int64(1), np.int64(8)]")]
    lines += ["INFO: Average number of neighbors: 7.3125", "INFO: Building model"]
    return "".join(f"2026-01-01 00:00:00.000 {line}\n" for line in lines)


def write_run(folder: Path, log: str, state: Any, name: str = "m_run-1_epoch-9.pt") -> Path:
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "m_run-1_debug.log").write_text(log)
    return write(folder / "checkpoints" / name, {"model": state, **REST})


@pytest.mark.parametrize("kind", RUNS)
def test_the_log_says_what_weights_do_not(tmp_path: Path, kind: str) -> None:
    args, model = run_of(tmp_path, **RUNS[kind])
    path = rescued(write_run(tmp_path, log_of(args), model.state_dict()))
    found = load_model(path)
    assert not differences(model, found)
    ours, theirs = recorded_config(model)["arguments"], recorded_config(found)["arguments"]
    assert len(theirs) >= 15 and {**ours, **theirs} == ours


def test_heads_come_from_the_log(tmp_path: Path) -> None:
    args, model = run_of(tmp_path, ("a", "b"), model="ScaleShiftMACE")
    source = write_run(tmp_path, log_of(args, ("a", "b")), model.state_dict())
    assert not differences(model, load_model(rescued(source)))
    write_run(tmp_path, log_of(args, ("a",)), model.state_dict())
    with pytest.raises(InputError, match="its heads are a, the weights have 2"):
        rescue(RescuePlan(source=source, overwrite=True))


@pytest.mark.parametrize("kind", ["FermiMACE", "FermiMACE_2", "ScaleShiftMACE"])
def test_a_checkpoint_and_log_of_cp_mace(tmp_path: Path, kind: str) -> None:
    """It logs irreps as derived and objects of its own, and its state has parts without use."""
    args, model = run_of(tmp_path, **{**RUNS[kind], "radial_type": "chebyshev"})
    _, state = for_upstream(_raw(model), "cp-mace")
    theirs = {**vars(args), "num_channels": 8, "max_L": 1, "compute_potential": True}
    for unknown in ("use_reduced_cg", "apply_cutoff"):
        del theirs[unknown]
    theirs["key_specification"] = SimpleNamespace(info_keys={"energy": "REF_energy"})
    text = str(argparse.Namespace(**theirs)).replace("namespace(", "KeySpecification(")
    source = write_run(tmp_path, log_of(text, ours=False), state)
    found = load_model(rescued(source))
    assert found.electron_input is (kind == "FermiMACE") and found.use_global_state is (kind == "FermiMACE_2")
    assert not differences(_raw(model), found)


def _raw(model: torch.nn.Module) -> torch.nn.Module:
    """The model with the Chebyshev polynomials of upstream."""
    with disable_e3nn_codegen():
        twin = ScaleShiftMACE(**{**extract_config_mace_model(model), "radial_type": "chebyshev_raw"}).double()
    twin.load_state_dict(model.state_dict())
    return twin.eval()


def test_the_newest_run_of_a_log_counts_that_came_as_far_as_its_model(tmp_path: Path) -> None:
    args, model = run_of(tmp_path, **FERMI)
    other = parse(tmp_path, **FERMI, gate="tanh")
    cut = log_of(other).partition("Average")[0] + "\n"
    source = write_run(tmp_path, log_of(other) + log_of(args) + cut, model.state_dict())
    assert not differences(model, load_model(rescued(source)))


def test_the_log_of_another_run_is_refused(tmp_path: Path) -> None:
    _, model = run_of(tmp_path, **FERMI)
    for flags, part in (
        ({"r_max": 4.5}, r"its r_max is 4\.5, that of the weights 4"),
        ({"num_cutoff_basis": 6}, "its num_cutoff_basis is 6"),
        ({"num_interactions": 3}, "its num_interactions is 3"),
        ({"correlation": 3}, "does not fit the weights"),
        ({"model": "FermiMACE_2"}, "does not fit the weights"),
    ):
        args = parse(tmp_path, **{**FERMI, **flags})
        source = write_run(tmp_path, log_of(args), model.state_dict())
        with pytest.raises(InputError, match=part) as refusal:
            rescue(RescuePlan(source=source))
        assert "\n" not in str(refusal.value)


def test_logs_that_do_not_say_enough(tmp_path: Path) -> None:
    args, model = run_of(tmp_path, **FERMI)
    whole = log_of(args)
    later = argparse.Namespace(**{**vars(args), "apply_cutoff": False})
    tuned = argparse.Namespace(**{**vars(args), "foundation_model": "small"})
    for log, part in (
        ("", "no log of its run is beside it|says nothing"),
        (whole.partition("Average")[0], "ends before the line 'Average number of neighbors"),
        (whole.replace("used: [1, 8]", "used: [1, 6]"), r"its elements are \[1, 6\]"),
        (whole.partition("lr=")[0], "are cut off"),
        (log_of(later), r"--apply_cutoff in the log=False is not built yet"),
        (log_of(tuned), "foundation model 'small'"),
        (whole.replace("model='FermiMACE'", "model='NoMACE'"), "'NoMACE', which this version does not know"),
        (whole.replace("r_max=4.0", "r_max=[4]"), "--r_max in the log"),
        (whole.replace("pair_repulsion=False", "pair_repulsion='x'"), "must be True or False"),
    ):
        source = write_run(tmp_path, log, model.state_dict())
        with pytest.raises(InputError, match=part) as refusal:
            rescue(RescuePlan(source=source))
        assert "\n" not in str(refusal.value)
    assert list(plain(rescued(source, output=tmp_path / "s.pt"))["model"]) == list(model.state_dict())


def test_a_log_is_never_run(tmp_path: Path) -> None:
    args, model = run_of(tmp_path, **FERMI)
    bait = tmp_path / "bait"
    evil = f"__import__('pathlib').Path({str(bait)!r}).touch()"
    log = log_of(args).replace("seed=1", f"seed={evil}").replace("'default']", f"'default', {evil}]")
    source = write_run(tmp_path, log, model.state_dict())
    assert not differences(model, load_model(rescued(source)))
    assert not bait.exists()
    eval(evil)  # it is no blank shot
    assert bait.exists()


def test_a_log_is_found_beside_the_checkpoints_or_given(tmp_path: Path) -> None:
    args, model = run_of(tmp_path, **FERMI)
    source = write_run(tmp_path, log_of(args), model.state_dict(), "m_run-1_epoch-9_swa.pt")
    moved = write(tmp_path / "else" / "where" / source.name, plain(source))
    with pytest.raises(InputError, match="no log of its run is beside it"):
        rescue(RescuePlan(source=moved))
    short = tmp_path / "logs" / "m_run-1.log"
    short.write_text("INFO: MACE version: 0.3.10\n")
    assert not differences(model, load_model(rescued(source)))
    assert not differences(model, load_model(rescued(moved, log=short)))
    short.with_name("m_run-1_debug.log").unlink()
    with pytest.raises(InputError, match="holds a line 'Configuration"):
        rescue(RescuePlan(source=moved, log=short, overwrite=True))
    with pytest.raises(InputError, match="cannot be read"):
        rescue(RescuePlan(source=moved, log=tmp_path / "none.log", overwrite=True))


# ---- folders of runs


def test_a_folder_gets_the_models_of_both_stages(tmp_path: Path) -> None:
    args, model = run_of(tmp_path, **FERMI)
    for epoch in (2, 10):
        for stage, shift in (("", 0.0), ("_swa", 0.5)):
            state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            state["node_embedding.linear.weight"] += epoch + shift
            write_run(tmp_path, log_of(args), state, f"m_run-1_epoch-{epoch}{stage}.pt")
    written = rescue(RescuePlan(source=tmp_path, name="m"))
    names = [path.relative_to(tmp_path).as_posix() for path in written]
    assert names == [
        "checkpoints/m_run-1.model",
        "m.model",
        "m_compiled.model",
        "checkpoints/m_run-1_stagetwo.model",
        "m_stagetwo.model",
        "m_stagetwo_compiled.model",
    ]
    start = model.state_dict()["node_embedding.linear.weight"]
    for path, shift in zip(written, [10.0] * 3 + [10.5] * 3, strict=True):
        found = load_model(path).state_dict()["node_embedding.linear.weight"]
        assert same_bits(found, start + shift)
    with pytest.raises(InputError, match="exists"):
        rescue(RescuePlan(source=tmp_path, name="m"))


def write_ours(folder: Path, model: torch.nn.Module, name: str, best: dict[str, str], **rest: Any) -> None:
    """A checkpoint of this package, its weights shifted by its epoch."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["node_embedding.linear.weight"] += rest["epoch"]
    description = describe(model, extract_config_mace_model(model))
    content = {"model": state, **REST, "progress": {"best": best}, "description": description, **rest}
    write(folder / "checkpoints" / name, content)


def is_of_epoch(epoch: int, path: Path, model: torch.nn.Module) -> bool:
    name = "node_embedding.linear.weight"
    return same_bits(load_model(path).state_dict()[name], model.state_dict()[name] + epoch)


def test_the_best_checkpoint_is_the_one_that_the_newest_names(tmp_path: Path) -> None:
    _, model = run_of(tmp_path, **FERMI)
    for epoch in (1, 3):
        write_ours(tmp_path, model, f"m_run-1_epoch-{epoch}.pt", {"one": "m_run-1_epoch-1.pt"}, epoch=epoch)
    rescue(RescuePlan(source=tmp_path))
    assert is_of_epoch(1, tmp_path / "m.model", model)


def test_a_stage_of_an_older_run_is_not_that_of_the_newest(tmp_path: Path) -> None:
    _, model = run_of(tmp_path, **FERMI)
    one, two = "m_run-1_epoch-1.pt", "m_run-1_epoch-5_swa.pt"
    write_ours(tmp_path, model, two, {"one": one, "two": two}, epoch=5, run_started=100.0)
    write_ours(tmp_path, model, one, {"one": one}, epoch=1, run_started=200.0)
    written = rescue(RescuePlan(source=tmp_path))
    names = ("checkpoints/m_run-1.model", "m.model", "m_compiled.model")
    assert written == [tmp_path / name for name in names]
    assert is_of_epoch(1, tmp_path / "m.model", model)


def test_a_best_checkpoint_that_is_gone_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, model = run_of(tmp_path, **FERMI)
    best = {"one": "m_run-1_epoch-1.pt", "two": "m_run-1_epoch-5_swa.pt"}
    write_ours(
        tmp_path, model, "m_run-1_epoch-3.pt", {"one": "m_run-1_epoch-3.pt"}, epoch=3
    )  # no longer best
    write_ours(tmp_path, model, best["two"], best, epoch=5)
    written = rescue(RescuePlan(source=tmp_path))
    assert len(written) == 3 and all("_stagetwo" in path.name for path in written)
    assert is_of_epoch(5, tmp_path / "m_stagetwo.model", model)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "m_run-1_epoch-1.pt, the best checkpoint of stage one as m_run-1_epoch-5_swa.pt says" in line
    (tmp_path / "checkpoints" / best["two"]).rename(tmp_path / "checkpoints" / "m_run-1_latest.pt")
    with pytest.raises(InputError, match="has no best checkpoint of m_run-1"):
        rescue(RescuePlan(source=tmp_path, overwrite=True))


def test_a_folder_of_several_runs_needs_their_names(tmp_path: Path) -> None:
    args, model = run_of(tmp_path, **FERMI)
    for tag in ("m_run-1", "m_run-2", "other_run-1"):
        write_run(tmp_path, log_of(args), model.state_dict(), f"{tag}_epoch-0.pt")
    for how in ({}, {"name": "m"}, {"seed": 1}):
        with pytest.raises(InputError, match="several runs fit, it has m_run-1, m_run-2, other_run-1"):
            rescue(RescuePlan(source=tmp_path, **how))
    for how in ({"name": "x"}, {"name": "m", "seed": 3}):
        with pytest.raises(InputError, match="there is no checkpoint of such a run"):
            rescue(RescuePlan(source=tmp_path, **how))
    with pytest.raises(InputError, match="--output is for a file"):
        rescue(RescuePlan(source=tmp_path, output=tmp_path / "m.model"))
    assert len(rescue(RescuePlan(source=tmp_path, name="m", seed=1))) == 3
