"""Make cu_water_train.xyz and cu_water_test.xyz: constant-potential labels from GFN1-xTB.

Needs `pip install tblite ase`. Usage: python gen_cu_water.py train|test OUTPUT.xyz
Energies are Mermin free energies (eV), so dE/d(electron) equals the Fermi level `potential` (eV).
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys

import numpy as np
from ase import Atoms, units
from ase.build import fcc111, molecule
from ase.calculators.calculator import Calculator, all_changes
from ase.io import write
from ase.md.langevin import Langevin
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from ase.units import Bohr, Hartree
from tblite.interface import Calculator as TightBinding

HARTREE_PER_KELVIN = 3.166808578545117e-06
ELECTRONIC_TEMPERATURE = 3000.0  # K


def label(atoms, charge):
    """Energy (eV), forces (eV/A), Fermi level (eV) and valence electrons of `atoms` at a total charge (e)."""
    xtb = TightBinding("GFN1-xTB", atoms.numbers, atoms.positions / Bohr, charge=float(charge))
    xtb.set("temperature", ELECTRONIC_TEMPERATURE * HARTREE_PER_KELVIN)
    xtb.set("verbosity", 0)
    xtb.set("max-iter", 400)
    xtb.set("accuracy", 0.1)
    result = xtb.singlepoint()
    filling = np.asarray(result.get("orbital-occupations")).ravel() / 2
    level = np.asarray(result.get("orbital-energies")).ravel() * Hartree
    partial = (filling > 1e-4) & (filling < 1 - 1e-4)
    kT = ELECTRONIC_TEMPERATURE * HARTREE_PER_KELVIN * Hartree
    fermi = level[partial] + kT * np.log(filling[partial] / (1 - filling[partial]))
    if len(fermi) == 0 or np.ptp(fermi) > 1e-4:
        raise RuntimeError("Fermi level is ill-defined")
    forces = -np.asarray(result.get("gradient")) * Hartree / Bohr
    return result.get("energy") * Hartree, forces, float(fermi.mean()), float(2 * filling.sum())


class WalledCluster(Calculator):
    """Neutral GFN1-xTB plus a soft spherical wall that keeps the water near the metal."""

    implemented_properties = ["energy", "forces"]

    def __init__(self, wall_radius):
        super().__init__()
        self.wall_radius = wall_radius

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        energy, forces, _, _ = label(self.atoms, 0.0)
        offset = self.atoms.positions - self.atoms.positions.mean(0)
        distance = np.linalg.norm(offset, axis=1)
        outside = np.clip(distance - self.wall_radius, 0, None)
        wall = -2.0 * (outside / np.maximum(distance, 1e-9))[:, None] * offset
        self.results = {"energy": energy, "forces": forces + wall}


def cluster_with_water(n_water, rng):
    slab = fcc111("Cu", (2, 2, 2), vacuum=None)
    atoms = Atoms("Cu8", positions=slab.positions)
    atoms.positions -= atoms.positions.mean(0)
    top, reach = atoms.positions[:, 2].max(), np.abs(atoms.positions[:, :2]).max()
    placed = 0
    while placed < n_water:
        water = molecule("H2O")
        water.rotate(rng.uniform(0, 360), "z")
        water.rotate(rng.uniform(0, 360), "x")
        water.translate([rng.uniform(-reach, reach), rng.uniform(-reach, reach), top + rng.uniform(2, 5)])
        gaps = np.linalg.norm(atoms.positions[:, None] - water.positions[None], axis=-1)
        if gaps.min() > 1.9:
            atoms += water
            placed += 1
    return atoms


def sample(n_frames, seed, every=10, charge_range=0.5, temperature=350.0):
    rng = np.random.default_rng(seed)
    frames = []
    while len(frames) < n_frames:
        atoms = cluster_with_water(4, rng)
        radius = np.linalg.norm(atoms.positions - atoms.positions.mean(0), axis=1).max() + 0.5
        atoms.calc = WalledCluster(radius)
        MaxwellBoltzmannDistribution(atoms, temperature_K=temperature, rng=rng)
        dynamics = Langevin(
            atoms, 0.5 * units.fs, temperature_K=temperature, friction=0.02 / units.fs, rng=rng
        )
        try:
            dynamics.run(100)
            for _ in range(25):
                dynamics.run(every)
                charge = rng.uniform(-charge_range, charge_range)
                energy, forces, fermi, electrons = label(atoms, charge)
                if np.abs(forces).max() > 15:
                    continue
                frame = Atoms(atoms.numbers, positions=atoms.positions)
                frame.info.update(
                    REF_energy=energy,
                    electron=electrons,
                    potential=fermi,
                    total_charge=float(charge),
                    config_type="Default",
                )
                frame.arrays["REF_forces"] = forces
                frames.append(frame)
        except RuntimeError as error:
            print("new trajectory:", error)
    return frames[:n_frames]


if __name__ == "__main__":
    which, output = sys.argv[1:]
    n_frames, seed = {"train": (480, 1), "test": (120, 2)}[which]
    write(output, sample(n_frames, seed), format="extxyz")
