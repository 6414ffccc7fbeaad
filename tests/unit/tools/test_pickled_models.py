"""Models that MACE or CP-MACE pickled: read as notes, built anew, and no file gets to run anything."""

from __future__ import annotations

import pickle
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mace.arguments import build_eval_arg_parser
from mace.calculators import MACECalculator
from mace.cli import convert, convert_cueq_e3nn, convert_device, convert_e3nn_cueq, eval_configs, select_head
from mace.exceptions import InputError
from mace.tools.checkpoint import CheckpointIO
from mace.tools.loading import extract_load, load_from_json, load_model
from mace.tools.same import same_bits
from tests import malicious, small_models
from tests.tolerances import relative
from tests.upstream_pickles import rewrite, save_as_upstream

HEADS = {
    "heads": ["a", "b"],
    "atomic_energies": [[-1.0, -2.0], [-3.0, -4.0]],
    "atomic_inter_scale": [1.7, 0.6],
    "atomic_inter_shift": [0.3, -0.2],
}
MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "MACE": small_models.mace,
    "ScaleShiftMACE": small_models.scale_shift,
    "float32": lambda: small_models.scale_shift(torch.float32),
    "FermiMACE": small_models.fermi,
    "FermiMACE_2": lambda: small_models.fermi(electron_input=False, use_global_state=True),
    "FermiMACE_uncertainty": lambda: small_models.fermi(pred_uncertainty=True),
    "FermiMACE_evidential": lambda: small_models.fermi(pred_evidential=True),
    "heads, ZBL, Agnesi, density": lambda: small_models.scale_shift(
        **HEADS,
        pair_repulsion=True,
        distance_transform="Agnesi",
        interaction_cls_first="RealAgnosticDensityInteractionBlock",
        interaction_cls="RealAgnosticDensityResidualInteractionBlock",
    ),
    "attention, tanh": lambda: small_models.mace(
        interaction_cls="RealAgnosticAttResidualInteractionBlock", gate=torch.tanh
    ),
    "Chebyshev, no gate": lambda: small_models.mace(radial_type="chebyshev_raw", gate=None),
    "Gaussian, Soft": lambda: small_models.mace(radial_type="gaussian", distance_transform="Soft"),
    "old Soft": lambda: small_models.scale_shift(distance_transform="SoftLegacy"),
    "one layer": lambda: small_models.mace(num_interactions=1),
    "three layers": lambda: small_models.scale_shift(num_interactions=3, correlation=[2, 1, 3]),
    "dipoles of scalars": lambda: small_models.energy_dipoles(MLP_irreps="5x0e", upstream_readout=True),
    "dipoles, no gate": lambda: small_models.energy_dipoles(gate=None, upstream_readout=True),
    "no dipoles": lambda: small_models.atomic_dipoles(MLP_irreps="3x0e", gate=None, upstream_readout=True),
    "reduced couplings": lambda: small_models.mace(max_ell=2, correlation=3, use_reduced_cg=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_pickled_model_is_the_model(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    model.node_embedding.requires_grad_(False)
    save_as_upstream(model, tmp_path / "m.model", gloabl_state_dim=64)
    found = load_model(tmp_path / "m.model")
    assert type(found) is type(model)
    ours, theirs = model.state_dict(), found.state_dict()
    assert ours.keys() == theirs.keys() and all(same_bits(ours[key], theirs[key]) for key in ours)
    trains = {key: parameter.requires_grad for key, parameter in model.named_parameters()}
    assert {key: parameter.requires_grad for key, parameter in found.named_parameters()} == trains
    dtype = next(model.parameters()).dtype
    outputs = model(small_models.batch(dtype)), found(small_models.batch(dtype))
    for key, value in outputs[0].items():
        if value is not None:
            assert (outputs[1][key] - value).abs().max() <= relative("back end", dtype) * value.abs().max()


def test_old_models_without_heads(tmp_path: Path) -> None:
    path = tmp_path / "m.model"
    save_as_upstream(small_models.mace(), path, heads=None)
    assert load_model(path).heads == ["default"]


def test_what_was_found_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_as_upstream(small_models.mace(), tmp_path / "m.model")
    with caplog.at_level("INFO"):
        load_model(tmp_path / "m.model")
    found = "a model that MACE or CP-MACE pickled (MACE, float64)"
    assert caplog.messages == [f"{tmp_path / 'm.model'}: {found}"]


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"apply_cutoff": False}, "apply_cutoff=False"),
        ({"use_so3": True}, "use_so3=True"),
        ({"heads": object}, "names builtins.object, which is refused"),
    ],
)
def test_what_our_classes_lack_is_named(tmp_path: Path, attributes: dict[str, Any], reason: str) -> None:
    save_as_upstream(small_models.mace(), tmp_path / "m.model", **attributes)
    assert reason in refused(tmp_path / "m.model")


