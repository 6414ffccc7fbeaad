"""What happens to runs, done to real ones: each rank ends soon, the cause is named, nothing is lost.

The faults are those of `faulty_run`, at its moments. Every one happens once in the fast tier; the slow tests
are all faults at all moments.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.faulty_run import MOMENTS
from tests.harness import BASE, CP, DATA, E0S, Finished, run, tiny_data, tracebacks
from tests.system_tools import need
from tests.tolerances import relative

pytestmark = pytest.mark.multirank

RUN = Path(__file__).with_name("faulty_run.py")
FRAMES, EPOCHS = 12, 3  # of the run
TIMEOUT = 10  # seconds, --dist_timeout of a run with a stopped rank
AFTER_A_FAULT = 15.0  # seconds in which all ranks are gone
AFTER_A_STOP = TIMEOUT + 35.0  # torchrun waits 30 s for a process that does not end
SAME_LOSSES = relative("restart", torch.float64)
ON_EVERY_RANK = [name for name in MOMENTS if name != "checkpoint"]  # which rank 0 alone writes
STEPS = [name for name in MOMENTS if name.endswith("step")]


def start(
    folder: Path, *flags: str, ranks: int = 2, launcher: Sequence[str] = (), **variables: str
) -> Finished:
    """The run of this file, with a fault if the variables name one; ``launcher``: flags of torchrun."""
    options = ["--standalone", "--nnodes=1", f"--nproc_per_node={ranks}", *launcher, "--no-python"]
    command = [sys.executable, str(RUN), *DATA, *E0S, *BASE, "--distributed", *CP, "--name=m", *flags]
    return run(["-m", "torch.distributed.run", *options, *command], folder, env=variables)


@dataclass(frozen=True)
class Records:
    """Losses of the steps and of the evaluations after epochs."""

    steps: list[float]
    evaluations: list[float]


def records(folder: Path, after: int = 0) -> Records:
    """What the metrics file holds behind its first ``after`` lines."""
    file = folder / "results" / "m_run-1_train.txt"
    text = file.read_text() if file.exists() else ""
    complete = text[: text.rfind("\n") + 1]  # a full disk leaves half a line, which a restart drops
    lines = [json.loads(line) for line in complete.splitlines()[after:]]
    return Records(
        steps=[line["loss"] for line in lines if line["mode"] == "opt"],
        evaluations=[line["loss"] for line in lines if line["mode"] == "eval" and line["epoch"] is not None],
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Records:
    folder = tiny_data(tmp_path_factory.mktemp("undisturbed"))
    start(folder).succeeded()
    return records(folder)


def happened(folder: Path) -> float:
    """When the fault happened, which must be so."""
    proofs = list(folder.glob("fault_*"))
    assert proofs, "the fault did not happen"
    return proofs[0].stat().st_mtime


def whole(folder: Path, damaged: Path | None = None) -> None:
    """Every file under a final name can be read, but for one that the test itself has damaged."""
    for path in {*folder.rglob("*.pt"), *folder.rglob("*.model")} - {damaged}:
        if path.name.endswith("_compiled.model"):
            torch.jit.load(path)
        else:
            torch.load(path, weights_only=path.suffix == ".pt")


def steps_kept(folder: Path, steps_an_epoch: int, damaged: Path | None) -> int:
    """How many steps the newest whole checkpoint stands for."""
    kept = [0]
    for path in {*(folder / "checkpoints").glob("*.pt")} - {damaged}:
        progress = torch.load(path, weights_only=True)["progress"]
        kept.append(steps_an_epoch * progress["next_epoch"] + steps_an_epoch * progress["consumed"] // FRAMES)
    return max(kept)


def goes_on(
    folder: Path, undisturbed: Records, *flags: str, damaged: Path | None = None, ranks: int = 2
) -> None:
    """A restart ends well, with the steps and evaluations that an undisturbed run has last."""
    file = folder / "results" / "m_run-1_train.txt"
    before = file.read_text().count("\n") if file.exists() else 0
    done, kept = records(folder), steps_kept(folder, len(undisturbed.steps) // EPOCHS, damaged)
    start(folder, "--restart_latest", *flags, ranks=ranks).succeeded()
    rest = records(folder, before)
    # It goes on from the newest whole checkpoint, and nothing is left out.
    assert len(rest.steps) == len(undisturbed.steps) - kept
    assert len(done.evaluations) + len(rest.evaluations) >= len(undisturbed.evaluations)
    for found, expected in (
        (rest.steps, undisturbed.steps),
        (rest.evaluations, undisturbed.evaluations),
    ):
        assert found == pytest.approx(expected[len(expected) - len(found) :], rel=SAME_LOSSES)
    whole(folder, damaged)
    for name in ("m.model", "m_compiled.model"):
        assert [path for path in folder.rglob(name) if path.parent.name != "checkpoints"]


def suffer(
    folder: Path,
    fault: str,
    moment: str,
    rank: str,
    *flags: str,
    within: float = AFTER_A_FAULT,
    **how: Any,
) -> Finished:
    """A run with a fault, which ends in time and leaves whole files only; ``how`` of :func:`start`."""
    variables = {"FAULT": fault, "MOMENT": moment, "RANK_AT_FAULT": rank}
    finished = start(folder, *flags, **how, **variables).failed()
    assert time.time() - happened(folder) < within
    assert not list(folder.rglob("*.tmp")) or fault == "kill"
    whole(folder)
    return finished


def every(*moments: str, fast: str) -> list:
    """Parameters: all moments, of which one is in the fast tier."""
    return [pytest.param(name, marks=[] if name == fast else pytest.mark.slow) for name in moments]


@pytest.mark.parametrize("moment", every(*MOMENTS, fast="middle step"))
def test_rank_0_is_killed(tmp_path, undisturbed, moment):
    folder = tiny_data(tmp_path)
    finished = suffer(folder, "kill", moment, "0")
    assert re.search(r"rank 1 lost contact: rank 0 \(process \d+ on .*\) has ended", finished.told)
    assert tracebacks(finished.told) <= 1, "torchrun's own"
    goes_on(folder, undisturbed)


@pytest.mark.parametrize("moment", every(*ON_EVERY_RANK, fast="evaluation"))
def test_another_rank_is_killed(tmp_path, undisturbed, moment):
    folder = tiny_data(tmp_path)
    finished = suffer(folder, "kill", moment, "1")
    assert re.search(r"rank 0 lost contact: rank 1 \(process \d+ on .*\) has ended", finished.told)
    goes_on(folder, undisturbed)


PLACES = [("data", "1"), ("middle step", "1"), ("evaluation", "0"), ("saving", "0")]


@pytest.mark.parametrize(
    ("moment", "rank"),
    [
        *PLACES,
        *(
            pytest.param(moment, rank, marks=pytest.mark.slow)
            for moment in MOMENTS
            for rank in ("0", "1")
            # Rank 0 alone writes checkpoints.
            if (moment, rank) not in [*PLACES, ("checkpoint", "1")]
        ),
    ],
)
def test_an_exception_on_one_rank_is_told_once_and_in_full(tmp_path, undisturbed, moment, rank):
    folder = tiny_data(tmp_path)
    finished = suffer(folder, "exception", moment, rank)
    assert finished.told.count(f"rank {rank} failed:\nTraceback (most recent call last)") == 1
    assert finished.told.count("Planted: planted in this rank\n") == 1
    assert "lost contact" not in finished.output
    # torchrun's report names the cause where it names the first that failed.
    cause = finished.output.partition("Root Cause (first observed failure)")[2]
    assert f"rank      : {rank}" in cause and "Planted: planted in this rank" in cause
    goes_on(folder, undisturbed)


@pytest.mark.parametrize("moment", every(*STEPS, fast="middle step"))
def test_a_loss_that_is_not_finite_on_one_rank_stops_all(tmp_path, undisturbed, moment):
    folder = tiny_data(tmp_path)
    finished = suffer(folder, "nan", moment, "1")
    assert finished.told.count("the training loss is nan in epoch") == 1
    goes_on(folder, undisturbed)


@pytest.mark.parametrize("moment", every(*MOMENTS, fast="middle step"))
def test_a_stop_signal_to_all(tmp_path, undisturbed, moment):
    folder = tiny_data(tmp_path)
    # Workers of the data loader get the signal as well: it is sent to the whole group.
    finished = suffer(folder, "term", moment, "0", "--num_workers=1")
    assert finished.told.count("mace_run_train: stopped by") == 1
    if moment in ("first step", "middle step", "evaluation", "checkpoint", "last step"):
        assert "--restart_latest goes on from it" in finished.told
        assert (folder / "checkpoints" / "m_run-1_latest.pt").is_file()
    goes_on(folder, undisturbed)


@pytest.mark.slow
def test_sigusr1_reaches_all_through_a_torchrun_that_is_told_to_pass_it_on(tmp_path, undisturbed):
    folder = tiny_data(tmp_path)
    signals = "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"  # as in docs/training.md
    finished = suffer(folder, "usr1", "middle step", "0", launcher=[signals])
    assert finished.told.count("mace_run_train: stopped by SIGUSR1") == 1
    assert (folder / "checkpoints" / "m_run-1_latest.pt").is_file()
    goes_on(folder, undisturbed)


def test_a_stop_within_an_epoch_goes_on_with_another_number_of_ranks(tmp_path, undisturbed):
    folder = tiny_data(tmp_path)
    suffer(folder, "term", "middle step", "0")
    position = torch.load(folder / "checkpoints" / "m_run-1_latest.pt", weights_only=True)["progress"]
    assert position["next_epoch"] == 1 and 0 < position["consumed"] <= 12
    before = len((folder / "results" / "m_run-1_train.txt").read_text().splitlines())
    # One rank with the global batch of two.
    start(folder, "--restart_latest", "--batch_size=4", ranks=1).succeeded()
    rest = records(folder, before).steps
    assert rest == pytest.approx(
        undisturbed.steps[-len(rest) :], rel=relative("training over ranks", torch.float64)
    )
    assert len(rest) == 6 - position["consumed"] // 4


def alone(folder: Path, *flags: str, **variables: str) -> Finished:
    """The run of this file in one process, with the batches of two ranks."""
    command = [str(RUN), *DATA, *E0S, *BASE, *CP, "--name=m", "--batch_size=4", *flags]
    return run(command, folder, env=variables)


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGUSR1", marks=pytest.mark.slow)])
def test_a_stop_signal_to_one_process_ends_it_with_its_own_status(tmp_path, undisturbed, name):
    folder = tiny_data(tmp_path)
    fault = {"FAULT": f"self:{name}", "MOMENT": "evaluation", "RANK_AT_FAULT": "0"}
    finished = alone(folder, **fault)
    assert finished.status == 75
    lines = [line for line in finished.output.splitlines() if line.startswith("mace_run_train: ")]
    assert len(lines) == 1 and f"stopped by {name} in epoch 1, after 12 configurations" in lines[0]
    assert tracebacks(finished.output) == 0
    alone(folder, "--restart_latest").succeeded()
    rows = records(folder)
    assert rows.steps == pytest.approx(undisturbed.steps, rel=relative("training over ranks", torch.float64))
    assert len(rows.evaluations) == 3  # the one that was interrupted is made up for


@pytest.mark.slow
def test_an_interrupt_from_the_keyboard_is_one_line(tmp_path):
    folder = tiny_data(tmp_path)
    fault = {"FAULT": "self:SIGINT", "MOMENT": "middle step", "RANK_AT_FAULT": "0"}
    finished = alone(folder, **fault)
    assert finished.status == 130 and tracebacks(finished.output) == 0
    assert finished.output.count("mace_run_train: interrupted") == 1


@pytest.mark.parametrize(
    ("moment", "rank"),
    [
        ("middle step", "1"),
        *(pytest.param(name, "1", marks=pytest.mark.slow) for name in ON_EVERY_RANK if name != "middle step"),
        pytest.param("middle step", "0", marks=pytest.mark.slow),
        pytest.param("saving", "0", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_is_stopped(tmp_path, undisturbed, moment, rank):
    folder = tiny_data(tmp_path)
    flags = (f"--dist_timeout={TIMEOUT}",)
    finished = suffer(folder, "stop", moment, rank, *flags, within=AFTER_A_STOP)
    other = 1 - int(rank)
    gone = rf"rank {other} lost contact: rank {rank} \(process \d+ on .*\) is stopped"
    assert re.search(gone, finished.told)
    goes_on(folder, undisturbed)


def exchanges(folder: Path, rank: int) -> list[str]:
    """What the log of a rank says of its exchanges."""
    log = (folder / "logs" / f"m_run-1_rank{rank}.log").read_text()
    return [line.partition("Exchange ")[2] for line in log.splitlines() if "Exchange " in line]


def test_a_debugged_run_has_every_exchange_in_the_log_of_each_rank(tmp_path):
    folder = tiny_data(tmp_path)
    start(folder, "--dist_debug", "--max_num_epochs=1").succeeded()
    ours, theirs = exchanges(folder, 0), exchanges(folder, 1)
    names = [line.split(":")[0] for line in ours if " begins" in line]
    assert names == [line.split(":")[0] for line in theirs if " begins" in line]
    assert {name.split()[0] for name in names} >= {"all_reduce", "all_gather_object", "broadcast"}
    assert sum("has ended" in line or "is under way" in line for line in ours) == len(names)
    assert "Exchange" not in (folder / "logs" / "m_run-1.log").read_text()


@pytest.mark.slow
def test_a_log_of_each_rank(tmp_path):
    folder = tiny_data(tmp_path)
    start(folder, "--log_all_ranks", "--max_num_epochs=1").succeeded()
    for rank in (0, 1):
        assert "Training complete" in (folder / "logs" / f"m_run-1_rank{rank}.log").read_text()
        assert exchanges(folder, rank) == []


@pytest.mark.slow
def test_a_rank_of_a_debugged_run_that_is_stopped(tmp_path, undisturbed):
    folder = tiny_data(tmp_path)
    flags = (f"--dist_timeout={TIMEOUT}", "--dist_debug")
    finished = suffer(folder, "stop", "middle step", "1", *flags, within=AFTER_A_STOP)
    assert re.search(r"rank 0 lost contact: rank 1 \(process \d+ on .*\) is stopped", finished.told)
    assert not exchanges(folder, 0)[-1].endswith("has ended")
    goes_on(folder, undisturbed)


CROWD = ("--batch_size=1",)  # 12 frames on 3 and on 4 ranks


@pytest.fixture(scope="module", params=[3, 4])
def crowd(request, tmp_path_factory) -> tuple[int, Records]:
    """A number of ranks, and what they do undisturbed."""
    folder = tiny_data(tmp_path_factory.mktemp("crowd"))
    start(folder, *CROWD, ranks=request.param).succeeded()
    return request.param, records(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "moment", "rank", "cause"),
    [
        ("kill", "graphs", "0", r"lost contact: rank 0 \(process \d+ on .*\) has ended"),
        ("kill", "middle step", "2", r"lost contact: rank 2 \(process \d+ on .*\) has ended"),
        ("kill", "saving", "0", r"lost contact: rank 0 \(process \d+ on .*\) has ended"),
        ("exception", "data", "1", r"rank 1 failed:\nTraceback"),
        ("exception", "evaluation", "2", r"rank 2 failed:\nTraceback"),
        ("exception", "saving", "0", r"rank 0 failed:\nTraceback"),
        ("nan", "last step", "2", r"the training loss is nan in epoch"),
        ("term", "evaluation", "0", r"mace_run_train: stopped by"),
        ("stop", "middle step", "2", r"lost contact: rank 2 \(process \d+ on .*\) is stopped"),
    ],
)
def test_three_and_four_ranks(tmp_path, crowd, fault, moment, rank, cause):
    ranks, undisturbed = crowd
    folder = tiny_data(tmp_path)
    flags = [*CROWD, *([f"--dist_timeout={TIMEOUT}"] if fault == "stop" else [])]
    within = AFTER_A_STOP if fault == "stop" else AFTER_A_FAULT
    finished = suffer(folder, fault, moment, rank, *flags, within=within, ranks=ranks)
    assert len(re.findall(cause, finished.told)) == 1
    if "lost contact" not in cause:
        assert "lost contact" not in finished.told
    goes_on(folder, undisturbed, *CROWD, ranks=ranks)


def under_srun(folder: Path, fault: str, moment: str, rank: str, *flags: str) -> Finished:
    """A run with a fault that srun --kill-on-bad-exit starts: its processes keep the store themselves."""
    srun = ["-m", "tests.distributed.srun", "-n", "2", sys.executable, str(RUN)]
    variables = {"FAULT": fault, "MOMENT": moment, "RANK_AT_FAULT": rank}
    command = [*srun, *DATA, *E0S, *BASE, "--distributed", *CP, "--name=m", *flags]
    return run(command, folder, env=variables).failed()


# With rank 0 goes the store in which processes say who failed first: each that is left speaks for itself.
@pytest.mark.parametrize(
    ("fault", "state", "within"),
    [
        ("kill", "has ended", AFTER_A_FAULT),
        pytest.param("stop", "is stopped", TIMEOUT + AFTER_A_FAULT, marks=pytest.mark.slow),
    ],
)
def test_srun_whose_rank_0_is_gone_with_its_store(tmp_path, fault, state, within):
    folder = tiny_data(tmp_path)
    finished = under_srun(folder, fault, "middle step", "0", f"--dist_timeout={TIMEOUT}")
    assert time.time() - happened(folder) < within
    gone = rf"rank 1 lost contact: rank 0 \(process \d+ on .*\) {state}"
    assert len(re.findall(gone, finished.told)) == 1
    whole(folder)


@pytest.mark.slow
def test_srun_passes_on_the_status_of_a_run_that_was_asked_to_stop(tmp_path, undisturbed):
    folder = tiny_data(tmp_path)
    finished = under_srun(folder, "self:SIGUSR1", "middle step", "1")
    assert finished.status == 75
    assert finished.told.count("mace_run_train: stopped by") == 1
    goes_on(folder, undisturbed)


WRITING = ("middle step", "checkpoint", "last step", "saving")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of few megabytes on ``folder``."""
    need("mount", "unshare", right="to mount")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("moment", every(*WRITING, fast="saving"))
