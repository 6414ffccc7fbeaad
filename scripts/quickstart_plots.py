"""Plots of a quickstart run: parity of energy, forces and Fermi level on the test set; the learning curve.

usage: python quickstart_plots.py FOLDER    (a folder that scripts/quickstart has filled)
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from ase.io import read


def parity(axis, reference: np.ndarray, predicted: np.ndarray, name: str, unit: str, scale: float) -> None:
    """One panel: predicted against reference, the diagonal, and the RMSE in `unit`/`scale`."""
    low, high = min(reference.min(), predicted.min()), max(reference.max(), predicted.max())
    margin = 0.05 * (high - low)
    axis.plot([low - margin, high + margin], [low - margin, high + margin], color="0.7", lw=1, zorder=0)
    axis.plot(reference, predicted, ".", ms=3, alpha=0.6)
    rmse = np.sqrt(np.mean((reference - predicted) ** 2))
    axis.set_title(f"{name}: RMSE {rmse * scale:.1f} m{unit}", fontsize=10)
    axis.set_xlabel(f"reference / {unit}")
    axis.set_ylabel(f"predicted / {unit}")
    axis.set_aspect("equal", adjustable="box")
    axis.set_xlim(low - margin, high + margin)
    axis.set_ylim(low - margin, high + margin)


def plot_parity(frames: list, path: Path) -> None:
    """Energy per atom, force components and Fermi level of all `frames`."""
    atoms = np.array([len(frame) for frame in frames])
    column = {
        key: np.array([frame.info[key] for frame in frames])
        for key in ("REF_energy", "MACE_energy", "potential", "MACE_potential")
    }
    mean = (column["REF_energy"] / atoms).mean()
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    parity(
        axes[0],
        column["REF_energy"] / atoms - mean,
        column["MACE_energy"] / atoms - mean,
        "Energy (less the mean)",
        "eV/atom",
        1000.0,
    )
    forces = [
        np.concatenate([frame.arrays[key].ravel() for frame in frames])
        for key in ("REF_forces", "MACE_forces")
    ]
    parity(axes[1], forces[0], forces[1], "Forces", "eV/Å", 1000.0)
    parity(axes[2], column["potential"], column["MACE_potential"], "Fermi level", "eV", 1000.0)
    figure.savefig(path, dpi=150)


def records_of_last_run(results: Path) -> list[dict]:
    """Records since the last evaluation of an untrained model: a repeated run appends to the same file."""
    records = [json.loads(line) for line in results.read_text().splitlines()]
    starts = [i for i, record in enumerate(records) if record["mode"] == "eval" and record["epoch"] is None]
    return records[starts[-1] :]


def plot_learning_curve(results: Path, path: Path) -> None:
    """Validation RMSE of energy, forces and Fermi level, and both losses, by epoch."""
    records = records_of_last_run(results)
    evaluations = [r for r in records if r["mode"] == "eval" and r["epoch"] is not None]
    epochs = [r["epoch"] for r in evaluations]
    steps: dict[int, list[float]] = {}
    for record in records:
        if record["mode"] == "opt":
            steps.setdefault(record["epoch"], []).append(record["loss"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    left.semilogy(
        list(steps), [np.mean(losses) for losses in steps.values()], label="training (mean of steps)"
    )
    left.semilogy(epochs, [r["loss"] for r in evaluations], label="validation")
    left.set_ylabel("loss")
    for key, label in (
        ("rmse_e_per_atom", "energy / meV/atom"),
        ("rmse_f", "forces / meV/Å"),
        ("rmse_p", "Fermi level / meV"),
    ):
        right.semilogy(epochs, [1000 * r[key] for r in evaluations], label=label)
    right.set_ylabel("validation RMSE")
    for axis in (left, right):
        axis.set_xlabel("epoch")
        axis.legend()
        axis.grid(alpha=0.3, which="both")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    plot_parity(read(folder / "cu_water_test_predicted.xyz", ":"), folder / "parity.png")
    plot_learning_curve(next((folder / "results").glob("*_train.txt")), folder / "learning_curve.png")
