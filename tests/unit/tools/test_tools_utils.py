import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from mace.exceptions import InputError, RunError
from mace.tools import (
    AtomicNumberTable,
    MetricsLogger,
    UniversalEncoder,
    atomic_numbers_to_indices,
    compute_c,
    compute_mae,
    compute_q95,
    compute_rel_mae,
    compute_rel_rmse,
    compute_rmse,
    get_atomic_number_table_from_zs,
    get_tag,
    setup_logger,
)

DELTA, REFERENCE = np.array([0.5, -1.5, 2.0, 0.1]), np.array([1.0, 2.0, 3.0, -4.0])


def test_element_tables_keep_the_given_order():
    table = AtomicNumberTable([8, 1])
    assert (len(table), table.zs, str(table)) == (2, [8, 1], "AtomicNumberTable: (8, 1)")
    assert table.index_to_z(0) == 8
    assert table.z_to_index(1) == 1
    assert table == AtomicNumberTable((8, 1))
    assert table != AtomicNumberTable((1, 8))
    with pytest.raises(ValueError, match=r"atomic number 3 is not among the elements \[8, 1\]"):
        table.z_to_index(3)


def test_tables_from_numbers_are_sorted_and_plain():
    table = get_atomic_number_table_from_zs(iter(np.array([8, 1, 8, 6])))
    assert table.zs == [1, 6, 8]
    assert all(type(z) is int for z in table.zs)


def test_elements_to_indices():
    table = AtomicNumberTable([8, 1, 29])
    indices = atomic_numbers_to_indices(np.array([1, 8, 29, 1]), table)
    assert indices.tolist() == [1, 0, 2, 1]
    assert indices.dtype == np.int64
    assert atomic_numbers_to_indices([], table).shape == (0,)
    with pytest.raises(InputError, match="atomic number 2 "):
        atomic_numbers_to_indices(np.array([1, 2]), table)


def test_error_measures():
    """The numbers are those of mace-torch 0.3.16."""
    assert compute_mae(DELTA) == pytest.approx(1.025)
    assert compute_rmse(DELTA) == pytest.approx(1.2757350822173072)
    assert compute_q95(DELTA) == pytest.approx(1.925)
    assert compute_rel_mae(DELTA, REFERENCE) == pytest.approx(40.99999998359999)
    assert compute_rel_rmse(DELTA, REFERENCE) == pytest.approx(46.58325877839866)
    assert [compute_c(DELTA, eta) for eta in (0.1, 0.5, 1.0, 1.6)] == [0.0, 0.25, 0.5, 0.75]
    assert isinstance(compute_rmse(DELTA), float)


def test_json_knows_numpy_and_torch():
    values = {
        "a": np.float64(1),
        "b": torch.arange(3),
        "c": np.arange(2),
        "d": torch.tensor(2.5),
        "e": np.bool_(True),
    }
    assert (
        json.dumps(values, cls=UniversalEncoder)
        == '{"a": 1.0, "b": [0, 1, 2], "c": [0, 1], "d": 2.5, "e": true}'
    )
    with pytest.raises(TypeError):
        json.dumps({"a": object()}, cls=UniversalEncoder)


def test_metrics_are_appended_a_line_each(tmp_path):
    logger = MetricsLogger(tmp_path / "results", "x_run-1_train")
    logger.log({"loss": np.float32(0.5), "epoch": None})
    logger.log({"loss": 0.25, "epoch": 0})
    lines = (tmp_path / "results" / "x_run-1_train.txt").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"loss": 0.5, "epoch": None}, {"loss": 0.25, "epoch": 0}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_named(tmp_path):
    (tmp_path / "x.txt").symlink_to("/dev/full")
    with pytest.raises(RunError, match=f"cannot write {tmp_path}/x.txt: No space left on device"):
        MetricsLogger(tmp_path, "x").log({"loss": 0.25})


def test_tags():
    assert get_tag("water", 3) == "water_run-3"


LINE = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO: hello$"


def test_rank_zero_logs_to_console_and_files(tmp_path, capsys):
    import re

    setup_logger("INFO", tag="x_run-1", directory=tmp_path / "logs")
    logging.info("hello")
    logging.debug("detail")
    log, debug = (tmp_path / "logs" / f"x_run-1{suffix}.log" for suffix in ("", "_debug"))
    captured = capsys.readouterr()
    assert re.match(LINE, captured.out)
    assert captured.err == ""  # D24: nothing is printed beside
    assert log.read_text() == captured.out
    assert [line.split(" ", 2)[2] for line in debug.read_text().splitlines()] == [
        "INFO: hello",
        "DEBUG: detail",
    ]


def test_other_ranks_write_no_file_and_show_errors_only(tmp_path, capsys):
    setup_logger(logging.DEBUG, tag="x", directory=tmp_path, rank=3)
    logging.warning("hello")
    logging.error("broken")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rank 3: ")
    assert captured.err.rstrip().endswith("ERROR: broken")
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_second_setup_replaces_the_first(tmp_path, capsys):
    foreign = logging.NullHandler()
    logging.getLogger().addHandler(foreign)
    setup_logger(tag="one", directory=tmp_path)
    setup_logger(tag="two", directory=tmp_path)
    logging.info("hello")
    assert capsys.readouterr().out.count("hello") == 1
    assert (tmp_path / "one.log").read_text() == ""
    assert "hello" in (tmp_path / "two.log").read_text()
    assert foreign in logging.getLogger().handlers


def test_half_a_record_of_a_run_that_died_is_dropped(tmp_path):
    logger = MetricsLogger(tmp_path, "m")
    logger.path.write_text('{"loss": 1}\n{"lo')
    logger.log({"loss": 2})
    logger.log({"loss": 3})
    assert [json.loads(line)["loss"] for line in logger.path.read_text().splitlines()] == [1, 2, 3]