def test_models_on_cuequivariance_are_refused_with_the_way_out(tmp_path: Path) -> None:
    save_as_upstream(small_models.mace(), tmp_path / "m.model")
    theirs = b"ccuequivariance_torch.operations.linear\nLinear\n"
    rewrite(tmp_path / "m.model", lambda contents: contents.replace(b"ce3nn.o3._linear\nLinear\n", theirs))
    assert "mace_cueq_to_e3nn" in refused(tmp_path / "m.model")


def test_another_class_in_the_place_of_a_block_is_named(tmp_path: Path) -> None:
    save_as_upstream(small_models.mace(), tmp_path / "m.model")
    rewrite(
        tmp_path / "m.model",
        lambda contents: contents.replace(b"\nRealAgnosticInteractionBlock\n", b"\nNewerBlock\n"),
    )
    assert "it names mace.modules.blocks.NewerBlock, which is refused" in refused(tmp_path / "m.model")


@pytest.mark.parametrize(
    "cut", [b"", b"\x80\x02.", b"\x80\x02N.", b"\x80\x02}.", b"\x80\x02cmace.modules.models\nMACE\n."]
)
def test_a_pickle_that_is_no_model_is_one_line(tmp_path: Path, cut: bytes) -> None:
    save_as_upstream(small_models.mace(), tmp_path / "m.model")
    rewrite(tmp_path / "m.model", lambda _: cut)
    refused(tmp_path / "m.model")


# ---- files that would run code


def label(path: Path) -> None:
    frames = Path(__file__).parents[2] / "data" / "cu_water_test.xyz"
    given = [f"--configs={frames}", f"--model={path}", f"--output={path}.xyz"]
    eval_configs.run(build_eval_arg_parser().parse_args(given))


ENTRIES: dict[str, Callable[[Path], object]] = {
    "load_model": load_model,
    "load_from_json": load_from_json,
    "extract_load": extract_load,
    "mace_convert": lambda path: convert.run(
        Namespace(input=str(path), output=f"{path}.model", format=None, device="cpu", dtype=None, config=None)
    ),
    "mace_convert_device": lambda path: convert_device.run(
        Namespace(model_file=str(path), target_device="cpu", output_file=None)
    ),
    "mace_select_head": lambda path: select_head.run(
        Namespace(
            model_file=str(path), head_name=None, list_heads=False, target_device=None, output_file=None
        )
    ),
    "mace_e3nn_cueq": lambda path: convert_e3nn_cueq.run_command(
        Namespace(input_model=str(path), output_model="out", device="cpu")
    ),
    "mace_cueq_to_e3nn": lambda path: convert_cueq_e3nn.run_command(
        Namespace(input_model=str(path), output_model="out", device="cpu")
    ),
    "MACECalculator": lambda path: MACECalculator(model_paths=str(path), device="cpu"),
    "mace_eval_configs": label,
    "checkpoints": lambda path: CheckpointIO(path.parent, "run").load(path),
}


