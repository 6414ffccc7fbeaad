"""An optimiser whose state is shared out to the ranks: each keeps and updates a part of the parameters.

S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, stage
1, as torch has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer


def sharded_optimizer(
    kind: type[torch.optim.Optimizer], groups: Sequence[dict[str, Any]], **options: Any
) -> torch.optim.Optimizer:
    """An optimiser of class ``kind`` over the groups, shared out to the ranks of the process group."""
    return ZeroRedundancyOptimizer(list(groups), kind, **options)


def collect_state(optimizer: torch.optim.Optimizer) -> None:
    """Bring the state of a sharded optimiser to rank 0, for a checkpoint; all processes must call this."""
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        optimizer.consolidate_state_dict(to=0)


def optimizer_class(optimizer: torch.optim.Optimizer) -> type[torch.optim.Optimizer]:
    """The class of an optimiser, of a sharded one that of its parts."""
    return type(optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer)


def numbered_groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The parameter groups as a state dict has them: with numbers in the place of parameters."""
    # The method of the base class: that of a sharded optimiser works on rank 0 alone.
    return torch.optim.Optimizer.state_dict(optimizer)["param_groups"]
