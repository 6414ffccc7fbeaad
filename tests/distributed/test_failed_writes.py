"""A file that cannot be written in the middle of a run of two ranks ends both, with one line."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import CP, tiny_data, told_once, two

pytestmark = pytest.mark.multirank

KEPT = "checkpoints/m_run-1_epoch-0.pt"


def train(folder, *flags):
    return two([*CP, "--name=m", "--max_num_epochs=1", *flags], folder)


@contextmanager
def made_after(folder: Path, file: Path) -> Iterator[None]:
    """Within it, ``folder`` is made as soon as ``file`` is there."""
    over = threading.Event()

    def watch() -> None:
        while not file.exists() and not over.wait(0.01):
            pass
        folder.mkdir()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_the_records(tmp_path):
    tiny_data(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "m_run-1_train.txt").symlink_to("/dev/full")
    told_once(train(tmp_path), "error: cannot write results/m_run-1_train.txt: No space left on device")


@pytest.mark.slow
def test_b3_a_compiled_model_that_cannot_be_written(tmp_path):
    tiny_data(tmp_path)
    # At the start a folder in its place would be refused; the log appears after that.
    with made_after(tmp_path / "m_compiled.model", tmp_path / "logs" / "m_run-1.log"):
        told_once(train(tmp_path), "m_compiled.model was not written: IsADirectoryError")
    assert (tmp_path / KEPT).is_file() and (tmp_path / "m.model").is_file()


def test_a_folder_in_the_place_of_a_model_is_refused_at_the_start(tmp_path):
    tiny_data(tmp_path)
    (tmp_path / "m_compiled.model").mkdir()
    told_once(train(tmp_path), "would write the file 'm_compiled.model', which is a folder")
    assert not (tmp_path / "logs" / "m_run-1.log").exists()