def test_the_pickles_would_run(tmp_path: Path) -> None:
    """With Python's own reader: those that need no more than it to create the file do so."""
    ran = [name for name in malicious.PICKLES if malicious.runs(name, tmp_path / name.replace(" ", "_"))]
    assert {"system", "exec", "within a model", "memoised", "beside our function"} <= set(ran)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_malicious_file_is_refused_everywhere(tmp_path: Path, entry: str, zipped: bool) -> None:
    bait, path = tmp_path / "created", tmp_path / "run_epoch-1.pt"
    (tmp_path / "run_epoch-1.json").write_text('{"format": 1, "class": "MACE", "arguments": {}}')
    for disguise in malicious.PICKLES:
        malicious.write(path, disguise, bait, zipped)
        with pytest.raises(InputError) as caught:
            ENTRIES[entry](path)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value), disguise
        assert not bait.exists(), disguise
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run_epoch-1.json", "run_epoch-1.pt"]


class WritesWhenLoaded(torch.nn.Module):
    """TorchScript can write files: when it is loaded, too."""

    def __init__(self, bait: str) -> None:
        super().__init__()
        self.bait = bait

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        return self.bait, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        self.bait = state[0]
        self.training = state[1]
        torch.save(state[1], state[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_a_torchscript_program_that_writes_files_is_refused(tmp_path: Path) -> None:
    bait, path = tmp_path / "created", tmp_path / "m_compiled.model"
    torch.jit.save(torch.jit.script(WritesWhenLoaded(str(bait))), path)
    for entry in ("load_model", "load_from_json", "mace_convert", "MACECalculator"):
        with pytest.raises(InputError, match="calls torch.save, which is refused"):
            ENTRIES[entry](path)
        assert not bait.exists()
    torch.jit.load(path)
    assert bait.exists()


def test_a_pickle_that_contains_itself_is_one_line(tmp_path: Path) -> None:
    save_as_upstream(small_models.mace(), tmp_path / "m.model")
    model = b"\x80\x02cmace.modules.models\nMACE\n)\x81q\x00}X\x08\x00\x00\x00_modules}"
    itself = b"X\x08\x00\x00\x00productsh\x00ssb."
    rewrite(tmp_path / "m.model", lambda _: model + itself)
    refused(tmp_path / "m.model")


def test_a_restart_refuses_a_malicious_checkpoint(tmp_path: Path) -> None:
    """It does not go on from an older one: whoever put the file there must be asked."""
    bait = tmp_path / "created"
    torch.save({"model": {}, "optimizer": {}, "lr_scheduler": {}}, tmp_path / "run_epoch-0.pt")
    for disguise in malicious.PICKLES:
        path = tmp_path / "run_epoch-1.pt"
        malicious.write(path, disguise, bait)
        for read in (
            CheckpointIO(tmp_path, "run").newest,
            lambda path=path: CheckpointIO(tmp_path, "run").load(path),
        ):
            with pytest.raises(
                InputError,
                match=f"{path} cannot be used: it .* is refused: no file may run code; move it away",
            ):
                read()
        assert not bait.exists(), disguise


def test_nothing_is_set_on_anything_that_outlives_the_file(tmp_path: Path) -> None:
    """A pickle that changes the stand-in of a class changes it for itself alone."""
    path = tmp_path / "m.model"
    save_as_upstream(small_models.mace(), path)
    whole = tmp_path / "whole.model"
    whole.write_bytes(path.read_bytes())
    rewrite(
        path,
        lambda _: b"\x80\x02cmace.modules.models\nMACE\nN}X\x04\x00\x00\x00nameX\x01\x00\x00\x00xs\x86b.",
    )
    refused(path)
    assert type(load_model(whole)).__name__ == "MACE"


def test_pickle_is_read_by_records_only(tmp_path: Path) -> None:
    """The reader's own classes are the only ones that it makes, whatever is named."""
    from mace.tools import pickled_models

    made = pickled_models._Unpickler(
        b"\x80\x02(ccollections\nOrderedDict\n)Rc__builtin__\nset\n]\x85Rctorch._C\n_VariableFunctionsClass\nt."
    ).load()
    assert all(isinstance(item, (pickled_models.Record, type)) for item in made)
    assert issubclass(made[2], pickled_models.Record)
    with pytest.raises(pickle.UnpicklingError, match="os.system"):
        pickled_models._Unpickler(b"\x80\x02cos\nsystem\n.").load()
