"""A model in every format and back: bundles, archives, and state dicts for MACE and CP-MACE."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mace.exceptions import InputError
from mace.tools import scripts_utils
from mace.tools.exporting import export_model
from mace.tools.head_selection import remove_pt_head
from mace.tools.kernels import to_cueq
from mace.tools.loading import extract_load, load_model
from mace.tools.model_formats import recognise
from mace.tools.rebuild import extract_config_mace_model
from mace.tools.same import differences, same_bits
from tests import small_models

CHEBYSHEV = {"radial_type": "chebyshev"}


def same_state(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(same_bits(ours[key], theirs[key]) for key in ours)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "m.safetensors"
    export_model(small_models.fermi(), path, "bundle")
    return path


@pytest.mark.parametrize("form", ["model", "bundle", "torchscript"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_there_and_back(form: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = small_models.fermi(dtype).eval()
    model.node_embedding.requires_grad_(False)
    assert export_model(model, tmp_path / "m", form) == [tmp_path / "m"]
    assert not differences(model, extract_load(tmp_path / "m"))


def test_a_bundle_holds_any_back_end(tmp_path: Path) -> None:
    model = small_models.scale_shift()
    fast = to_cueq(model, extract_config_mace_model(model))
    export_model(fast, tmp_path / "m.safetensors", "bundle")
    found = load_model(tmp_path / "m.safetensors")
    assert extract_config_mace_model(found)["cueq_config"]["enabled"] and same_state(fast, found)


def test_what_was_found_is_logged(bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        load_model(bundle)
    found = "a bundle of weights and configuration (safetensors) (ScaleShiftMACE, float64)"
    assert caplog.messages == [f"{bundle}: {found}"]


def refused(path: Path, **arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_model(path, **arguments)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.99])
def test_a_truncated_bundle(bundle: Path, tmp_path: Path, share: float) -> None:
    whole = bundle.read_bytes()
    (tmp_path / "m").write_bytes(whole[: max(1, int(share * len(whole)))])
    assert "truncated" in refused(tmp_path / "m")


def test_a_damaged_bundle(bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in range(start, len(whole), (len(whole) - start) // 20):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (tmp_path / "m").write_bytes(damaged)
        assert "its numbers do not fit" in refused(tmp_path / "m")


def test_bundles_of_others_and_of_the_future(bundle: Path, tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(bundle, framework="pt") as file:
        text, state = file.metadata()["cp-mace"], {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    path = tmp_path / "m.safetensors"
    save_file(state, path)
    assert "without the configuration" in refused(path)
    save_file(state, path, metadata={"cp-mace": text.replace('"format": 1', '"format": 2')})
    assert "format 2" in refused(path)
    swapped = small_models.fermi(hidden_irreps="4x0e + 4x1o").state_dict()
    save_file(swapped, path, metadata={"cp-mace": text})
    assert "do not belong together" in refused(path)
    save_file(
        state, path, metadata={"cp-mace": text.replace("mace.modules.models.ScaleShiftMACE", "os.system")}
    )
    assert "os.system" in refused(path)
    for key in ("frozen", "training_differs"):
        for value in (None, -1, True, "x", {}, [None], [["a"]]):
            changed = json.dumps({**json.loads(text), key: value})
            save_file(state, path, metadata={"cp-mace": changed})
            assert f"{key} in the configuration of the model is not a list" in refused(path)


@pytest.mark.parametrize("form", ["model", "torchscript", "state"])
def test_archives_with_a_flipped_bit(form: str, tmp_path: Path) -> None:
    """Wherever it is in the tables of a zip archive: it is read as it was, or refused with one line."""
    path = tmp_path / "m.pt"
    export_model(small_models.mace(), path, "mace-torch" if form == "state" else form)
    whole = path.read_bytes()
    tables = range(whole.index(b"PK\x01\x02"), len(whole))
    refusals = 0
    for place in [*range(60), *tables[:: len(tables) // 600]]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            recognise(path)
        except InputError as error:
            assert "\n" not in str(error)
            refusals += 1
    assert refusals > 100


PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain for mace-torch": ("mace-torch", {}),
    "plain for cp-mace": ("cp-mace", {}),
    "electrons": ("cp-mace", {"electron_input": True, "potential_output": True, "mean_electron": 0.2}),
    "global state": ("cp-mace", {"use_global_state": True, "potential_output": True}),
    "raw Chebyshev": ("mace-torch", {"radial_type": "chebyshev_raw", "gate": None}),
    "scalars of a single layer": ("mace-torch", {"num_interactions": 1, "keep_last_layer_irreps": False}),
    "reduced": ("mace-torch", {"use_reduced_cg": True, "max_ell": 2, "correlation": 3}),
    "correlations": ("mace-torch", {"num_interactions": 3, "correlation": [3, 1, 2]}),
}


@pytest.mark.parametrize("name", PEERS)
def test_a_pair_for_a_peer_comes_back(name: str, tmp_path: Path) -> None:
    peer, options = PEERS[name]
    model = small_models.scale_shift(**options)
    written = export_model(model, tmp_path / "m.pt", peer)
    assert written == [tmp_path / "m.pt", tmp_path / "m.json"]
    for path in written:
        assert same_state(model, load_model(path))
    assert same_state(model, load_model(tmp_path / "m.pt", config=tmp_path / "m.json"))
    arguments = json.loads((tmp_path / "m.json").read_text())["arguments"]
    assert arguments["interaction_cls"] == "RealAgnosticResidualInteractionBlock"
    assert arguments["radial_type"] in ("bessel", "chebyshev") and arguments["correlation"] in (
        2,
        3,
        [3, 1, 2],
    )
    assert arguments.get("use_reduced_cg", False) == (name == "reduced")


def test_a_pair_for_cp_mace_has_the_tensors_of_its_strict_load(tmp_path: Path) -> None:
    """Names and shapes of the specification (model.md 10.2), for 2 channels in place of 16."""
    export_model(small_models.scale_shift(), tmp_path / "m.pt", "cp-mace")
    state = torch.load(tmp_path / "m.pt", weights_only=True)
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items() if "_updates" in name}
    assert shapes == {
        "node_updates.mlp.0.weight": (2, 66),
        "node_updates.mlp.0.bias": (2,),
        "node_updates.mlp.2.weight": (2, 2),
        "node_updates.mlp.2.bias": (2,),
        "node_updates.gate.0.weight": (2, 66),
        "node_updates.gate.0.bias": (2,),
        "node_updates.gate.2.weight": (2, 2),
        "node_updates.gate.2.bias": (2,),
        "state_updates.0.mlp.0.weight": (64, 66),
        "state_updates.0.mlp.0.bias": (64,),
        "state_updates.0.mlp.2.weight": (64, 64),
        "state_updates.0.mlp.2.bias": (64,),
    }
    assert {"mean_potential", "mean_electron"} <= state.keys()


@pytest.mark.parametrize(
    ("peer", "options", "reason"),
    [
        ("mace-torch", {"electron_input": True}, "no electron number or Fermi level"),
        ("mace-torch", CHEBYSHEV, "another basis"),
        ("cp-mace", CHEBYSHEV, "another basis"),
        ("mace-torch", {"distance_transform": "SoftLegacy"}, "Soft transform"),
        ("mace-torch", {"num_interactions": 1}, "keep scalars only"),
        ("cp-mace", {"num_interactions": 1, "potential_output": True}, "from vectors"),
        ("cp-mace", {"use_reduced_cg": True, "max_ell": 2}, "reduced coupling basis"),
        ("cp-mace", {"potential_output": True, "pred_evidential": True}, "another width"),
    ],
)
def test_what_a_peer_cannot_build_is_refused(
    peer: str, options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=reason):
        export_model(small_models.scale_shift(**options), tmp_path / "m.pt", peer)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("peer", ["mace-torch", "cp-mace"])
def test_botnet_is_not_for_peers(peer: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its BOTNet classes cannot be built"):
        export_model(small_models.botnet(), tmp_path / "m.pt", peer)


def test_pairs_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    export_model(small_models.scale_shift(), path, "mace-torch")
    text = (tmp_path / "m.json").read_text()
    (tmp_path / "m.json").write_text(text.replace('"format": 1', '"format": 2'))
    assert "format 2" in refused(path)
    (tmp_path / "m.json").write_text(text[: len(text) // 2])
    assert "is not the configuration of a state dict" in refused(path)
    (tmp_path / "m.json").write_text(text.replace('"ScaleShiftMACE"', '"Linear"'))
    assert "'Linear' is not a model class" in refused(path)
    (tmp_path / "m.json").write_text(text.replace('"max_ell": 1', '"max_ell": 2'))
    assert "do not belong together" in refused(path)
    (tmp_path / "m.json").write_text(text.replace('"num_interactions": 2', '"num_interactions": 0'))
    assert "a model needs at least one interaction" in refused(path)
    (tmp_path / "m.json").unlink()
    assert "the configuration" in refused(path) and "is missing" in refused(path)
    path.rename(tmp_path / "other.pt")
    (tmp_path / "m.json").write_text(text)
    assert "the state dict" in refused(tmp_path / "m.json")
    assert load_model(tmp_path / "other.pt", config=tmp_path / "m.json").heads == ["default"]
    torch.save([1, 2], path)
    assert "holds a list" in refused(path)


def test_a_configuration_beside_what_needs_none(bundle: Path) -> None:
    assert "needs no configuration" in refused(bundle, config="m.json")


def test_upstreams_names_of_the_same(tmp_path: Path) -> None:
    model = small_models.fermi()
    for form in ("model", "torchscript"):
        export_model(model, tmp_path / form, form)
        assert not differences(model, scripts_utils.extract_load(tmp_path / form))
    assert not differences(model, scripts_utils.extract_model(model))
    assert scripts_utils.remove_pt_head is remove_pt_head


@pytest.mark.timeout(60)
@pytest.mark.parametrize("value", [None, [], {}, float("inf"), -1, 2**70, "x", [[1]]], ids=repr)
def test_a_configuration_with_anything_in_the_place_of_an_argument(value: Any, tmp_path: Path) -> None:
    export_model(small_models.scale_shift(), tmp_path / "m.pt", "mace-torch")
    whole = json.loads((tmp_path / "m.json").read_text())
    refusals = 0
    for name in whole["arguments"]:
        changed = {**whole, "arguments": {**whole["arguments"], name: value}}
        (tmp_path / "m.json").write_text(json.dumps(changed))
        try:
            load_model(tmp_path / "m.pt")
        except InputError as error:
            assert str(tmp_path) in str(error) and "\n" not in str(error), name
            refusals += 1
    assert refusals > 10  # the others do not matter, or the state dict knows better
