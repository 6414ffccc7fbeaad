"""A file that cannot be written in the middle of a run of two ranks ends both, with one line."""

from pathlib import Path

import pytest

from tests.harness import CP, tiny_data, told_once, two

pytestmark = pytest.mark.multirank

KEPT = "checkpoints/m_run-1_epoch-0.pt"


def train(folder, *flags):
    return two([*CP, "--name=m", "--max_num_epochs=1", *flags], folder)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_the_records(tmp_path):
    tiny_data(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "m_run-1_train.txt").symlink_to("/dev/full")
    told_once(train(tmp_path), "error: cannot write results/m_run-1_train.txt: No space left on device")


def test_b3_a_compiled_model_that_cannot_be_written(tmp_path):
    tiny_data(tmp_path)
    (tmp_path / "m_compiled.model").mkdir()
    told_once(train(tmp_path), "m_compiled.model was not written: IsADirectoryError")
    assert (tmp_path / KEPT).is_file() and (tmp_path / "m.model").is_file()
