"""Where a run writes: every file name of a training run is made here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class PathPlan:
    """The folders of one run and the names of the files in them.

    The tag ``<name>_run-<seed>`` begins the name of everything that belongs to one seed; the final models
    carry the name alone.
    """

    name: str
    seed: int
    work_dir: Path
    log_dir: Path
    model_dir: Path
    checkpoints_dir: Path
    results_dir: Path

    @property
    def tag(self) -> str:
        """Name and seed of the run, the stem of its logs, checkpoints and results."""
        return f"{self.name}_run-{self.seed}"

    @property
    def log_file(self) -> Path:
        """Log at the level the user asked for, appended to."""
        return self.log_dir / f"{self.tag}.log"

    @property
    def debug_log(self) -> Path:
        """Log of everything from DEBUG up, appended to."""
        return self.log_dir / f"{self.tag}_debug.log"

    @property
    def results_file(self) -> Path:
        """One JSON object a line: every training step and every evaluation."""
        return self.results_dir / f"{self.tag}_train.txt"

    def checkpoint_file(self, epoch: int, *, stage_two: bool = False) -> Path:
        """Checkpoint written after the given epoch (counted from 0)."""
        return self.checkpoints_dir / f"{self.tag}_epoch-{epoch}{'_swa' if stage_two else ''}.pt"

    @property
    def latest_checkpoint_file(self) -> Path:
        """Checkpoint of the last epoch, if that was no improvement."""
        return self.checkpoints_dir / f"{self.tag}_latest.pt"

    def tagged_model_file(self, *, stage_two: bool = False) -> Path:
        """Final model under the tag, beside the checkpoints."""
        return self.checkpoints_dir / f"{self.tag}{_stage(stage_two)}.model"

    def model_file(self, *, stage_two: bool = False) -> Path:
        """Final model under the name of the run."""
        return self.model_dir / f"{self.name}{_stage(stage_two)}.model"

    def compiled_file(self, *, stage_two: bool = False) -> Path:
        """Final model as a TorchScript archive."""
        return self.model_dir / f"{self.name}{_stage(stage_two)}_compiled.model"

    def valid_indices_file(self, head: str | None = None) -> Path:
        """Indices of the frames split off for validation; with several heads each head has its own file."""
        infix = "" if head is None else f"{head}_"
        return self.work_dir / f"valid_indices_{infix}{self.seed}.txt"

    def folders(self) -> tuple[Path, ...]:
        """Every folder the run writes to, each once."""
        folders = (self.work_dir, self.log_dir, self.model_dir, self.checkpoints_dir, self.results_dir)
        return tuple(dict.fromkeys(folders))

    def appended_files(self) -> tuple[Path, ...]:
        """The files that a run adds to, where an earlier one has left them."""
        return (self.log_file, self.debug_log, self.results_file)

    def writes(
        self, *, stage_two: bool = False, indices_names: Sequence[str | None] = ()
    ) -> list[tuple[str, Path]]:
        """What the run will write and where, as (description, path) for the start-up print.

        ``stage_two`` adds the files of the second stage, ``indices_names`` those of the validation sets that
        are split off.
        """
        rows = [
            ("log", self.log_file),
            ("debug log", self.debug_log),
            ("results", self.results_file),
            *[("validation indices (>= 10)", self.valid_indices_file(name)) for name in indices_names],
            ("checkpoints", self.checkpoints_dir / f"{self.tag}_epoch-<n>.pt"),
            ("checkpoint (latest)", self.latest_checkpoint_file),
        ]
        if stage_two:
            rows.append(("stage two checkpoints", self.checkpoints_dir / f"{self.tag}_epoch-<n>_swa.pt"))
        for stage in (False, True) if stage_two else (False,):
            prefix = "stage two " if stage else ""
            rows += [
                (f"{prefix}model", self.model_file(stage_two=stage)),
                (f"{prefix}model (by tag)", self.tagged_model_file(stage_two=stage)),
                (f"{prefix}model (TorchScript)", self.compiled_file(stage_two=stage)),
            ]
        return rows


def _stage(stage_two: bool) -> str:
    return "_stagetwo" if stage_two else ""
