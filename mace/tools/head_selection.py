"""A model of one head out of a model with several, with the same numbers for that head."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from mace.exceptions import InputError
from mace.tools.plain import name_of
from mace.tools.rebuild import adopt, extract_config_mace_model

_REPLAYED = "pt_head"  # the head of a foundation model's own data in fine-tuning


def remove_pt_head(model: torch.nn.Module, head_to_keep: str | None = None) -> torch.nn.Module:
    """The model of one head, whatever the number of layers; ``model`` stays as it is.

    Args:
        model: a model with several heads.
        head_to_keep: the head; None for the first that is not called pt_head.

    Returns:
        A model of the same class, dtype and device with that head alone: its energies, forces and Fermi
        levels are those of the head.

    Raises:
        InputError: there is only one head, or none of that name.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError("a TorchScript archive keeps its heads: take the .model file")
    heads = list(getattr(model, "heads", None) or ["default"])
    if len(heads) == 1:
        raise InputError(f"the model has one head only, {heads[0]!r}: there is none to remove")
    kept = head_to_keep if head_to_keep is not None else next(h for h in heads if h != _REPLAYED)
    if kept not in heads:
        raise InputError(f"head {kept!r} is not one of the model's: {', '.join(heads)}")
    index = heads.index(kept)
    whole = model.state_dict()
    state = {name: _of_head(name, whole, index, len(heads)) for name in whole}
    arguments = {**extract_config_mace_model(model), "heads": [kept]}
    for argument, name in (
        ("atomic_energies", "atomic_energies_fn.atomic_energies"),
        ("atomic_inter_scale", "scale_shift.scale"),
        ("atomic_inter_shift", "scale_shift.shift"),
    ):
        if name in state:
            arguments[argument] = state[name].tolist()
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    return adopt(name_of(type(model)), arguments, state, frozen).train(model.training)


def _of_head(name: str, state: Mapping[str, torch.Tensor], index: int, count: int) -> torch.Tensor:
    """The part of a tensor that belongs to one of ``count`` heads; what all share stays as it is."""
    tensor = state[name].detach()
    if name in ("atomic_energies_fn.atomic_energies", "scale_shift.scale", "scale_shift.shift"):
        return tensor[index : index + 1].clone()
    if not name.startswith("readouts."):
        return tensor
    readout, _, part = name.removeprefix("readouts.").partition(".")
    if part == "linear.weight":  # [channels, heads]
        return tensor.view(-1, count)[:, index].clone()
    if part == "linear_1.weight":  # [channels, heads, hidden]
        hidden = state[f"readouts.{readout}.linear_2.weight"].numel() // count**2
        return tensor.view(-1, count, hidden)[:, index].flatten()
    if part == "linear_2.weight":  # [heads, hidden, heads]; divided by sqrt(heads hidden) when it is applied
        return tensor.view(count, -1, count)[index, :, index] / math.sqrt(count)
    if part in ("linear.output_mask", "linear_1.output_mask", "linear_2.output_mask"):
        return tensor[: tensor.numel() // count].clone()
    return tensor
