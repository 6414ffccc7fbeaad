"""Who may import whom: the drawing of the rooms, kept true by reading every import of the package."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The leaf half of mace.tools: it knows no other room. Every other module there belongs to the workshop half.
LEAVES = {
    "arg_parser",
    "arg_parser_tools",
    "bundle",
    "cg",
    "checkpoint",
    "checkpoint_state",
    "description",
    "distributed",
    "error_terms",
    "evaluation",
    "exporting",
    "files",
    "head_selection",
    "loading",
    "logging_tools",
    "metrics",
    "model_formats",
    "optimization",
    "pickled_models",
    "plain",
    "plans",
    "random_state",
    "ranks",
    "rebuild",
    "recomputation",
    "restart",
    "safe_files",
    "same",
    "saving",
    "scatter",
    "torch_geometric",
    "torch_tools",
    "tracking",
    "train",
    "trainer",
    "training_step",
    "upstream_config",
    "upstream_files",
    "utils",
}
# From the room to the rooms it may import; every room may import itself.
ALLOWED = {
    "exceptions": set(),
    "arguments": {"exceptions"},
    "leaf tools": {"exceptions", "arguments"},
    "data": {"exceptions", "arguments", "leaf tools"},
    "modules": {"exceptions", "arguments", "leaf tools"},
    "workshop tools": {"exceptions", "arguments", "leaf tools", "data", "modules"},
    "calculators": {"exceptions", "arguments", "leaf tools", "data", "modules", "workshop tools"},
    "doctor": {
        "exceptions",
        "arguments",
        "leaf tools",
        "data",
        "modules",
        "workshop tools",
        "calculators",
    },
    "cli": {
        "exceptions",
        "arguments",
        "leaf tools",
        "data",
        "modules",
        "workshop tools",
        "calculators",
        "doctor",
    },
}
# They also work inside upstream's trees, so they lean on torch, e3nn (with its numpy), the standard library
# and each other only, and on safetensors where a bundle is read.
PORTABLE = {"mace.exceptions"} | {
    f"mace.tools.{name}"
    for name in (
        "bundle",
        "files",
        "loading",
        "model_formats",
        "pickled_models",
        "plain",
        "random_state",
        "ranks",
        "ranks.launch",
        "ranks.launchers",
        "ranks.mpi",
        "ranks.placement",
        "ranks.rendezvous",
        "ranks.slurm",
        "rebuild",
        "safe_files",
        "same",
        "saving",
        "upstream_config",
        "upstream_files",
    )
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / "mace").rglob("*.py"))}
PORTABLE |= {name for name in MODULES if name.startswith("mace.tools.ranks.")}


def room(module: str) -> str:
    _, _, inside = module.partition(".")
    first, _, rest = inside.partition(".")
    if first == "tools":
        return "leaf tools" if not rest or rest.split(".")[0] in LEAVES else "workshop tools"
    return first


def imported(module: str, nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Full names of what the import statements among the nodes import."""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in MODULES else base


@cache
def imports(module: str) -> set[str]:
    """What the module imports anywhere, in functions too."""
    return set(imported(module, ast.walk(ast.parse(MODULES[module].read_text()))))


def imports_when_loaded(module: str) -> set[str]:
    """Modules of the package that are imported when the module is, apart from the packages around it."""
    found = set(imported(module, outside_functions(ast.parse(MODULES[module].read_text()))))
    return {
        name for name in found if name in MODULES and name != module and not module.startswith(f"{name}.")
    }


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from outside_functions(child)


@pytest.mark.parametrize("module", [name for name in MODULES if name != "mace"])
def test_a_room_imports_only_rooms_below_it(module):
    allowed = ALLOWED[room(module)] | {room(module)}
    wrong = {name for name in imports(module) if name.startswith("mace.") and room(name) not in allowed}
    assert not wrong, f"{module} ({room(module)}) must not import {sorted(wrong)}"


def test_every_package_that_is_imported_is_declared():
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    options = settings["options"]["install_requires"]
    optional = settings["options.extras_require"]
    named = [*options.split(), optional["wandb"], optional["schedulefree"]]
    declared = {re.match(r"[\w-]+", requirement)[0].replace("-", "_").lower() for requirement in named}
    found = {name.split(".")[0] for module in MODULES for name in imports(module)}
    outside = found - {"mace", *sys.stdlib_module_names}
    assert {"pyyaml" if name == "yaml" else name.lower() for name in outside} <= declared


def test_every_folder_is_a_package():
    """A folder without __init__.py would be missing from the installed package."""
    folders = {path.parent for path in MODULES.values()}
    assert all((folder / "__init__.py").is_file() for folder in folders)


def test_the_package_itself_imports_nothing():
    assert not imports("mace")


@pytest.mark.parametrize("module", [name for name in MODULES if room(name) in ("arguments", "exceptions")])
def test_arguments_know_no_heavy_package(module):
    outside = {name.split(".")[0] for name in imports(module)} - {"mace", *sys.stdlib_module_names}
    assert outside <= {"configargparse", "yaml"}


@pytest.mark.parametrize("module", sorted(PORTABLE))
def test_files_of_the_patches_lean_on_torch_and_e3nn_only(module):
    found = imports(module)
    assert {name for name in found if name.startswith("mace.")} <= PORTABLE
    assert {name.split(".")[0] for name in found} <= {
        "mace",
        "torch",
        "e3nn",
        "numpy",
        "safetensors",  # of bundles: imported where one is read or written
        *sys.stdlib_module_names,
    }


def test_one_room_knows_process_groups():
    knowing = {
        name for name in MODULES if any(found.startswith("torch.distributed") for found in imports(name))
    }
    others = {name for name in knowing if not name.startswith("mace.tools.ranks.")}
    assert others == {"mace.tools.distributed"}


def test_no_circle_when_modules_are_loaded():
    below = {module: imports_when_loaded(module) for module in MODULES}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"circle: {' -> '.join([*path[path.index(module) :], module])}"
        if module not in done:
            for name in sorted(below[module]):
                visit(name, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())
