"""What cannot be written is said at the start of a run."""

import pytest

from mace.exceptions import InputError
from mace.tools.run_folder import require_writable_files
from tests.tiny_run import make_plan, write_frames


@pytest.fixture
def paths(tmp_path):
    write_frames(tmp_path / "train.xyz", 4)
    return make_plan(tmp_path).paths


def test_a_new_folder_is_made_and_no_file(paths):
    require_writable_files(paths, [])
    assert paths.results_dir.is_dir() and not paths.log_file.exists()


@pytest.mark.parametrize("which", ["log_file", "debug_log", "results_file"])
def test_a_folder_in_the_place_of_a_file_that_is_added_to(paths, which):
    path = getattr(paths, which)
    path.mkdir(parents=True)
    with pytest.raises(InputError, match=f"cannot add to the file '{path}' .Is a directory.: .*--name"):
        require_writable_files(paths, [])


def test_a_folder_in_the_place_of_a_model(paths):
    path = paths.compiled_file()
    path.mkdir(parents=True)
    with pytest.raises(InputError, match=f"would write the file '{path}', which is a folder: .*--name"):
        require_writable_files(paths, [paths.model_file(), path])
