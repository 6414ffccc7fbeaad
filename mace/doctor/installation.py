"""Which packages are installed, and which of them do not go together. Imports none of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import mace
from mace.doctor.findings import Finding, error, listed, note, ok, warning

REQUIRED = ("torch", "e3nn", "numpy", "ase", "matscipy", "torch-ema")
CUEQ = ("cuequivariance", "cuequivariance-torch")
CUEQ_KERNELS = "cuequivariance-ops-torch"  # its distribution has the CUDA version at the end of its name
_OLDEST_PYTHON, _OLDEST_TORCH = (3, 10), (2, 4)
_E3NN = ((0, 5, 5), (0, 7))  # from, and before
_E3NN_SCRIPT_FUNCTIONS = ((0, 5, 5), (0, 6))
UNINSTALL = "run 'pip uninstall mace-torch', then install cp-mace again"


@dataclass(frozen=True, kw_only=True)
class MaceTorch:
    """An installed mace-torch, whose import package has the name of ours."""

    version: str
    overwrites: bool  # its files are in our folder
    folder: Path  # ours


def find_mace_torch() -> MaceTorch | None:
    """The mace-torch that is installed beside cp-mace, if there is one."""
    try:
        other = metadata.distribution("mace-torch")
    except metadata.PackageNotFoundError:
        return None
    ours = Path(mace.__file__).parent
    theirs = Path(str(other.locate_file("mace")))
    return MaceTorch(version=other.version, overwrites=theirs.is_dir() and theirs.samefile(ours), folder=ours)


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The facts that the checks below look at. A version is None where the package is missing."""

    python: tuple[int, ...]
    versions: Mapping[str, str | None]
    has_cueq_kernels: bool
    mace_torch: MaceTorch | None
    own_folder: Path  # of the package mace that is running
    working_folder: Path
    on_cuda: bool
    wants_cueq: bool

    @classmethod
    def here(cls, *, on_cuda: bool = False, wants_cueq: bool = False) -> Installation:
        """This interpreter's."""
        return cls(
            python=sys.version_info[:3],
            versions={name: _version(name) for name in (*REQUIRED, *CUEQ)},
            has_cueq_kernels=find_spec(CUEQ_KERNELS.replace("-", "_")) is not None,
            mace_torch=find_mace_torch(),
            own_folder=Path(mace.__file__).parent,
            working_folder=Path.cwd(),
            on_cuda=on_cuda,
            wants_cueq=wants_cueq,
        )

    def numbers(self, package: str) -> tuple[int, ...] | None:
        """The version of a package as numbers: (2, 13, 0) for "2.13.0+cpu"; None if it is missing."""
        version = self.versions[package]
        found = None if version is None else re.match(r"\d+(\.\d+)*", version)
        return None if found is None else tuple(int(number) for number in found[0].split("."))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_packages(here: Installation) -> Iterator[Finding]:
    """Everything that a run needs is there."""
    missing = [name for name in REQUIRED if here.versions[name] is None]
    if missing:
        yield error(
            "package-missing", f"not installed: {listed(missing, 9)}", "install cp-mace with pip again"
        )
    python = ".".join(map(str, here.python))
    if here.python < _OLDEST_PYTHON:
        yield error("python-old", f"Python {python}", "use Python 3.10 or newer")
    there = [f"{name} {version}" for name, version in here.versions.items() if version is not None]
    yield ok("versions", f"cp-mace {mace.__version__}, Python {python}, {', '.join(there)}")


def check_torch(here: Installation) -> Iterator[Finding]:
    """Torch is new enough, and was built for the numpy that is there."""
    torch, numpy = here.numbers("torch"), here.numbers("numpy")
    if torch is None:
        return
    if torch < _OLDEST_TORCH:
        yield error("torch-old", f"torch {here.versions['torch']}", "install torch 2.4 or newer")
    if numpy is not None and numpy >= (2,) and torch < (2, 3):
        yield error(
            "numpy-torch",
            f"numpy {here.versions['numpy']} with torch {here.versions['torch']}, made for numpy 1",
            "install torch 2.4 or newer, or 'numpy<2'",
        )


