"""Reading state dicts that other versions wrote: numbers in another shape, tensors without use here."""

from __future__ import annotations

import re
from typing import Any

import torch

# In the state dicts of CP-MACE whether the model uses them or not; of mace-torch from 0.3.11 on.
_POSSIBLY_UNUSED = re.compile(
    r"(node_updates|state_updates)\..*|mean_(electron|potential)|.*\.weights_\w+_zeroed"
)


class StateAdapter(torch.nn.Module):
    """A module that takes its own tensors in any shape of the same number of elements, like [] for [1]."""

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name, own in [*self.named_buffers(recurse=False), *self.named_parameters(recurse=False)]:
            given = state_dict.get(prefix + name)
            if isinstance(given, torch.Tensor) and given.shape != own.shape and given.numel() == own.numel():
                state_dict[prefix + name] = given.reshape(own.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def drop_unused(state_dict: dict[str, Any], prefix: str, module: torch.nn.Module) -> None:
    """Remove what ``module`` has no use for, among the few names known to be written without need."""
    own = {name for name, _ in [*module.named_parameters(), *module.named_buffers()]}
    for key in list(state_dict):
        name = key[len(prefix) :]
        if key.startswith(prefix) and name not in own and _POSSIBLY_UNUSED.fullmatch(name):
            del state_dict[key]
