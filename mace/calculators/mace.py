"""The calculator that makes models work with ASE."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import ase
import numpy as np
import torch
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_changes
from ase.stress import full_3x3_to_voigt_6_stress

from mace.calculators.descriptors import descriptors
from mace.calculators.inputs import require_head
from mace.calculators.models import Paths, accelerated, common_inputs, get_model_dtype, models_of
from mace.data.labels import ELECTRON
from mace.exceptions import InputError
from mace.tools import AtomicNumberTable, init_device
from mace.tools.torch_geometric import Batch

__all__ = ["MACECalculator", "get_model_dtype"]

_Output = Mapping[str, torch.Tensor]

# What each type of model gives, in the order of cost: the derivatives are computed where they are asked for.
_PROPERTIES = {
    "MACE": ("energy", "free_energy", "node_energy", "forces", "stress"),
    "DipoleMACE": ("dipole",),
    "EnergyDipoleMACE": ("energy", "free_energy", "node_energy", "dipole", "forces", "stress"),
}
_COMMITTEE = {
    "energy": ("energies", "energy_var"),
    "potential": ("potentials", "potential_var"),
    "forces": ("forces_comm",),
    "stress": ("stress_var",),
    "dipole": ("dipole_var",),
}
_ASE_ARGUMENTS = ("restart", "ignore_bad_restart_file", "label", "atoms", "directory")
_CHARGES_KEY = "Qs"


class MACECalculator(Calculator):
    """One model, or a committee of models, as an ASE calculator.

    Results: ``energy``, ``free_energy`` (eV), ``forces`` (eV/Angstrom, -dE/dr), ``stress`` (eV/Angstrom^3,
    +dE/d(strain)/volume, xx yy zz yz xz xy; only for a cell with a volume), ``node_energy`` (eV, without the
    atomic reference energies), ``potential`` (Fermi level, V, where the models have one), ``dipole`` (Debye).
    A committee gives the mean of each, all ``energies``, ``potentials`` and ``forces_comm``, and the
    variances ``energy_var``, ``potential_var``, ``stress_var`` and ``dipole_var`` over its members.

    The energy depends on the number of electrons through the model alone: it contains no term mu N (it is not
    grand canonical). The number is ``atoms.info["electron"]``, counted as in the training data; a constant-
    potential model without it is an error, and a change of it alone is a new calculation.

    Args:
        model_paths: file, pattern like ``"model_*.model"``, or list of files; ``.model`` or TorchScript.
        models: module or list of modules instead; copies of them are used.
        device: where to compute.
        energy_units_to_eV: factor from the models' unit of energy; variances take its square.
        length_units_to_A: factor from their unit of length.
        default_dtype: "float32" or "float64" converts the models, "" keeps their dtype. torch's default is
            left alone.
        charges_key: ``atoms.arrays`` key of the charges, for dipole models.
        model_type: "MACE", "DipoleMACE" or "EnergyDipoleMACE".
        compile_mode: not built yet.
        fullgraph: belongs to ``compile_mode``.
        enable_cueq: evaluate the models with cuEquivariance.
        electron_key: ``atoms.info`` key of the number of electrons, "electron" if None; only for models that
            take one.
        head: which head of the models to use for structures that name none in ``atoms.info["head"]``.
        **kwargs: of ASE's Calculator; ``model_path`` is an old name of ``model_paths``.

    Raises:
        InputError: (a ValueError) arguments, files or structures that cannot be used.
    """

    def __init__(
        self,
        model_paths: Paths | None = None,
        models: torch.nn.Module | Sequence[torch.nn.Module] | None = None,
        device: str = "cpu",
        energy_units_to_eV: float = 1.0,  # noqa: N803 (public name)
        length_units_to_A: float = 1.0,  # noqa: N803 (public name)
        default_dtype: str = "",
        charges_key: str = _CHARGES_KEY,
        model_type: str = "MACE",
        compile_mode: str | None = None,
        fullgraph: bool = True,
        enable_cueq: bool = False,
        electron_key: str | None = None,
        head: str | None = None,
        **kwargs: Any,
    ) -> None:
        model_paths = _renamed(model_paths, kwargs)
        super().__init__(**kwargs)
        if model_type not in _PROPERTIES:
            raise InputError(f"Give a valid model_type: {list(_PROPERTIES)}, {model_type} not supported")
        if compile_mode is not None:
            raise InputError(f"compile_mode={compile_mode!r} is not built yet: leave it out")
        self.device = init_device(str(device))
        self.model_type = model_type
        self.use_compile = False
        self.energy_units_to_eV = float(energy_units_to_eV)
        self.length_units_to_A = float(length_units_to_A)
        self.models = models_of(model_paths, models, self.device, default_dtype)
        if enable_cueq:
            self.models = [accelerated(model, model_type) for model in self.models]
        self.num_models = len(self.models)
        if self.num_models > 1:
            logging.info("Running committee mace with %d models", self.num_models)
        self.inputs = common_inputs(self.models)
        self.charges_key = charges_key
        self.electron_key = ELECTRON.key if electron_key is None else electron_key
        self.head = head
        self._require_type()
        self._refuse_unused(electron_key, charges_key)
        self._seen: dict[str, Any] = {}
        self._asked: set[str] = set()
        self.implemented_properties = self._implemented()

    def _require_type(self) -> None:
        """The models give what their type promises; a type that asks for less of them is fine."""
        gives = {"energy": self.inputs.has_energy, "dipole": self.inputs.takes_charges}
        lacking = [name for name in _PROPERTIES[self.model_type] if not gives.get(name, True)]
        if lacking:
            fitting = "MACE" if self.inputs.has_energy else "DipoleMACE"
            raise InputError(
                f"model_type={self.model_type!r}: this model gives no {lacking[0]}; "
                f"use model_type={fitting!r}"
            )

    def _refuse_unused(self, electron_key: str | None, charges_key: str) -> None:
        """An input that the models do not use would change nothing, and look as if it did."""
        if electron_key is not None and not self.inputs.takes_electrons:
            raise InputError(f"electron_key={electron_key!r}: this model takes no number of electrons")
        if charges_key != _CHARGES_KEY and not self.inputs.takes_charges:
            raise InputError(f"charges_key={charges_key!r}: this model takes no charges")
        if self.head is not None:
            require_head(self.inputs.heads, self.head, "the calculator")

    def _implemented(self) -> list[str]:
        properties = list(_PROPERTIES[self.model_type])
        if all(getattr(model, "potential_output", False) for model in self.models):
            properties.append("potential")
        if self.num_models > 1:
            properties += [name for of in list(properties) for name in _COMMITTEE.get(of, ())]
        return properties

    @property
    def r_max(self) -> float:
        """Cutoff of the models, Angstrom."""
        return self.inputs.r_max

    @property
    def z_table(self) -> AtomicNumberTable:
        """Elements that the models know."""
        return self.inputs.z_table

    @property
    def heads(self) -> list[str]:
        """Heads of the models."""
        return list(self.inputs.heads)

    def check_state(self, atoms: ase.Atoms, tol: float = 1e-15) -> list[str]:
        """What has changed since the last calculation; the number of electrons, head and charges count."""
        changes = list(super().check_state(atoms, tol))
        if self.atoms is not None and not changes:
            now = self._read_inputs(atoms)
            changes += [
                name for name, value in now.items() if not np.array_equal(value, self._seen.get(name))
            ]
        return changes

    def _read_inputs(self, atoms: ase.Atoms) -> dict[str, Any]:
        """Copies of what the models take beyond the geometry, None where it is missing."""
        return {
            "electron": copy.deepcopy(atoms.info.get(self.electron_key))
            if self.inputs.takes_electrons
            else None,
            "charges": copy.deepcopy(atoms.arrays.get(self.charges_key))
            if self.inputs.takes_charges
            else None,
            "head": atoms.info.get("head"),
        }

    def calculate(
        self,
        atoms: ase.Atoms | None = None,
        properties: Sequence[str] | None = None,
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        """Compute ``properties`` (all if None) and what comes along with them.

        Forces come with the energy, the stress with both. A property that was once asked for comes along from
        then on, so that dynamics that need forces and stress take one evaluation a step.
        """
        super().calculate(atoms, None, system_changes)
        if self.atoms is None:
            raise InputError("atoms not set: give the calculator a structure")
        self._asked |= set(properties or ())
        wanted = set(self.implemented_properties) if properties is None else self._asked
        self._seen = self._read_inputs(self.atoms)
        self.results = {}
        batch = self._atoms_to_batch(self.atoms)
        options = self._options(wanted)
        outputs = [model(self._clone_batch(batch).to_dict(), **options) for model in self.models]
        self.results = self._collect(batch, outputs)

    def _options(self, wanted: set[str]) -> dict[str, bool]:
        """Keywords of the models' forward pass."""
        if self.model_type == "DipoleMACE":
            return {}
        stress = bool(wanted & {"stress", "stress_var"}) and self.atoms.cell.rank == 3
        return {"compute_force": stress or bool(wanted & {"forces", "forces_comm"}), "compute_stress": stress}

    def _collect(self, batch: Batch, outputs: Sequence[_Output]) -> dict[str, Any]:
        """Means over the models, and the spread of a committee, in eV and Angstrom."""
        energy, length = self.energy_units_to_eV, self.length_units_to_A
        units = {"energy": energy, "forces": energy / length, "stress": energy / length**3}
        results: dict[str, Any] = {}
        for name in ("energy", "potential", "forces", "stress", "dipole"):
            if all(isinstance(output.get(name), torch.Tensor) for output in outputs):
                members = np.stack([_single(name, output[name]) for output in outputs]) * units.get(name, 1.0)
                results |= _summary(name, members, self.num_models > 1)
        if self.model_type == "DipoleMACE":
            return {name: value for name, value in results.items() if name.startswith("dipole")}
        results["free_energy"] = results["energy"]
        interaction = [
            output["node_energy"] - _reference_energies(model, batch)
            for model, output in zip(self.models, outputs, strict=True)
        ]
        results["node_energy"] = torch.stack(interaction).mean(dim=0).detach().cpu().numpy()
        if self.model_type == "MACE":
            results = {name: value for name, value in results.items() if not name.startswith("dipole")}
        return results

    def get_mu(self, atoms: ase.Atoms | None = None) -> float:
        """The Fermi level (electrode potential) of ``atoms``, or of the last structure, eV.

        Raises:
            PropertyNotImplementedError: the model has no Fermi level.
        """
        if "potential" not in self.implemented_properties:
            raise PropertyNotImplementedError("this model has no Fermi level: it is no FermiMACE")
        return float(self.get_property("potential", atoms))

    def get_hessian(self, atoms: ase.Atoms | None = None) -> np.ndarray | list[np.ndarray]:
        """Second derivatives of the energy, (3n, n, 3), eV/Angstrom^2; a list of them for a committee."""
        if self.model_type != "MACE":
            raise NotImplementedError("Only implemented for MACE models")
        batch = self._batch_of(atoms)
        unit = self.energy_units_to_eV / self.length_units_to_A**2
        outputs = [model(self._clone_batch(batch).to_dict(), compute_hessian=True) for model in self.models]
        hessians = [output["hessian"].detach().cpu().numpy() * unit for output in outputs]
        return hessians[0] if self.num_models == 1 else hessians

    def get_descriptors(
        self, atoms: ase.Atoms | None = None, invariants_only: bool = True, num_layers: int = -1
    ) -> np.ndarray | list[np.ndarray]:
        """Features of the atoms after each layer, (n, features); a list of them for a committee.

        Args:
            atoms: the structure, the last one if None.
            invariants_only: only the scalars of each layer, (n, layers * channels).
            num_layers: how many layers, counted from the first; all if -1.
        """
        batch = self._batch_of(atoms)
        outputs = [model(self._clone_batch(batch).to_dict(), compute_force=False) for model in self.models]
        found = [
            descriptors(model, output, invariants_only, num_layers)
            for model, output in zip(self.models, outputs, strict=True)
        ]
        return found[0] if self.num_models == 1 else found

    def _batch_of(self, atoms: ase.Atoms | None) -> Batch:
        atoms = self.atoms if atoms is None else atoms
        if atoms is None:
            raise InputError("atoms not set: give a structure")
        return self._atoms_to_batch(atoms)

    def _atoms_to_batch(self, atoms: ase.Atoms) -> Batch:
        graph = self.inputs.graph(
            atoms, electron_key=self.electron_key, charges_key=self.charges_key, head=self.head
        )
        return Batch.from_data_list([graph]).to(self.device)

    def _clone_batch(self, batch: Batch) -> Batch:
        return batch.clone()