def check_e3nn(here: Installation) -> Iterator[Finding]:
    """The e3nn is one that this package was tested with."""
    e3nn, torch = here.numbers("e3nn"), here.numbers("torch")
    if e3nn is None:
        return
    version = here.versions["e3nn"]
    oldest, newest = _E3NN
    if e3nn < (0, 5) and torch is not None and torch >= (2, 6):
        yield error(
            "e3nn-torch",
            f"e3nn {version} cannot be imported with torch {here.versions['torch']}: it reads a file of its "
            "own that torch 2.6 and newer refuse",
            "install 'e3nn>=0.5.5,<0.7'",
        )
    elif not oldest <= e3nn < newest:
        yield warning(
            "e3nn-untested",
            f"e3nn {version} is not one that cp-mace was tested with",
            "install 'e3nn>=0.5.5,<0.7'",
        )
    if _E3NN_SCRIPT_FUNCTIONS[0] <= e3nn < _E3NN_SCRIPT_FUNCTIONS[1]:
        yield note(
            "e3nn-script-functions",
            f"e3nn {version} leaves a ScriptFunction in models that it generates code for: copy.deepcopy and "
            "pickle fail on them. cp-mace copies and saves its models without it",
            "in scripts with models of other classes, build them inside "
            "mace.tools.rebuild.disable_e3nn_codegen()",
        )


def check_cueq(here: Installation) -> Iterator[Finding]:
    """The packages of cuEquivariance are complete and belong together."""
    missing = [name for name in CUEQ if here.versions[name] is None]
    if missing and here.wants_cueq:
        yield error(
            "cueq-missing",
            f"--enable_cueq, but not installed: {listed(missing)}",
            "install cp-mace with pip again",
        )
    if missing:
        return
    one, two = (here.numbers(name) for name in CUEQ)
    if one is not None and two is not None and one[:2] != two[:2]:
        versions = " and ".join(f"{name} {here.versions[name]}" for name in CUEQ)
        yield warning(
            "cueq-versions", f"{versions} are of different releases", "install the same release of both"
        )
    if here.on_cuda and not here.has_cueq_kernels:
        text = f"cuequivariance has no CUDA kernels here: the package {CUEQ_KERNELS} is missing"
        cure = f"pip install '{CUEQ_KERNELS}-cu12' (or -cu11, as torch's CUDA is)"
        yield warning("cueq-kernels", text, cure) if here.wants_cueq else note("cueq-kernels", text, cure)


def check_other_maces(here: Installation) -> Iterator[Finding]:
    """There is one package mace, and it is ours."""
    other = here.mace_torch
    if other is not None and other.overwrites:
        yield error(
            "mace-overwritten",
            f"mace-torch {other.version} is installed into {other.folder} too, where its files and those of "
            "cp-mace overwrite each other",
            UNINSTALL,
        )
    elif other is not None:
        yield warning(
            "mace-twice",
            f"mace-torch {other.version} is installed too, with the same import package 'mace'; this is "
            f"cp-mace {mace.__version__} in {other.folder}",
            UNINSTALL,
        )
    folder = here.working_folder / "mace"
    hides = folder.with_suffix(".py").is_file() or (folder / "__init__.py").is_file()
    if hides and not (folder.is_dir() and folder.samefile(here.own_folder)):
        yield warning(
            "mace-shadowed",
            f"{folder} hides cp-mace from 'python -m mace...' and from scripts that are started here",
            "start from another folder, or rename it",
        )


CHECKS: tuple[Callable[[Installation], Iterator[Finding]], ...] = (
    check_packages,
    check_torch,
    check_e3nn,
    check_cueq,
    check_other_maces,
)


def examine_installation(here: Installation) -> list[Finding]:
    """Run all checks of this module."""
    return [finding for check in CHECKS for finding in check(here)]
