"""Whole-module pickles as MACE and CP-MACE write them, made from models of ours without those programs.

Modules are pickled as class and attributes, under the names that upstream's classes have; what upstream's
models do not have (the record of the configuration, our own evaluators) is left out.
"""

from __future__ import annotations

import copyreg
import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from mace.tools.rebuild import rebuild

# Our classes that have another address upstream: module and class, here and there.
RENAMED = {
    ("mace.modules._linear", "Linear"): ("e3nn.o3._linear", "Linear"),
    ("mace.modules._linear", "ElementLinear"): (
        "e3nn.o3._tensor_product._sub",
        "FullyConnectedTensorProduct",
    ),
    ("mace.modules._convolution", "Convolution"): (
        "e3nn.o3._tensor_product._tensor_product",
        "TensorProduct",
    ),
    **{
        ("mace.modules.dipoles", name): ("mace.modules.models", name)
        for name in ("AtomicDipolesMACE", "EnergyDipolesMACE")
    },
    ("mace.modules._fermi", "MLP"): ("mace.modules.models", "MLP"),
    ("mace.modules._fermi", "GatedMLP"): ("mace.modules.models", "GatedMLP"),
    ("mace.modules.radial", "LegacySoftTransform"): ("mace.modules.radial", "SoftTransform"),
}


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, torch.nn.Module):
            return NotImplemented
        state = {key: value for key, value in vars(obj).items() if key not in ("_recorded_config", "groups")}
        kept = {name: child for name, child in obj._modules.items() if not name.startswith("_compiled")}
        return copyreg.__newobj__, (type(obj),), {**state, "_modules": kept}


def save_as_upstream(model: torch.nn.Module, path: Path, **attributes: Any) -> None:
    """Write ``model`` as upstream would; ``attributes`` of its versions are set on the root."""
    copy = rebuild(model)  # e3nn's functions are not scripted in it
    vars(copy).update(attributes)
    torch.save(copy, path, pickle_module=SimpleNamespace(__name__="pickle", Pickler=_Pickler))
    rewrite(path, _as_named_upstream)


def _as_named_upstream(contents: bytes) -> bytes:
    for (module, name), (their_module, their_name) in RENAMED.items():
        contents = contents.replace(
            f"c{module}\n{name}\n".encode(), f"c{their_module}\n{their_name}\n".encode()
        )
    return contents


def rewrite(path: Path, change: Any) -> None:
    """Put another pickle into the archive ``path``: what ``change`` makes of the bytes of the present one."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, change(content) if name.endswith("/data.pkl") else content)
