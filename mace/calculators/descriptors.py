"""Descriptors: the features of atoms after each layer of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from ase.data import chemical_symbols
from torch import Tensor

from mace.exceptions import InputError


def descriptors(
    model: torch.nn.Module,
    output: Mapping[str, Tensor | None],
    invariants_only: bool = True,
    num_layers: int = -1,
) -> np.ndarray:
    """Features of the atoms, [n_atoms, features], those of the first layer in front.

    Args:
        model: a model of the MACE family, or its TorchScript archive.
        output: what it returned.
        invariants_only: only the scalars of each layer, [n_atoms, layers * channels].
        num_layers: how many layers, counted from the first; all if -1.

    Raises:
        InputError: the model has no such features, or not that many layers.
    """
    features = output.get("node_feats")
    if features is None or not hasattr(model, "num_channels"):
        raise InputError("descriptors are those of the MACE family: this model returns none")
    widths = [product.linear.output_mask.numel() for product in model.products.children()]
    taken = len(widths) if num_layers == -1 else num_layers
    if not 1 <= taken <= len(widths):
        raise InputError(f"num_layers is {num_layers}, the model has {len(widths)} layers (-1 for all)")
    layers: Sequence[Tensor] = torch.split(features, widths, dim=1)[:taken]
    if invariants_only:
        layers = [layer[:, : int(model.num_channels)] for layer in layers]
    return torch.cat(list(layers), dim=1).detach().cpu().numpy()


def mean_by_element(values: np.ndarray, numbers: np.ndarray) -> dict[str, list[float]]:
    """Mean of ``values`` [n_atoms, m] over the atoms of each element, by chemical symbol."""
    return {
        chemical_symbols[number]: values[numbers == number].mean(axis=0).tolist()
        for number in np.unique(numbers)
    }
