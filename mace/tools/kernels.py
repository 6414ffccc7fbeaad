"""The same model on another back end: e3nn or cuEquivariance.

Both keep the same parameters and buffers under the same names (see ``mace.modules.wrapper_ops``), so that a
conversion is a second model from the same constructor keywords that takes over the state bit for bit: any
class with a ``cueq_config``, any number of layers, any correlation, any signs of the coupling tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from mace.exceptions import InputError
from mace.tools.torch_tools import default_dtype

CUEQ_CONFIG = {
    "enabled": True,
    "group": "O3_e3nn",
    "optimize_all": True,
}  # every operation, e3nn's conventions

_OTHER_MODEL = "this {} was not built from the given configuration"


def to_cueq(model: torch.nn.Module, config: Mapping[str, Any]) -> torch.nn.Module:
    """A copy of ``model`` that is evaluated by cuEquivariance.

    Args:
        model: it stays as it is.
        config: the keywords its class was built with; ``cueq_config`` is replaced.

    Returns:
        A model of the same class, with the same state to the bit, dtype, device, training flags and
        requires_grad. Energies and forces agree to the rounding of another summation order.

    Raises:
        InputError: the class has no cuEquivariance form, the package is not installed, or ``config`` is not
            that of ``model``.
    """
    return _on_backend(model, config, dict(CUEQ_CONFIG))


def to_e3nn(model: torch.nn.Module, config: Mapping[str, Any]) -> torch.nn.Module:
    """A copy of ``model`` that is evaluated by e3nn; everything else as for `to_cueq`."""
    return _on_backend(model, config, None)


def _on_backend(
    model: torch.nn.Module, config: Mapping[str, Any], cueq_config: dict[str, Any] | None
) -> torch.nn.Module:
    name = type(model).__name__
    constructors = [cls for cls in type(model).__mro__ if issubclass(cls, torch.nn.Module)]
    if not any("cueq_config" in inspect.signature(cls).parameters for cls in constructors):
        raise InputError(f"{name} has no cuEquivariance form: its constructor takes no cueq_config")
    like = next(model.parameters())
    # The initial weights of the copy are drawn and thrown away; the caller's random state does not see them.
    with torch.random.fork_rng(devices=[]), default_dtype(like.dtype), torch.device("cpu"):
        copy = type(model)(**{**config, "cueq_config": cueq_config})
    copy.to(like.device)
    _take_over(model, copy)
    return copy


def _take_over(model: torch.nn.Module, copy: torch.nn.Module) -> None:
    """State, training flags and requires_grad of ``model``."""
    state = model.state_dict()
    # Kept before the state is read: a module may take another number of couplings over from it.
    dtypes = {key: tensor.dtype for key, tensor in copy.state_dict().items()}
    try:
        copy.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"{_OTHER_MODEL.format(type(model).__name__)}: {reason}") from error
    converted = [key for key, dtype in dtypes.items() if state[key].dtype != dtype]
    if converted:
        raise InputError(
            f"{_OTHER_MODEL.format(type(model).__name__)}: {len(converted)} tensors have another dtype, "
            f"{min(converted)} among them"
        )
    trains = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    for name, parameter in copy.named_parameters():
        parameter.requires_grad_(trains[name])
    flags = {name: module.training for name, module in model.named_modules()}
    copy.train(model.training)
    for name, module in copy.named_modules():
        module.training = flags.get(name, model.training)
