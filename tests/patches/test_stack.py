"""The real stack: each patch is needed, and with it the failure is gone.

"Without a patch" is the tree at the level below it, written by `scripts/patches export`. There a training on
two gloo ranks shows what a user would see: exit status, files and log. The trainings are the smallest that
end in the save stage.
"""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.data.make_tiny import main as make_tiny
from tests.harness import BASE, CP, DATA, E0S, NO_STATISTICS, Finished, metric, one, run, tiny_data, two
from tests.patches.toy import ROOT, commit, patches, quilt
from tests.patches.toy import run as run_command

pytestmark = pytest.mark.multirank

FAULTS = Path(__file__).parent / "faults"
PICKLE_ERROR = "ScriptFunction cannot be pickled"
# e3nn 0.6 builds models without ScriptFunctions unless it is asked for them, so a plain copy works there
COPIES_FAIL = metadata.version("e3nn") < "0.6"
LOAD = """
import sys, torch
for path in sys.argv[1:]:
    if path.endswith("_compiled.model"):
        torch.jit.load(path)
    else:
        torch.load(path, weights_only=False)
"""


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """The trees with 0, 1, 2 ... patches applied."""
    folder = tmp_path_factory.mktemp("levels")
    count = len(list((ROOT / "patches").glob("*.patch")))
    for level in range(count + 1):
        patches(ROOT, "export", "--level", level, folder / str(level))
    return [folder / str(level) for level in range(count + 1)]


def test_an_export_starts_as_its_packaging_says(trees, tmp_path):
    for tree in trees:
        run(["-c", "import cp_mace; cp_mace.run_train()", "--help"], tmp_path, tree=tree).succeeded()


def train(tree: Path, folder: Path, *flags: str, fault: str | None = None) -> Finished:
    """Train run "m" for one epoch on two ranks with the package of a tree."""
    if not folder.exists():
        folder.mkdir()
        tiny_data(folder)
    env = {"SAVE_FAULT": fault, "PYTHONPATH": str(FAULTS)} if fault else {}
    return two([*CP, "--name=m", "--max_num_epochs=1", *flags], folder, tree=tree, env=env)


