"""From data files to configurations, with an account of which labels a file holds."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ase
import ase.data
import ase.io

from mace.exceptions import InputError

from .configuration import (
    DEFAULT_HEAD,
    Configuration,
    Configurations,
    configuration_from_atoms,
)
from .labels import (
    CHARGES,
    DEFAULT_KEYS,
    DIPOLE,
    ELECTRON,
    ENERGY,
    FORCES,
    LABELS,
    LABELS_BY_NAME,
    POTENTIAL,
    STRESS,
    VIRIALS,
    Label,
)
from .stored import StoredConfigurations, outlines

ISOLATED_ATOM = "IsolatedAtom"  # config_type of a single atom whose energy is the E0 of its element

LISTED_FRAMES = 10  # messages list so many frames and no more


@dataclass(frozen=True, kw_only=True)
class LabelledFile:
    """The structures of a data file, and what is known about its labels.

    Attributes:
        path: as it was given.
        configurations: without isolated atoms, unless they were to be kept.
        atomic_energies: energies of the isolated atoms, eV, by atomic number.
        keys: where the labels were looked for, by label name.
        found: the keys that the file holds, by place ("info", "arrays", "results": those which ASE keeps
            apart).
        prepared: whether mace_prepare_data wrote it, so that keys were its matter.
    """

    path: str
    configurations: Sequence[Configuration]
    atomic_energies: dict[int, float]
    keys: dict[str, str]
    found: dict[str, tuple[str, ...]]
    prepared: bool = False

    @property
    def outlines(self) -> Sequence[Configuration]:
        """The configurations, without their arrays where these are still in the file."""
        return outlines(self.configurations)

    def sought(self, label: Label) -> tuple[str, str]:
        """Where a label was looked for, and what says so: "'REF_energy' in info" and "--energy_key"."""
        key = repr(self.keys[label.name])
        if self.prepared:
            return f"{key} in the HDF5 data", f"{label.flag} of mace_prepare_data"
        return f"{key} in {label.place}", label.flag

    def with_head(self, name: str) -> LabelledFile:
        """The same file of mace_prepare_data with all configurations in one head."""
        assert isinstance(self.configurations, StoredConfigurations)
        return dataclasses.replace(self, configurations=self.configurations.with_head(name))

    def require(self, names: Iterable[str], empty_potential_value: float | None = None) -> None:
        """Refuse the file if a quantity called in ``names`` has no label in any of its structures.

        Raises:
            InputError: which key was looked for, and which keys are there.
        """
        for name in names:
            label = LABELS_BY_NAME[name]
            if not any(config.has(label, empty_potential_value) for config in self.outlines):
                if any(config.has(label) for config in self.outlines):
                    raise InputError(
                        f"no structure of {self.path!r} has a label for {name}: every value of "
                        f"{self.keys[name]!r} is {empty_potential_value}, which --empty_potential_value "
                        "says is none"
                    )
                place, flag = self.sought(label)
                raise InputError(
                    f"no structure of {self.path!r} has a label for {name}: looked for"
                    f" {place} ({flag}), the file has {self.describe_found()}"
                )

    def require_in_all(self, name: str) -> None:
        """Refuse the file if one of its structures lacks the quantity called ``name``.

        Raises:
            InputError: which frames lack it.
        """
        label = LABELS_BY_NAME[name]
        missing = [str(config.frame) for config in self.outlines if not config.has(label)]
        if missing:
            listed = ", ".join(missing[:LISTED_FRAMES]) + (", ..." if len(missing) > LISTED_FRAMES else "")
            place, flag = self.sought(label)
            raise InputError(
                f"{len(missing)} of {len(self.configurations)} structures of {self.path!r} have no {name}"
                f" (key {place}, {flag}), which the model needs:"
                f" frames {listed}"
            )

    def describe_found(self) -> str:
        """The keys that the file holds, as text."""
        return ", ".join(f"{place}: {' '.join(keys) or 'nothing'}" for place, keys in self.found.items())


def count_labels(
    configurations: Sequence[Configuration], empty_potential_value: float | None = None
) -> dict[str, int]:
    """The number of structures that have a label, by label name."""
    counts = dict.fromkeys((label.name for label in LABELS), 0)
    for config in outlines(configurations):
        for label in LABELS:
            counts[label.name] += config.has(label, empty_potential_value)
    return counts


def describe_labels(
    configurations: Sequence[Configuration], empty_potential_value: float | None = None
) -> str:
    """How many labels of each kind are there: "energy 12, forces 12, potential 6 (6 masked)"."""
    counts = count_labels(configurations, empty_potential_value)
    texts = [f"{name} {count}" for name, count in counts.items() if count]
    masked = len(configurations) - counts["potential"]
    if counts["potential"] and masked:
        texts[-1] += f" ({masked} masked)"
    return ", ".join(texts) or "none"


def count_force_components(configurations: Sequence[Configuration]) -> int:
    """The number of force components that are labelled."""
    return sum(0 if config.forces is None else config.forces.size for config in outlines(configurations))


def read_frames(file_path: str | Path) -> list[ase.Atoms]:
    """All structures of a file that ASE can read.

    Raises:
        InputError: it is missing, empty, unreadable or without structures.
    """
    path = Path(file_path)
    if not path.exists():
        raise InputError(f"data file {str(path)!r} does not exist")
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"data file {str(path)!r} is empty")
    frames: list[ase.Atoms] = []
    try:
        frames.extend(ase.io.iread(path, index=":", parallel=False, do_not_split_by_at_sign=True))
    except Exception as error:  # ASE's readers raise whatever a broken file makes them stumble over
        detail = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"data file {str(path)!r} can't be read: {detail}") from error
    if not frames:
        raise InputError(f"data file {str(path)!r} holds no structure")
    return frames


def read_configurations(
    file_path: str | Path,
    keys: Mapping[str, str],
    config_type_weights: Mapping[str, float] | None = None,
    head_name: str = DEFAULT_HEAD,
    head_key: str = "head",
    extract_atomic_energies: bool = False,
    keep_isolated_atoms: bool = False,
    heads_from_file: bool = False,
) -> LabelledFile:
    """The configurations of a data file.

    Args:
        file_path: anything that ASE reads.
        keys: where the labels are, by label name; missing ones are the defaults of ``labels``.
        config_type_weights: factor on the weight by config type.
        head_name: the head of all configurations.
        head_key: where ``atoms.info`` names the head.
        extract_atomic_energies: take the energies of isolated atoms (one atom, config type
            ``IsolatedAtom``) out.
        keep_isolated_atoms: keep them among the configurations, too.
        heads_from_file: structures that name their head keep it.

    Raises:
        InputError: the file, one of its values, or, under a standard name (``energy``, ``forces``) that was
            asked for, a missing value; with the file, the frame and the key.
    """
    path, keys = str(file_path), {**DEFAULT_KEYS, **keys}
    frames = read_frames(file_path)
    _advise_on_standard_names(path, keys)
    configurations, atomic_energies = [], {}
    for index, atoms in enumerate(frames):
        config = configuration_from_atoms(atoms, keys, head_key, config_type_weights, path, index)
        if not (heads_from_file and head_key in atoms.info):
            config.head = head_name
        isolated = len(atoms) == 1 and config.config_type == ISOLATED_ATOM
        if not isolated:
            _require_standard_labels(config, keys, atoms)
        if extract_atomic_energies and isolated:
            atomic_energies[int(atoms.numbers[0])] = _isolated_energy(config)
        if keep_isolated_atoms or not (extract_atomic_energies and isolated):
            configurations.append(config)
    return LabelledFile(
        path=path,
        configurations=configurations,
        atomic_energies=atomic_energies,
        keys=keys,
        found=_found_keys(frames),
    )


def read_prepared(paths: Sequence[str | Path], path: str, head_name: str | None = None) -> LabelledFile:
    """The configurations of files of mace_prepare_data, which stay there until they are asked for.

    Args:
        paths: the HDF5 files.
        path: what the user calls them.
        head_name: the head of all configurations; without it each has the one that is stored.

    Raises:
        InputError: a file that can't be read, or a label in it that can't be used.
    """
    configurations = StoredConfigurations.open(paths, head_name)
    counts = count_labels(configurations)
    return LabelledFile(
        path=path,
        configurations=configurations,
        atomic_energies={},
        keys={label.name: label.name for label in LABELS},
        found={"labels": tuple(name for name, count in counts.items() if count)},
        prepared=True,
    )


def load_from_xyz(
    file_path: str | Path,
    config_type_weights: Mapping[str, float] | None,
    energy_key: str = ENERGY.key,
    forces_key: str = FORCES.key,
    stress_key: str = STRESS.key,
    virials_key: str = VIRIALS.key,
    dipole_key: str = DIPOLE.key,
    charges_key: str = CHARGES.key,
    head_key: str = "head",
    head_name: str = DEFAULT_HEAD,
    extract_atomic_energies: bool = False,
    keep_isolated_atoms: bool = False,
    electron_key: str = ELECTRON.key,
    potential_key: str = POTENTIAL.key,
) -> tuple[dict[int, float], Configurations]:
    """The energies of isolated atoms and the configurations of a file: see :func:`read_configurations`."""
    keys = {
        "energy": energy_key,
        "forces": forces_key,
        "stress": stress_key,
        "virials": virials_key,
        "dipole": dipole_key,
        "charges": charges_key,
        "electron": electron_key,
        "potential": potential_key,
    }
    loaded = read_configurations(
        file_path,
        keys,
        config_type_weights,
        head_name,
        head_key,
        extract_atomic_energies,
        keep_isolated_atoms,
    )
    return loaded.atomic_energies, list(loaded.configurations)


def _standard_labels(keys: Mapping[str, str]) -> list[Label]:
    """The labels that are asked for under the name that ASE has for them."""
    return [label for label in LABELS if label.ase_property and keys[label.name] == label.name]


def _advise_on_standard_names(path: str, keys: Mapping[str, str]) -> None:
    for label in _standard_labels(keys):
        logging.warning(
            f"{label.name} of {path!r} is read under ASE's standard name {label.name!r}; {label.key!r}"
            f" ({label.flag}) is safer: programs that rewrite the file may put other values under the former"
        )


def _require_standard_labels(config: Configuration, keys: Mapping[str, str], atoms: ase.Atoms) -> None:
    """Refuse a missing energy or missing forces under a standard name; molecules have no stress."""
    for label in _standard_labels(keys):
        if label is not STRESS and not config.has(label):
            there = _found_keys([atoms])
            raise InputError(
                f"{config.origin} has no {label.name} under ASE's standard name {label.name!r}"
                f" ({label.flag}); it has {' '.join(sum(there.values(), ())) or 'no keys'}"
            )


def _isolated_energy(config: Configuration) -> float:
    if config.energy is not None:
        return config.energy
    symbol = ase.data.chemical_symbols[config.atomic_numbers[0]]
    logging.warning(
        f"the isolated {symbol} atom, {config.origin}, has no energy: its E0 is set to 0 eV; "
        "label it if that is wrong"
    )
    return 0.0


def _found_keys(frames: Iterable[ase.Atoms]) -> dict[str, tuple[str, ...]]:
    """The keys of all structures, sorted, by place."""
    found: dict[str, set[str]] = {"info": set(), "arrays": set(), "results": set()}
    for atoms in frames:
        found["info"].update(atoms.info)
        found["arrays"].update(atoms.arrays)
        found["results"].update({} if atoms.calc is None else atoms.calc.results)
    found["arrays"] -= {"numbers", "positions"}
    return {place: tuple(sorted(keys)) for place, keys in found.items()}
