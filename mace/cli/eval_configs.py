"""Label the frames of a file with a model: the command ``mace_eval_configs``."""

from __future__ import annotations

import io
import os
from argparse import Namespace
from collections.abc import Sequence

import ase
import ase.io
import numpy as np
import torch

from mace.arguments.eval_flags import check_eval_args
from mace.arguments.parsers import build_eval_arg_parser
from mace.calculators.descriptors import descriptors, mean_by_element
from mace.calculators.inputs import ModelInputs, require_head
from mace.calculators.models import accelerated
from mace.cli.launch import eval_configs as main
from mace.data.readers import read_frames
from mace.exceptions import InputError
from mace.tools import dtype_dict, init_device
from mace.tools.files import atomic_write
from mace.tools.loading import load_model
from mace.tools.torch_geometric import Batch

__all__ = ["main", "parse_args", "run"]

# Outputs of a model and what they are called in the file, after the prefix.
_OF_FRAMES = {
    "energy": "energy",
    "potential": "potential",
    "dipole": "dipole",
    "stress": "stress",
    "contributions": "BO_contributions",
}
_OF_ATOMS = {"forces": "forces", "node_energy": "node_energies", "descriptors": "descriptors"}


def parse_args() -> Namespace:
    """The command line."""
    return build_eval_arg_parser().parse_args()


def run(args: Namespace) -> None:
    """Write the frames of ``args.configs`` to ``args.output`` with what ``args.model`` says about them.

    ``atoms.info`` gets ``<info_prefix>energy`` (eV), ``potential`` (Fermi level, V) and ``dipole`` (Debye)
    where the model has one, and on demand ``stress`` ((3, 3), eV/Angstrom^3; for frames whose cell has a
    volume) and ``BO_contributions`` (eV: E0, pair repulsion, layers); ``atoms.arrays`` gets
    ``<info_prefix>forces`` (eV/Angstrom) and on demand ``node_energies`` (eV, E0 included) and
    ``descriptors``, which go to ``atoms.info`` when they are averaged. What a model does not give is not
    written. The output appears whole or not at all, and a line says what was written.

    Raises:
        InputError: files, frames or a model that cannot be used.
    """
    check_eval_args(args)
    _require_another_file(args)
    device = init_device(args.device)
    model = load_model(args.model, map_location=device, dtype=dtype_dict[args.default_dtype])
    if args.enable_cueq:
        model = accelerated(model, "MACE")
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    if args.head is not None:
        require_head(ModelInputs.of(model).heads, args.head, "--head")
    frames = read_frames(args.configs)
    for atoms in frames:
        atoms.calc = None
        if args.head is not None:
            atoms.info["head"] = args.head
    for start in range(0, len(frames), args.batch_size):
        chunk = frames[start : start + args.batch_size]
        _attach(chunk, _evaluated(model, chunk, start, args, device), args)
    text = io.StringIO()
    ase.io.write(text, frames, format="extxyz")
    try:
        atomic_write(args.output, lambda file: file.write(text.getvalue().encode()))
    except OSError as error:
        raise InputError(f"output file {args.output!r} cannot be written: {error}") from error
    _report(frames, args)


def _require_another_file(args: Namespace) -> None:
    """Raise InputError where the output would take the place of the input and its labels."""
    if os.path.realpath(args.configs) == os.path.realpath(args.output):
        raise InputError(f"--output {args.output!r} is the file of --configs: choose another one")


def _report(frames: Sequence[ase.Atoms], args: Namespace) -> None:
    """Say what was written, and which frames lack the stress that was asked for."""
    written = {name for atoms in frames for name in (*atoms.info, *atoms.arrays)}
    names = ", ".join(sorted(name for name in written if name.startswith(args.info_prefix)))
    print(f"{len(frames)} frames with {names} written to {args.output}")
    flat = sum(atoms.cell.rank < 3 for atoms in frames)
    if args.compute_stress and flat:
        print(f"no stress for the {flat} frames whose cell has no volume")


def _evaluated(
    model: torch.nn.Module, frames: Sequence[ase.Atoms], first: int, args: Namespace, device: torch.device
) -> dict[str, np.ndarray]:
    """The outputs for ``frames``, of which the file has ``first`` before them: one entry a frame or atom."""
    inputs = ModelInputs.of(model)
    graphs = [
        inputs.graph(
            atoms,
            electron_key=args.electron_key,
            charges_key=args.charges_key,
            file=args.configs,
            frame=index,
        )
        for index, atoms in enumerate(frames, start=first)
    ]
    batch = Batch.from_data_list(graphs).to(device)
    if args.compute_stress and not inputs.has_energy:
        raise InputError(f"--compute_stress: the model in {args.model!r} has no energy")
    outputs = model(batch.to_dict(), compute_stress=args.compute_stress)
    if args.return_contributions and outputs.get("contributions") is None:
        raise InputError(f"--return_contributions: the model in {args.model!r} does not return them")
    wanted = {
        "energy": True,
        "potential": True,
        "dipole": True,
        "forces": True,
        "stress": args.compute_stress,
        "contributions": args.return_contributions,
        "node_energy": args.return_node_energies,
    }
    labels = {
        name: outputs[name].detach().cpu().numpy()
        for name in wanted
        if wanted[name] and outputs.get(name) is not None
    }
    if args.return_descriptors:
        labels["descriptors"] = descriptors(
            model, outputs, args.descriptor_invariants_only, args.descriptor_num_layers
        )
    return labels


def _attach(frames: Sequence[ase.Atoms], labels: dict[str, np.ndarray], args: Namespace) -> None:
    """Put the outputs of a batch where the frames keep them."""
    of_frames = {name: labels[name] for name in _OF_FRAMES if name in labels}
    ends = np.cumsum([len(atoms) for atoms in frames])[:-1]
    of_atoms = {name: np.split(labels[name], ends) for name in _OF_ATOMS if name in labels}
    for index, atoms in enumerate(frames):
        for name, values in of_frames.items():
            if name != "stress" or atoms.cell.rank == 3:
                value = values[index]
                atoms.info[args.info_prefix + _OF_FRAMES[name]] = value if value.ndim else value.item()
        for name, values in of_atoms.items():
            atoms.arrays[args.info_prefix + _OF_ATOMS[name]] = values[index]
        if args.descriptor_aggregation_method is not None:
            _average_descriptors(atoms, args)


def _average_descriptors(atoms: ase.Atoms, args: Namespace) -> None:
    """One descriptor for the frame in place of one for each atom."""
    name = args.info_prefix + _OF_ATOMS["descriptors"]
    values = atoms.arrays.pop(name)
    by_element = args.descriptor_aggregation_method == "per_element_mean"
    atoms.info[name] = mean_by_element(values, atoms.numbers) if by_element else values.mean(axis=0)


if __name__ == "__main__":
    main()
