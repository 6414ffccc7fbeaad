"""Files are recognised by what is in them; all but models are refused in one line; nothing in a file runs."""

import json
import os
import pickle
import subprocess
import sys
import threading
import warnings
import zipfile

import pytest
import torch

from mace.exceptions import InputError
from mace.tools.loading import load_from_json, load_model
from mace.tools.rebuild import rebuild, restore_model
from mace.tools.same import differences
from mace.tools.saving import save_compiled, save_model
from tests import small_models


@pytest.fixture(scope="module")
def live():
    return small_models.fermi()


@pytest.fixture(scope="module")
def parts(live):
    """The text and the state that a model's pickle consists of."""
    return live.__reduce__()[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory, live):
    folder = tmp_path_factory.mktemp("models")
    save_model(rebuild(live), folder / "m.model", live=live)
    assert save_compiled(rebuild(live), folder / "m_compiled.model")
    return folder


class CreatesAFile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


# ---- what is read


def test_a_model_comes_back(files, live):
    assert not differences(live, load_model(files / "m.model"))
    assert not differences(
        small_models.fermi(), load_model(str(files / "m.model"), map_location=torch.device("cpu"))
    )


def test_a_torchscript_archive_comes_back(files, live):
    compiled = load_model(files / "m_compiled.model")
    assert isinstance(compiled, torch.jit.ScriptModule)
    batch = small_models.batch()
    assert torch.allclose(compiled(dict(batch))["energy"], live(dict(batch))["energy"], atol=1e-10, rtol=0)


def test_b6_a_model_is_built_from_the_record_in_an_archive(files, live, tmp_path):
    assert not differences(live, load_from_json(files / "m_compiled.model"))
    with pytest.raises(InputError, match="is a .model file of this package, not a TorchScript archive"):
        load_from_json(files / "m.model")
    other = tmp_path / "other.pt"
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), other)
    with pytest.raises(InputError, match="has no config.json"):
        load_from_json(other)


@pytest.mark.parametrize("name", ["m.model", "m_compiled.model"])
def test_a_dtype_can_be_asked_for(files, name):
    model = load_model(files / name, dtype=torch.float32)
    assert {t.dtype for t in model.state_dict().values() if t.is_floating_point()} == {torch.float32}


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_the_default_dtype_has_no_influence(files, live, default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        loaded = load_model(files / "m.model")
    finally:
        torch.set_default_dtype(before)
    assert not differences(live, loaded)


def test_g4_no_thread_ever_sees_another_default_dtype_or_list_of_safe_functions(files):
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.is_set():
            seen.add(torch.get_default_dtype())

    watcher = threading.Thread(target=watch)
    watcher.start()
    load_model(files / "m.model", dtype=torch.float64)
    stop.set()
    watcher.join()
    assert seen == {torch.get_default_dtype()}
    assert restore_model not in torch.serialization.get_safe_globals()


def test_b19_a_fresh_process_needs_no_switch(files, live):
    script = f"""
import json, torch
from mace.tools.loading import load_from_json, load_model
from tests import small_models
found = []
for path in (r"{files}/m.model", r"{files}/m_compiled.model"):
    for model in (load_model(path), torch.load(path, weights_only=False)):
        values = model(small_models.batch())
        keys = ("energy", "forces", "potential")
        found.append(torch.cat([values[key].detach().flatten() for key in keys]).tolist())
print(json.dumps(found))
"""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True
    )
    values = live(small_models.batch())
    expected = torch.cat([values[key].detach().flatten() for key in ("energy", "forces", "potential")])
    found = torch.tensor(json.loads(result.stdout), dtype=torch.float64)
    assert len(found) == 4 and (found - expected).abs().max() < 1e-10


# ---- what is refused


def refused(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InputError) as caught:
            load_model(path)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    return message


def test_missing_empty_and_folder(tmp_path):
    assert "does not exist" in refused(tmp_path / "no.model")
    (tmp_path / "empty.model").write_bytes(b"")
    assert "empty" in refused(tmp_path / "empty.model")
    assert "folder" in refused(tmp_path)


@pytest.mark.parametrize("name", ["m.model", "m_compiled.model"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_truncated(files, tmp_path, name, share):
    whole = (files / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(share * len(whole))])
    assert "truncated" in refused(tmp_path / name)


def test_a_flipped_bit(files, tmp_path):
    content = bytearray((files / "m.model").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "m.model").write_bytes(content)
    assert "damaged" in refused(tmp_path / "m.model")


def test_other_formats(tmp_path):
    (tmp_path / "text.model").write_text("not a model\n")
    assert "not a model" in refused(tmp_path / "text.model")
    with zipfile.ZipFile(tmp_path / "zip.model", "w") as archive:
        archive.writestr("a.txt", "a")
    assert "not one that torch wrote" in refused(tmp_path / "zip.model")
    (tmp_path / "pickle.model").write_bytes(pickle.dumps({"a": 1}))
    refused(tmp_path / "pickle.model")


def test_a_checkpoint_is_told_from_a_model(tmp_path):
    torch.save(
        {"model": small_models.fermi().state_dict(), "optimizer": {}, "lr_scheduler": {}}, tmp_path / "c.pt"
    )
    assert "checkpoint" in refused(tmp_path / "c.pt")


@pytest.mark.parametrize("disguise", ["alone", "in a model", "as state", "as configuration"])
def test_a_malicious_pickle_is_refused_and_its_file_not_created(tmp_path, live, parts, disguise):
    bait, path = tmp_path / "created", tmp_path / "evil.model"
    evil = CreatesAFile(bait)
    text, state = parts

    class Pretends:
        def __reduce__(self):
            arguments = {"as state": (text, {**state, "r_max": evil}), "as configuration": (evil, state)}
            return restore_model, arguments[disguise]

    torch.save({"alone": evil, "in a model": [live, evil]}.get(disguise) or Pretends(), path)
    refused(path)
    assert not bait.exists()
    path.write_bytes(pickle.dumps(evil))
    refused(path)
    assert not bait.exists() and os.listdir(tmp_path) == ["evil.model"]


def test_a_configuration_that_reaches_outside_is_refused(tmp_path, parts):
    text, state = parts

    class Pretends:
        def __init__(self, **changes):
            self.text = json.dumps({**json.loads(text), **changes})

        def __reduce__(self):
            return restore_model, (self.text, state)

    arguments = json.loads(text)["arguments"]
    for changes in (
        {"class": "subprocess.Popen"},
        {"arguments": {**arguments, "gate": {"$function": "os.system"}}},
        {"arguments": {**arguments, "interaction_cls": {"$class": "subprocess.Popen"}}},
        {"format": 2},
    ):
        torch.save(Pretends(**changes), tmp_path / "evil.model")
        refused(tmp_path / "evil.model")


def test_weights_of_another_architecture_are_refused(tmp_path, parts):
    text, state = parts[0], small_models.fermi(hidden_irreps="4x0e + 4x1o").state_dict()

    class Swapped:
        def __reduce__(self):
            return restore_model, (text, state)

    torch.save(Swapped(), tmp_path / "m.model")
    assert "do not belong together" in refused(tmp_path / "m.model")
