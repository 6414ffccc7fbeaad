"""What is saved is the trained model, or nothing is saved and everybody hears why."""

import io
import json
import logging
import os
import pickletools
import zipfile
from types import SimpleNamespace

import pytest
import torch

from mace.exceptions import InputError
from mace.tools import files, saving
from mace.tools.kernels import to_cueq, to_e3nn
from mace.tools.loading import load_model
from mace.tools.rebuild import disable_e3nn_codegen, extract_config_mace_model, rebuild
from mace.tools.same import differences
from mace.tools.saving import SaveError, check_copy, save_compiled, save_model, told_to_all
from tests import small_models


@pytest.fixture(scope="module")
def unchanged():
    return small_models.fermi()


@pytest.fixture
def live(unchanged):
    """A model that the test may change."""
    return rebuild(unchanged)


@pytest.fixture
def probe():
    return small_models.batch()


def names_in(path):
    """The classes and functions that the pickle in ``path`` names."""
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
        return {str(arg) for code, arg, _ in pickletools.genops(archive.read(name)) if "GLOBAL" in code.name}


def nudge(model, name, amount):
    with torch.no_grad():
        dict(model.named_parameters())[name].view(-1)[0] += amount
    return model


# ---- models


def test_the_file_holds_the_model_and_names_one_function_of_ours(tmp_path, live, probe):
    path = tmp_path / "models" / "m.model"
    save_model(rebuild(live), path, live=live, probe=probe)
    assert not differences(live, load_model(path))
    assert not differences(live, torch.load(path, map_location="cpu", weights_only=False))
    ours = {name for name in names_in(path) if not name.startswith(("torch", "collections"))}
    assert ours == {"mace.tools.rebuild restore_model"}
    assert os.listdir(path.parent) == ["m.model"]


def test_flags_and_dtype_travel(tmp_path, live):
    live.float().eval()
    live.node_embedding.requires_grad_(False)
    save_model(rebuild(live), tmp_path / "m.model", live=live, probe=small_models.batch(torch.float32))
    loaded = load_model(tmp_path / "m.model")
    assert not loaded.training and loaded.r_max.dtype == torch.float32
    assert not loaded.node_embedding.linear.weight.requires_grad


def test_models_without_fermi_level_are_checked_too(tmp_path):
    live = small_models.mace()
    save_model(rebuild(live), tmp_path / "m.model", live=live, probe=small_models.batch(electron=None))
    assert not differences(live, load_model(tmp_path / "m.model"))


def test_a_copy_that_is_not_the_trained_model_is_not_saved(tmp_path, live, probe):
    path = tmp_path / "m.model"
    path.write_bytes(b"old")
    with pytest.raises(SaveError, match=r"m.model .*scale_shift.scale") as caught:
        copy = rebuild(live)
        copy.scale_shift.scale += 1e-12
        save_model(copy, path, live=live, probe=probe)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["m.model"]


def test_a_live_model_that_computes_something_else_is_found_by_the_probe(tmp_path, live, probe, monkeypatch):
    copy = rebuild(live)
    forward = type(live).forward

    def shifted(self, data, **kwargs):
        out = forward(self, data, **kwargs)
        return {**out, "forces": out["forces"] + 1e-6} if self is live else out

    monkeypatch.setattr(type(live), "forward", shifted)
    with pytest.raises(SaveError, match=r"deviation is .*e-0[67] in the forces, 1e-10 is allowed"):
        save_model(copy, tmp_path / "m.model", live=live, probe=probe)
    assert not os.listdir(tmp_path)


def test_a_conversion_is_compared_by_outputs(live, probe):
    other = small_models.fermi(heads=["default"])
    other.load_state_dict(live.state_dict())
    assert check_copy(live, other, probe) <= 1e-10
    nudge(other, "readouts.0.linear.weight", 1e-3)
    with pytest.raises(SaveError, match="largest deviation"):
        check_copy(live, other, probe)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_model_trained_on_other_kernels_is_saved_as_an_e3nn_model(tmp_path, dtype):
    plain = small_models.fermi(dtype)
    config = extract_config_mace_model(plain)
    live, probe = to_cueq(plain, config), small_models.batch(dtype)
    again = rebuild(live)
    assert check_copy(live, again, probe) <= 1e-5
    with disable_e3nn_codegen():
        copy = to_e3nn(again, config)
    save_model(copy, tmp_path / "m.model", live=live, probe=probe)
    assert save_compiled(copy, tmp_path / "c.model", live=live, probe=probe)
    loaded = load_model(tmp_path / "m.model")
    assert extract_config_mace_model(loaded)["cueq_config"] is None
    assert not differences(plain, loaded)


def test_an_unsound_model_is_saved_as_it_is(tmp_path, live, probe):
    nudge(live, "readouts.0.linear.weight", float("nan"))
    save_model(rebuild(live), tmp_path / "m.model", live=live, probe=probe)
    assert not differences(live, load_model(tmp_path / "m.model"))


def test_the_probe_is_left_alone(live, probe):
    before = {name: tensor.clone() for name, tensor in probe.items()}
    check_copy(live, rebuild(live), probe)
    assert all(torch.equal(before[name], probe[name]) and not probe[name].requires_grad for name in probe)


