"""Tiny labelled extxyz files, standard library only.

usage: python make_tiny.py OUT.xyz N SEED [key=value ...]
keys: nmin=3 nmax=6 box=8.0 pbc=TTT cp=1 stress=0 electron_missing=0 potential_every=1
      isolated=0 head= shift=0 dipole=0 charges=0

Hydrogen and oxygen atoms with a Morse potential that depends on a net number of electrons q and is cut off
smoothly at 4 Angstrom: forces, stress and Fermi level are exact derivatives of the energy. On demand charges
0.4 (H) and -0.8 (O), and a dipole: the one of the charges and something of the directions of the neighbours.
"""

import math
import random
import sys

DEPTH, STEEPNESS, LENGTH, CUTOFF = 0.8, 1.7, 1.4, 4.0  # eV, 1/Angstrom, Angstrom, Angstrom
FERMI_LEVEL, STIFFNESS = -4.0, 1.5  # V at q = 0, V per electron
E0 = {"H": -1.0, "O": -2.0}  # eV
CHARGES = {"H": 0.4, "O": -0.8}  # e


def cut_off(r):
    """Smooth cut-off and its derivative."""
    x = math.pi * r / CUTOFF
    return 0.5 * (math.cos(x) + 1), -0.5 * math.pi / CUTOFF * math.sin(x)


def pair(r, q):
    """Energy, dE/dr and dE/dq of one pair."""
    f, df = cut_off(r)
    e = math.exp(-STEEPNESS * (r - LENGTH))
    v, dv = DEPTH * (e * e - 2 * e), DEPTH * (-2 * STEEPNESS * e * e + 2 * STEEPNESS * e)
    w, dw = 0.3 * math.exp(-r / 2), -0.15 * math.exp(-r / 2)
    return (v + q * w) * f, (dv + q * dw) * f + (v + q * w) * df, w * f


def label(positions, q, box=8.0, pbc="TTT"):
    """Interaction energy, forces, Fermi level and stress."""
    energy, fermi = FERMI_LEVEL * q + 0.5 * STIFFNESS * q * q, FERMI_LEVEL + STIFFNESS * q
    forces = [[0.0] * 3 for _ in positions]
    strain = [[0.0] * 3 for _ in range(3)]
    for i in range(len(positions)):
        for j in range(i + 1, len(positions)):
            d = [positions[j][k] - positions[i][k] for k in range(3)]
            d = [x - box * round(x / box) if pbc[k] == "T" else x for k, x in enumerate(d)]
            r = math.sqrt(sum(x * x for x in d))
            if r >= CUTOFF:
                continue
            e, de, dq = pair(r, q)
            energy += e
            fermi += dq
            for k in range(3):
                forces[i][k] += de * d[k] / r
                forces[j][k] -= de * d[k] / r
                for m in range(3):
                    strain[k][m] += de * d[k] * d[m] / r
    return energy, forces, fermi, [[x / box**3 for x in row] for row in strain]


def dipole_of(species, positions):
    """Dipole moment, Debye."""
    dipole = [0.0, 0.0, 0.0]
    for s, p in zip(species, positions, strict=True):
        dipole = [d + 4.80320471 * CHARGES[s] * x for d, x in zip(dipole, p, strict=True)]
        for other in positions:
            r = math.dist(p, other)
            if 0 < r < CUTOFF:
                for k in range(3):
                    dipole[k] += CHARGES[s] * cut_off(r)[0] * (other[k] - p[k]) / r
    return dipole


def comment_line(species, positions, q, t, options, extra=""):
    """The comment line of frame ``t``, and its forces."""
    box, pbc = float(options.get("box", 8.0)), options.get("pbc", "TTT")
    energy, forces, fermi, stress = label(positions, q, box, pbc)
    energy += sum(E0[s] for s in species)
    line = f'Lattice="{box} 0 0 0 {box} 0 0 0 {box}" '
    charges = ":REF_charges:R:1" if int(options.get("charges", 0)) else ""
    line += f"Properties=species:S:1:pos:R:3:REF_forces:R:3{charges} REF_energy={energy:.10f} "
    if int(options.get("dipole", 0)):
        line += 'REF_dipole="{:.10f} {:.10f} {:.10f}" '.format(*dipole_of(species, positions))
    if int(options.get("cp", 1)):
        if t >= int(options.get("electron_missing", 0)):
            line += f"electron={q:.6f} "
        if t % int(options.get("potential_every", 1)) == 0:
            line += f"potential={fermi:.10f} "
    if int(options.get("stress", 0)):
        flat = " ".join(f"{x:.12f}" for row in stress for x in row)
        virials = " ".join(f"{-x * box**3:.12f}" for row in stress for x in row)
        line += f'REF_stress="{flat}" REF_virials="{virials}" '
    if options.get("head"):
        line += f"head={options['head']} "
    return line + extra + f'pbc="{" ".join(pbc)}"', forces


def write_frame(file, species, positions, q, t, options, extra=""):
    """Write one labelled frame."""
    line, forces = comment_line(species, positions, q, t, options, extra)
    file.write(f"{len(species)}\n{line}\n")
    for s, p, f in zip(species, positions, forces, strict=True):
        charge = [CHARGES[s]] if int(options.get("charges", 0)) else []
        file.write(s + "".join(f" {x:16.10f}" for x in p + f + charge) + "\n")


def place_atoms(rnd, n):
    """Positions in a cube of 3.2 Angstrom, no two closer than 1.1."""
    positions = []
    while len(positions) < n:
        p = [2 + 3.2 * rnd.random() for _ in range(3)]
        if all(math.dist(p, x) > 1.1 for x in positions):
            positions.append(p)
    return positions


def main(out, n, seed, **options):
    """Write ``n`` frames to the file ``out``; options as in the text at the top."""
    rnd = random.Random(seed)
    shift = float(options.get("shift", 0))
    with open(out, "w") as file:
        if int(options.get("isolated", 0)):
            for s in "HO":
                write_frame(file, [s], [[0.0, 0.0, 0.0]], 0.0, 0, options, "config_type=IsolatedAtom ")
        for t in range(int(n)):
            m = rnd.randint(int(options.get("nmin", 3)), int(options.get("nmax", 6)))
            positions = [[x + shift for x in p] for p in place_atoms(rnd, m)]
            write_frame(file, [rnd.choice("HO") for _ in range(m)], positions, rnd.uniform(-1, 1), t, options)


if __name__ == "__main__":
    out, n, seed = sys.argv[1:4]
    seed = int(seed) if seed.isdigit() else seed
    main(out, n, seed, **dict(x.split("=", 1) for x in sys.argv[4:]))
