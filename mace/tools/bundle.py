"""A model as one file that cannot hold code: weights and configuration in the safetensors format."""

from __future__ import annotations

import os

import torch

from mace.tools.rebuild import RebuildError, describe, rebuild, restore_model

_KEY = "cp-mace"  # of the file's metadata: the description of the model, JSON text


def bundle_bytes(model: torch.nn.Module) -> bytes:
    """The content of a bundle: the state of a faithful copy on the CPU, and its description."""
    from safetensors.torch import save  # here and below: only those who use bundles need the package

    copy = rebuild(model).to("cpu")
    state = {name: tensor.contiguous() for name, tensor in copy.state_dict().items()}
    return save(state, metadata={"format": "pt", _KEY: describe(copy)})


def read_bundle(path: str | os.PathLike[str], map_location: str | torch.device = "cpu") -> torch.nn.Module:
    """The model in a bundle. Raises `RebuildError` for anything unfit."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            description = (file.metadata() or {}).get(_KEY)
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except SafetensorError as error:
        raise RebuildError(f"it is truncated, or not a safetensors file at all ({error})") from error
    if description is None:
        raise RebuildError("it holds weights without the configuration of a model: it is no bundle of ours")
    return restore_model(description, {name: tensor.to(map_location) for name, tensor in state.items()})