def test_a_damaged_file_never_gets_the_final_name(tmp_path, live, monkeypatch):
    real = files.torch.save

    def half(obj, file):
        whole = io.BytesIO()
        real(obj, whole)
        file.write(whole.getvalue()[: whole.tell() // 2])

    monkeypatch.setattr(files.torch, "save", half)
    with pytest.raises(SaveError, match=r"m.model was not written"):
        save_model(rebuild(live), tmp_path / "m.model")
    assert not os.listdir(tmp_path)


def test_a_folder_in_the_way_is_named(tmp_path, live):
    (tmp_path / "m.model").mkdir()
    with pytest.raises(SaveError, match=r"m.model was not written: IsADirectoryError"):
        save_model(rebuild(live), tmp_path / "m.model")


# ---- TorchScript


def test_the_compiled_archive_computes_the_same_and_carries_its_configuration(tmp_path, live, probe):
    path = tmp_path / "m_compiled.model"
    copy = rebuild(live)
    assert save_compiled(copy, path, live=live, probe=probe, extra_files={"commit.txt": "abc"})
    extra = {"commit.txt": "", "config.yaml": "", "config.json": ""}
    compiled = torch.jit.load(path, _extra_files=extra)
    expected, found = live(dict(probe)), compiled(dict(probe))
    for key in ("energy", "forces", "potential"):
        assert (expected[key] - found[key]).abs().max() < 1e-10
    assert extra["commit.txt"] == b"abc"
    readable = json.loads(extra["config.yaml"])  # b6: valid JSON, numbers stay numbers
    assert (
        readable["r_max"] == 4.0
        and readable["electron_input"] is True
        and readable["atomic_energies"] == [-1.0, -2.0]
    )
    assert readable["interaction_cls"] == "mace.modules.blocks.RealAgnosticResidualInteractionBlock"
    assert json.loads(extra["config.json"])["class"] == "mace.modules.models.ScaleShiftMACE"
    assert not differences(live, copy)  # the compiler worked on a copy of its own


def test_b1_a_plain_model_can_be_exported(tmp_path):
    live = small_models.scale_shift()
    assert save_compiled(rebuild(live), tmp_path / "m", live=live, probe=small_models.batch(electron=None))


def test_an_export_from_other_kernels_may_deviate_as_much_as_the_model(tmp_path, monkeypatch, caplog):
    plain, probe = small_models.fermi(torch.float32), small_models.batch(torch.float32)
    converted = to_cueq(plain, extract_config_mace_model(plain))
    for live, written in ((converted, True), (rebuild(plain), False)):
        forward = live.forward

        def moved(data, forward=forward, **kwargs):
            out = forward(data, **kwargs)
            return {**out, "energy": out["energy"] * (1 + 5e-5)}

        monkeypatch.setattr(live, "forward", moved)
        assert save_compiled(plain, tmp_path / "c.model", live=live, probe=probe) is written
    assert "1e-05 is allowed" in caplog.text


@pytest.mark.parametrize("reason", ["scripting", "deviation"])
def test_b3_a_failed_export_is_one_warning_with_file_and_reason(
    tmp_path, live, probe, monkeypatch, caplog, reason
):
    path = tmp_path / "m_compiled.model"
    copy = rebuild(live)
    if reason == "scripting":
        monkeypatch.setattr(type(live), "forward", lambda self, data, *rest: {k: v for k, v in data.items()})
    if reason == "deviation":
        live = nudge(live, "readouts.0.linear.weight", 1e-3)
    with caplog.at_level(logging.WARNING):
        assert save_compiled(copy, path, live=live, probe=probe) is False
    (record,) = caplog.records
    wanted = {
        "scripting": "cannot be scripted|RuntimeError",
        "deviation": "deviation",
    }
    assert str(path) in record.getMessage() and any(
        w in record.getMessage() for w in wanted[reason].split("|")
    )
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize("reason", ["folder", "disk"])
def test_an_archive_that_cannot_be_written_is_an_error(tmp_path, live, monkeypatch, reason):
    path = tmp_path / "m_compiled.model"
    if reason == "folder":
        path.mkdir()
    else:

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(saving, "atomic_write", full)
    with pytest.raises(SaveError, match=r"m_compiled.model was not written: .*(directory|No space)"):
        save_compiled(rebuild(live), path)


# ---- telling


class Rank:
    """One of several ranks that run one after the other: what the main rank sends is kept for the others."""

    sent: list = []

    def __init__(self, number):
        self.is_main = number == 0

    def broadcast(self, obj):
        if self.is_main:
            type(self).sent = [obj]
        return type(self).sent[0]


def test_the_main_rank_acts_and_all_return():
    assert told_to_all(Rank(0), lambda: 7) == 7
    assert told_to_all(Rank(1), lambda: pytest.fail("only the main rank acts")) is None


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SaveError("a.model was not written: disk full"), "a.model was not written: disk full"),
        (InputError("no such head"), "no such head"),
        (OSError(28, "No space left\non device"), "OSError: [Errno 28] No space left"),
    ],
)
def test_what_could_not_be_written_is_everybodys_failure(error, told):
    def fail():
        raise error

    for rank in (Rank(0), Rank(1)):
        with pytest.raises(SaveError) as caught:
            told_to_all(rank, fail)
        assert str(caught.value) == told


@pytest.mark.parametrize("error", [KeyboardInterrupt, KeyError, RuntimeError])
def test_a_mistake_ends_the_main_rank_as_it_is_without_an_exchange(error):
    def fail():
        raise error

    def broadcast(obj):
        raise AssertionError("nobody may be left to talk to")

    with pytest.raises(error):
        told_to_all(SimpleNamespace(is_main=True, broadcast=broadcast), fail)


def test_one_process_is_one_rank():
    assert told_to_all(SimpleNamespace(is_main=True, broadcast=lambda obj: obj), lambda: "done") == "done"
