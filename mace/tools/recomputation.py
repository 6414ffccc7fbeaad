"""Less memory for more time: layers that compute their activations again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

_LAYERS = ("interactions", "products")


@contextmanager
def recomputed_activations(model: nn.Module) -> Iterator[None]:
    """Within it the interactions and products of ``model`` keep their inputs only.

    The results are the same, second derivatives included: forces are trained. See ``torch.utils.checkpoint``.
    """
    layers = [layer for name in _LAYERS for layer in getattr(model, name, ())]
    for layer in layers:
        # An attribute of the instance hides the method of its class; names in the state stay as they are.
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
