import logging

import numpy as np
import pytest

from mace.data import Configuration, random_train_valid_split, test_config_types
from mace.exceptions import InputError


def expected_order(n, seed):
    indices = list(range(n))
    np.random.default_rng(seed).shuffle(indices)
    return indices


@pytest.mark.parametrize(
    ("n", "fraction", "n_valid"), [(10, 0.1, 1), (19, 0.1, 1), (50, 0.3, 15), (7, 0.9, 6)]
)
def test_split_follows_the_seeded_shuffle(tmp_path, n, fraction, n_valid):
    train, valid = random_train_valid_split(list(range(n)), fraction, seed=5, work_dir=tmp_path)
    assert train + valid == expected_order(n, 5)
    assert len(valid) == n_valid


def test_few_indices_are_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        _, valid = random_train_valid_split(list("abcdefgh"), 0.25, seed=1, work_dir=tmp_path)
    indices = ["abcdefgh".index(item) for item in valid]
    text = "Using random 25% of training set for validation with following indices: "
    assert caplog.messages == [text + str(indices)]
    assert not list(tmp_path.iterdir())


def test_many_indices_go_to_a_file(tmp_path, caplog):
    folder = tmp_path / "new"
    with caplog.at_level(logging.INFO):
        _, valid = random_train_valid_split(range(40), 0.5, seed=3, work_dir=folder)
    path = folder / "valid_indices_3.txt"
    assert caplog.messages == [
        f"Using random 50% of training set for validation with indices saved in: {path}"
    ]
    assert [int(line) for line in path.read_text().split()] == valid


def test_only_the_writer_writes(tmp_path):
    other = tmp_path / "other.txt"
    silent = random_train_valid_split(range(40), 0.5, 3, tmp_path, indices_file=other, write=False)
    assert not list(tmp_path.iterdir())
    assert random_train_valid_split(range(40), 0.5, 3, tmp_path, indices_file=other) == silent
    assert [path.name for path in tmp_path.iterdir()] == ["other.txt"]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_fractions_out_of_range_are_refused(tmp_path, fraction):
    with pytest.raises(InputError, match="valid_fraction="):
        random_train_valid_split(range(10), fraction, 1, tmp_path)


def test_a_fraction_that_leaves_no_frame_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"valid_fraction=0.1 of 9 structures leaves none to validate with"):
        random_train_valid_split(range(9), 0.1, 1, tmp_path)
    with pytest.raises(InputError, match="of 0 structures"):
        random_train_valid_split([], 0.1, 1, tmp_path)


def test_tests_are_grouped_by_type_and_head_in_order_of_appearance():
    def config(config_type, head):
        return Configuration(np.array([1]), np.zeros((1, 3)), config_type=config_type, head=head)

    configs = [config("b", "x"), config("a", "x"), config("b", "x"), config("b", "y")]
    groups = test_config_types(configs)
    assert [(name, len(members)) for name, members in groups] == [("b_x", 2), ("a_x", 1), ("b_y", 1)]
    assert groups[0][1] == [configs[0], configs[2]]