def test_a_full_disk(tmp_path, undisturbed, moment):
    with small_disk(tmp_path) as folder:
        tiny_data(folder)
        fill = "shell:dd if=/dev/zero of=ballast bs=64k 2>/dev/null; test -s ballast"
        finished = suffer(folder, fill, moment, "0")
        complaints = [line for line in finished.told.splitlines() if "No space left on device" in line]
        assert len([line for line in complaints if "mace_run_train: error:" in line]) == 1
        assert len(complaints) <= 3, "beside it, once a log file that cannot be written"
        (folder / "ballast").unlink()
        goes_on(folder, undisturbed)


@pytest.mark.parametrize(
    ("place", "moment"),
    [
        ("checkpoints", "checkpoint"),
        *(
            pytest.param(place, moment, marks=pytest.mark.slow)
            for place, moment in (
                ("checkpoints", "middle step"),
                ("checkpoints", "last step"),
                ("models", "saving"),
            )
        ),
    ],
)
def test_a_mount_that_became_read_only(tmp_path, undisturbed, place, moment):
    need("mount", "unshare", right="to mount")
    folder = tiny_data(tmp_path)
    path = folder / place
    path.mkdir()
    models = "--model_dir=models"
    # root ignores the modes of files, so the mount itself refuses.
    protect = f"shell:mount --bind {path} {path} && mount -o remount,ro,bind {path}"
    try:
        finished = suffer(folder, protect, moment, "0", models)
    finally:
        subprocess.run(["umount", str(path)], check=True)
    complaints = [line for line in finished.told.splitlines() if "Read-only file system" in line]
    assert len([line for line in complaints if "mace_run_train: error:" in line]) == 1
    goes_on(folder, undisturbed, models)
    assert (path.parent / "models" / "m.model").is_file()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, pytest.param(empty, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "moment", every("middle step", "evaluation", "checkpoint", "last step", fast="last step")
)
def test_a_damaged_newest_checkpoint_is_passed_over(
    tmp_path, undisturbed, moment, damage: Callable[[Path], None]
):
    folder = tiny_data(tmp_path)
    suffer(folder, "term", moment, "0")
    newest = folder / "checkpoints" / "m_run-1_latest.pt"
    damage(newest)
    goes_on(folder, undisturbed, damaged=newest)
    assert "A checkpoint is skipped" in (folder / "logs" / "m_run-1.log").read_text()