def _renamed(model_paths: Paths | None, kwargs: dict[str, Any]) -> Paths | None:
    """``model_paths``, or the old keyword ``model_path``; every other keyword must be one of ASE's."""
    if "model_path" in kwargs:
        warnings.warn("model_path is deprecated, use model_paths", DeprecationWarning, stacklevel=3)
        if model_paths is not None:
            raise InputError("Both 'model_paths' and 'model_path' were given: use 'model_paths' only")
        model_paths = kwargs.pop("model_path")
    unknown = sorted(kwargs.keys() - set(_ASE_ARGUMENTS))
    if unknown:
        raise InputError(f"MACECalculator does not know the arguments {unknown}")
    return model_paths


def _single(name: str, value: torch.Tensor) -> np.ndarray:
    """The output of a batch of one structure as a numpy array, the stress in ASE's order."""
    array = value.detach().cpu().numpy()
    if name == "forces":
        return array
    return full_3x3_to_voigt_6_stress(array[0]) if name == "stress" else array[0]


def _summary(name: str, members: np.ndarray, committee: bool) -> dict[str, Any]:
    """Mean over the members (first axis), and in a committee the members themselves and their variance."""
    mean = members.mean(axis=0)
    summary: dict[str, Any] = {name: float(mean) if mean.ndim == 0 else mean}
    if committee:
        for key in _COMMITTEE[name]:
            summary[key] = members.var(axis=0) if key.endswith("_var") else members
    return summary


def _reference_energies(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """E0 of every atom, (n,), in the models' unit."""
    energies = torch.atleast_2d(model.atomic_energies_fn.atomic_energies)
    return batch.node_attrs @ energies[batch.head[0]]
