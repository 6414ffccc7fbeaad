"""What a back end is: four builders, one for each operation of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Backend:
    """What builds the operations. All back ends take e3nn's arguments and keep e3nn's state."""

    linear: Callable[..., torch.nn.Module]
    tensor_product: Callable[..., torch.nn.Module]
    fully_connected_tensor_product: Callable[..., torch.nn.Module]
    symmetric_contraction: Callable[..., torch.nn.Module]
