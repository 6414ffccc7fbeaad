"""Values in files that several processes map."""

import os
import tempfile

import numpy as np
import pytest
import torch

from mace.tools.ranks.host_memory import HostFile, map_all, map_value

VALUE = {
    "array": np.arange(6.0).reshape(2, 3),
    "by column": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "empty": np.zeros((0, 3)),
    "tensor": torch.arange(4, dtype=torch.int64),
    "slice": torch.arange(12.0).reshape(3, 4)[:, 1:3],
    "number": torch.tensor(2.5),
    "no rows": torch.zeros(0, 3),
    "rest": [None, "text", (1, 2.0)],
}


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_value_comes_back_as_it_was(temporary):
    values, trouble = map_all(VALUE, [0], lambda told: [told])
    assert trouble == "" and not os.listdir(temporary)
    (value,) = values
    assert list(value) == list(VALUE)
    for key, expected in VALUE.items():
        found = value[key]
        assert type(found) is type(expected)
        if isinstance(expected, (np.ndarray, torch.Tensor)):
            assert found.dtype == expected.dtype and found.shape == expected.shape
            assert (found == expected).all()
        else:
            assert found == expected


def test_what_one_process_writes_the_others_do_not_see():
    file = HostFile(VALUE)
    mine, theirs = map_value(file.address), map_value(file.address)
    file.close()
    mine["tensor"] += 1
    mine["array"][0, 0] = 5.0
    assert torch.equal(theirs["tensor"], VALUE["tensor"])
    assert np.array_equal(theirs["array"], VALUE["array"])


def test_arrays_stay_in_the_file():
    file = HostFile([np.zeros(10**5), torch.zeros(10**5)])
    array, tensor = map_value(file.address)
    file.close()
    for part in (array, tensor.numpy()):
        assert not part.flags.owndata and part.flags.writeable


def test_a_process_that_cannot_write_or_read_is_heard_by_all(temporary, monkeypatch):
    def others(told):
        """Two processes: this one, and one that has no room."""
        return [told, ("", "No space left on device")] if isinstance(told, tuple) else [told, ""]

    assert map_all(VALUE, [0, 1], others) == (None, "No space left on device")

    def hidden(told):
        """Two processes: this one, and one whose file cannot be seen."""
        return [told, ("/proc/0/fd/0", "")] if isinstance(told, tuple) else [told, ""]

    values, trouble = map_all(VALUE, [0, 1], hidden)
    assert values is None and "No such file" in trouble and "/proc/0/fd/0" in trouble
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "nowhere"))
    values, trouble = map_all(VALUE, [0], lambda told: [told])
    assert values is None and "nowhere" in trouble
