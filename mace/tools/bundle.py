"""A model as one file that cannot hold code: weights and configuration in the safetensors format."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

import torch

from mace.tools.rebuild import RebuildError, describe, rebuild, restore_model

# Of the file's metadata: the description of the model, JSON text, and a checksum, which the format lacks.
_KEY, _CHECKSUM = "cp-mace", "cp-mace-blake2b"


def bundle_bytes(model: torch.nn.Module) -> bytes:
    """The content of a bundle: the state of a faithful copy on the CPU, and its description."""
    from safetensors.torch import save  # here and below: only those who use bundles need the package

    copy = rebuild(model).to("cpu")
    state = {name: tensor.contiguous() for name, tensor in copy.state_dict().items()}
    description = describe(copy)
    return save(state, metadata={"format": "pt", _KEY: description, _CHECKSUM: _checksum(description, state)})


def _checksum(description: str, state: Mapping[str, torch.Tensor]) -> str:
    """Of everything that a bundle says."""
    checksum = hashlib.blake2b(description.encode(), digest_size=16)
    for name, tensor in sorted(state.items()):
        checksum.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        checksum.update(tensor.flatten().view(torch.uint8).numpy().data)
    return checksum.hexdigest()


def read_bundle(path: str | os.PathLike[str], map_location: str | torch.device = "cpu") -> torch.nn.Module:
    """The model in a bundle. Raises `RebuildError` for anything unfit."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except SafetensorError as error:
        raise RebuildError(f"it is truncated, or not a safetensors file at all ({error})") from error
    description = metadata.get(_KEY)
    if description is None:
        raise RebuildError("it holds weights without the configuration of a model: it is no bundle of ours")
    checksum = metadata.get(_CHECKSUM)  # none: somebody wrote it without this package
    if checksum is not None and checksum != _checksum(description, state):
        raise RebuildError(f"it is damaged, or was changed: its numbers do not fit its {_CHECKSUM}")
    return restore_model(description, {name: tensor.to(map_location) for name, tensor in state.items()})
