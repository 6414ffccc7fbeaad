"""How good a model is on a set of configurations."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from mace.tools.distributed import Ranks
from mace.tools.metrics import Metrics, MetricsAccumulator
from mace.tools.torch_tools import frozen

# What a model is asked for: argument of its forward and the entry of ``output_args`` that decides.
_FORWARD_ARGUMENTS = {
    "compute_force": "forces",
    "compute_potential": "potential",
    "compute_virials": "virials",
    "compute_stress": "stress",
}


def forward_keywords(model: nn.Module, output_args: Mapping[str, bool]) -> dict[str, bool]:
    """The keywords with which a model is called to give the outputs that are asked for.

    A model is only passed the keywords that its forward knows: dipole models have no ``compute_potential``.
    """
    unwrapped = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    known = inspect.signature(unwrapped.forward).parameters
    return {
        argument: bool(output_args[output])
        for argument, output in _FORWARD_ARGUMENTS.items()
        if argument in known and output in output_args
    }


def evaluate(
    model: nn.Module,
    loss_fn: nn.Module,
    data_loader: Iterable[Any],
    output_args: Mapping[str, bool],
    device: torch.device,
    ranks: Ranks | None = None,
) -> tuple[float, Metrics]:
    """Loss and metrics of a model over a set of configurations.

    With several processes all must call this, each with its own share of the set (which may be empty) and
    the model itself, not its distributed wrapper. Every process gets the numbers of the whole set. Gradients
    are switched off meanwhile and are as before afterwards.

    Args:
        model: what is evaluated.
        loss_fn: called with ``pred`` and ``ref``; gives the mean loss of a batch.
        data_loader: batches of this process's share.
        output_args: which of energy, forces, potential, virials, stress, dipoles are asked for.
        device: where the model is.
        ranks: the processes of the run; None for this process alone.

    Raises:
        StopRequested: on every process, if somebody has asked one of them to stop meanwhile.

    Returns:
        loss over all configurations, whatever the batches, and the metrics with ``time`` in seconds; see
        ``metrics.py``.
    """
    ranks = Ranks.single(device) if ranks is None else ranks
    started = time.monotonic()
    keywords = forward_keywords(model, output_args)
    accumulator = MetricsAccumulator(loss_fn)
    # Forces need derivatives by positions, but none by parameters: that saves time and memory.
    with frozen(model.parameters()):
        for batch in data_loader:
            if ranks.stop:
                break
            batch = batch.to(device)
            output = model(batch.to_dict(), training=False, **keywords)
            accumulator.update(batch, output)
    ranks.heed_stop()
    loss, metrics = accumulator.compute(ranks)
    metrics["time"] = time.monotonic() - started
    return loss, metrics