def model_files(folder: Path) -> list[str]:
    """The model files of a run, by their final names."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.model"))


def all_load(tree: Path, folder: Path) -> bool:
    """Whether a fresh process with the package of a tree reads every model file."""
    return run(["-c", LOAD, *model_files(folder)], folder, tree=tree).status == 0


def assert_saved(finished: Finished, tree: Path) -> None:
    """A training that ended well: status 0, every promised file, all of which load."""
    finished.succeeded()
    assert model_files(finished.folder) == ["checkpoints/m_run-1.model", "m.model", "m_compiled.model"]
    assert all_load(tree, finished.folder)


def assert_copy_failed(finished: Finished, tree: Path) -> None:
    """A training that ended well up to a copy of the live model; with e3nn 0.6 it ends well altogether."""
    if not COPIES_FAIL:
        return assert_saved(finished, tree)
    assert_failed_at_the_copy(finished, PICKLE_ERROR)
    return None


def assert_failed_at_the_copy(finished: Finished, cause: str) -> None:
    """A training that ended well up to its save stage, which names the cause and leaves no model."""
    finished.failed()
    assert cause in finished.output
    assert model_files(finished.folder) == []
    assert list((finished.folder / "checkpoints").glob("*.pt")), "the training itself must have ended well"


def test_0001_a_trained_model_cannot_be_saved_without_the_rebuilt_copy(trees, tmp_path):
    assert_copy_failed(train(trees[0], tmp_path / "without"), trees[0])
    assert_saved(train(trees[1], tmp_path / "with"), trees[1])


def test_0002_a_model_trained_with_cueq_cannot_be_saved_without_the_conversion_of_the_copy(trees, tmp_path):
    # With e3nn 0.6 the live model can be copied, but the copy's kernels hold tensors unknown to the model.
    cause = PICKLE_ERROR if COPIES_FAIL else "was not built from the given configuration"
    assert_failed_at_the_copy(train(trees[1], tmp_path / "without", "--enable_cueq=True"), cause)
    assert_saved(train(trees[2], tmp_path / "with", "--enable_cueq=True"), trees[2])


@pytest.mark.parametrize("fault", ["full", pytest.param("crash", marks=pytest.mark.slow)])
def test_0003_an_interrupted_write_leaves_half_a_model_without_the_atomic_writer(trees, tmp_path, fault):
    without = train(trees[2], tmp_path / "without", fault=fault).failed()
    assert model_files(without.folder) == ["checkpoints/m_run-1.model"]
    assert not all_load(trees[2], without.folder), "the half-written file stands under its final name"

    guarded = train(trees[3], tmp_path / "with", fault=fault).failed()
    assert model_files(guarded.folder) == []
    assert list((guarded.folder / "checkpoints").glob("*.pt")), "the checkpoints stay"
    if fault == "full":
        assert "checkpoints/m_run-1.model" in guarded.output and "File too large" in guarded.output
    assert_saved(train(trees[3], guarded.folder, "--restart_latest"), trees[3])


STAND_IN = Path(__file__).parents[1] / "distributed" / "srun.py"  # for srun: the variables, and two processes
FAULTY_RUN = Path(__file__).parents[1] / "distributed" / "faulty_run.py"


def train_with(command: list[str], tree: Path, folder: Path, *flags: str, **env: str) -> Finished:
    """The same training, started by ``python *command``; ``flags`` come last."""
    folder.mkdir()
    tiny_data(folder)
    return run([*command, *DATA, *E0S, *BASE, *CP, "--name=m", *flags], folder, tree=tree, env=env)


def test_0004_processes_of_srun_do_not_find_each_other_without_the_launchers(trees, tmp_path):
    srun = [str(STAND_IN), "-n", "2", sys.executable, "-m", "mace.cli.run_train"]
    flags = ["--distributed", "--max_num_epochs=1"]
    of_tests = {"PYTHONPATH": str(ROOT)}  # behind the tree: the stand-in has its variables from there
    without = train_with(srun, trees[3], tmp_path / "without", *flags, **of_tests).failed()
    assert "no launcher started this process" in without.output and model_files(without.folder) == []
    found = train_with(srun, trees[4], tmp_path / "with", *flags, **of_tests)
    assert_saved(found, trees[4])
    assert "2 processes on 1 host" in found.output and "launched by srun" in found.output


def test_0005_ranks_part_at_the_end_of_patience_without_shared_decisions(trees, tmp_path):
    flags = ["--lr=0.0", "--patience=2", "--max_num_epochs=20", "--dist_timeout=15"]
    without = train(trees[4], tmp_path / "without", *flags).failed()
    assert "Stopping optimization after 2 epochs without improvement" in without.output
    assert model_files(without.folder) == []
    found = train(trees[5], tmp_path / "with", *flags)
    assert_saved(found, trees[5])
    assert "Stopping optimization after 2 epochs without improvement" in found.output


@pytest.mark.slow
def test_0005_errors_depend_on_the_number_of_ranks_without_the_pooling(trees, tmp_path):
    """Five validation frames: with two ranks one of them counts twice."""
    errors = {}
    for level in (4, 5):
        folder = tmp_path / str(level)
        folder.mkdir()
        tiny_data(folder)
        make_tiny(folder / "valid.xyz", 5, 31)
        flags = [*CP, *NO_STATISTICS, "--lr=0.0", "--max_num_epochs=1"]
        one([*flags, "--name=one"], folder, tree=trees[level]).succeeded()
        two([*flags, "--name=two"], folder, tree=trees[level]).succeeded()
        errors[level] = [metric(folder, name, "rmse_f", epoch=0) for name in ("one", "two")]
    assert errors[4][1] != pytest.approx(errors[4][0], rel=1e-3)
    assert errors[5][1] == pytest.approx(errors[5][0], rel=1e-12)


def test_0006_torchrun_knows_no_cause_without_the_failures(trees, tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--no-python"]
    command = [*launcher, sys.executable, str(FAULTY_RUN)]
    fault = {"FAULT": "exception", "MOMENT": "middle step", "RANK_AT_FAULT": "1"}
    without, found = (
        train_with(command, trees[level], tmp_path / str(level), "--distributed", **fault).failed()
        for level in (5, 6)
    )
    report = "Root Cause (first observed failure)"
    assert "Planted" not in without.output.partition(report)[2]
    assert "Planted: planted in this rank" in found.output.partition(report)[2]
    assert found.told.count("rank 1 failed:\nTraceback") == 1


def test_the_committed_stack_is_clean():
    patches(ROOT, "verify")


def test_quilt_and_the_tool_pop_and_push_the_real_stack_without_a_change(tmp_path):
    copy = tmp_path / "copy"
    for folder in ("mace", "patches", "scripts", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".gitignore", copy)
    run_command(copy, "git", "init", "-q")
    commit(copy)
    patches(copy, "quilt-init")
    quilt(copy, "pop", "-a")
    assert run_command(copy, "git", "status", "--porcelain") != ""
    quilt(copy, "push", "-a")
    assert run_command(copy, "git", "status", "--porcelain") == ""
    for _ in (ROOT / "patches").glob("*.patch"):
        assert "unchanged" in quilt(copy, "refresh")
        patches(copy, "pop")
    patches(copy, "push", "-a")
    assert run_command(copy, "git", "status", "--porcelain") == ""
