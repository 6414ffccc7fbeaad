"""A model under examination: its tensors, its copies and, with data, its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mace.doctor.copies import COPY_CHECKS, of_archive
from mace.doctor.findings import Finding, error, listed, note, ok
from mace.doctor.tensors import (
    check_devices,
    check_dtypes,
    check_layout,
    check_plain_attributes,
    check_size,
    check_values,
)
from mace.tools.rebuild import unwrap
from mace.tools.training_step import parameters_without_gradient

TENSOR_CHECKS: tuple[Callable[[nn.Module], Iterator[Finding]], ...] = (
    check_size,
    check_plain_attributes,
    check_devices,
    check_dtypes,
    check_layout,
    check_values,
)


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What a model would learn from: with it, parameters that no gradient reaches are found.

    Attributes:
        loss_fn: called with ``pred`` and ``ref``.
        batch: what ``.to(device).to_dict()`` makes the model's input of; in the model's dtype.
        output_args: which outputs the model is asked for, by name: energy, forces, potential ...
    """

    loss_fn: nn.Module
    batch: Any
    output_args: Mapping[str, bool]


def examine_model(module: nn.Module, lesson: Lesson | None = None) -> list[Finding]:
    """Examine a module of any class; it is left as it is, but for gradients, which are None afterwards.

    Args:
        module: a model of this package or of yours; a distributed wrapper is taken off.
        lesson: a loss and a batch of data. Without it nothing is said about gradients.

    Returns:
        findings of every severity.
    """
    module = unwrap(module)
    findings = [finding for check in TENSOR_CHECKS for finding in check(module)]
    copies = (of_archive,) if isinstance(module, torch.jit.ScriptModule) else COPY_CHECKS
    findings += [finding for check in copies for finding in check(module)]
    return [*findings, *check_gradients(module, lesson)]


def check_gradients(module: nn.Module, lesson: Lesson | None) -> Iterator[Finding]:
    """The loss depends on every parameter that trains."""
    if isinstance(module, torch.jit.ScriptModule):
        return
    if lesson is None:
        yield note(
            "gradients-not-checked", "no data were given: gradients were not looked at", "give --train_file"
        )
        return
    if not any(parameter.requires_grad for parameter in module.parameters()):
        yield note(
            "gradients-none", "no parameter trains: gradients were not looked at", "requires_grad_(True)"
        )
        return
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    unused = parameters_without_gradient(module, lesson.loss_fn, lesson.batch, lesson.output_args, device)
    if unused:
        yield error(
            "parameter-unused",
            f"the loss does not depend on {len(unused)} parameters that train: {listed(unused)}; they stay "
            "as they are, and several processes would wait for their gradients",
            "choose a loss that compares all outputs, or freeze them (requires_grad_(False))",
        )
    else:
        yield ok("gradients", "the loss depends on every parameter that trains")
