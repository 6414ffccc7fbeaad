"""What the tensors of a module must be for training, for several processes and for saving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from mace.doctor.findings import Finding, error, listed, note, ok, warning
from mace.tools.same import own_modules

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_GENERATED = (torch.jit.ScriptModule, torch.fx.GraphModule)


def check_plain_attributes(module: nn.Module) -> Iterator[Finding]:
    """No tensor or module is kept where torch does not look: in a plain attribute, a list or a dict."""
    found = list(_plain_attributes(module))
    parameters = [name for name, kept in found if isinstance(kept, nn.Parameter)]
    if parameters:
        yield error(
            "parameter-plain",
            f"{len(parameters)} parameters that torch does not know: {listed(parameters)}; they do not "
            "train, and files do not hold them",
            "keep them as attributes, or in nn.ParameterList or nn.ParameterDict",
        )
    modules = [name for name, kept in found if isinstance(kept, nn.Module)]
    if modules:
        yield error(
            "module-plain",
            f"{len(modules)} modules that torch does not know: {listed(modules)}; their weights do not "
            "train, and files do not hold them",
            "keep them as attributes, or in nn.ModuleList or nn.ModuleDict",
        )
    tensors = [f"{name} ({_described(kept)})" for name, kept in found if type(kept) is torch.Tensor]
    if tensors:
        yield warning(
            "tensor-plain",
            f"{len(tensors)} tensors are plain attributes: {listed(tensors)}; .to(device) leaves them "
            "behind, and files do not hold them",
            "use register_buffer (persistent=False for what can be computed)",
        )


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)} on {tensor.device}"


def _plain_attributes(module: nn.Module) -> Iterator[tuple[str, torch.Tensor | nn.Module]]:
    registered = {id(part) for part in module.modules()} | {id(tensor) for tensor in module.parameters()}
    for name, part in own_modules(module):
        if isinstance(part, _GENERATED):
            continue
        for attribute, value in vars(part).items():
            if attribute not in _OF_EVERY_MODULE:
                yield from _inside(f"{name}.{attribute}" if name else attribute, value, registered)


def _inside(place: str, value: Any, seen: set[int]) -> Iterator[tuple[str, torch.Tensor | nn.Module]]:
    """Tensors and modules in a value, each once; ``seen`` are those that are in order or were met."""
    if id(value) in seen:
        return
    if isinstance(value, (torch.Tensor, nn.Module)):
        seen.add(id(value))
        if isinstance(value, torch.Tensor) or any(True for _ in value.parameters()):
            yield place, value
    elif isinstance(value, Mapping):
        seen.add(id(value))
        for key, item in value.items():
            yield from _inside(f"{place}[{key!r}]", item, seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        seen.add(id(value))
        for index, item in enumerate(value):
            yield from _inside(f"{place}[{index}]", item, seen)


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def check_devices(module: nn.Module) -> Iterator[Finding]:
    """All registered tensors are in one place."""
    places = Counter(str(tensor.device) for tensor in _tensors(module).values())
    if len(places) > 1:
        (most, _), *_ = places.most_common()
        away = [f"{name} ({t.device})" for name, t in _tensors(module).items() if str(t.device) != most]
        yield error(
            "device-mixed",
            f"tensors on {len(places)} devices: {listed(away)}; the rest on {most}",
            "model.to(device)",
        )


def check_dtypes(module: nn.Module) -> Iterator[Finding]:
    """Parameters are floating-point numbers, and all of one kind."""
    parameters = dict(module.named_parameters())
    other = [f"{n} ({_described(p)})" for n, p in parameters.items() if not p.is_floating_point()]
    if other:
        yield error(
            "parameter-not-float",
            f"{len(other)} parameters are no floating-point numbers: {listed(other)}; optimisers and "
            "averages of the weights cannot take them",
            "make them buffers",
        )
    kinds = Counter(
        str(t.dtype).removeprefix("torch.") for t in _tensors(module).values() if t.is_floating_point()
    )
    if len(kinds) > 1:
        counts = ", ".join(f"{count} of {kind}" for kind, count in kinds.most_common())
        (most, _), *_ = kinds.most_common()
        away = [
            n
            for n, t in _tensors(module).items()
            if t.is_floating_point() and not str(t.dtype).endswith(most)
        ]
        yield warning(
            "dtype-mixed",
            f"tensors of several precisions: {counts}, {listed(away)} among the fewer",
            "model.to(dtype), unless that is meant",
        )


def check_layout(module: nn.Module) -> Iterator[Finding]:
    """Parameters lie in memory one element after the other, as collectives and flat optimisers want them."""
    strided = [f"{n} (stride {t.stride()})" for n, t in module.named_parameters() if not t.is_contiguous()]
    if strided:
        yield warning(
            "parameter-strided",
            f"{len(strided)} parameters are not contiguous: {listed(strided)}; sending them between "
            "processes fails or copies them",
            "parameter.data = parameter.data.contiguous()",
        )
    buffers = [name for name, tensor in module.named_buffers() if not tensor.is_contiguous()]
    if buffers:
        yield note(
            "buffer-strided",
            f"{len(buffers)} buffers are not contiguous: {listed(buffers)}",
            "nothing for mace_run_train; a DistributedDataParallel of your own may stumble over them",
        )


def check_values(module: nn.Module) -> Iterator[Finding]:
    """Every weight is a finite number, and there is something to train."""
    floats = {n: t for n, t in _tensors(module).items() if t.is_floating_point() and not t.is_meta}
    bad = [name for name, tensor in floats.items() if not bool(tensor.isfinite().all())]
    if bad:
        yield error(
            "weights-not-finite",
            f"{len(bad)} tensors hold NaN or infinity: {listed(bad)}",
            "go back to an earlier file",
        )
    empty = [name for name, parameter in module.named_parameters() if parameter.numel() == 0]
    if empty:
        yield note(
            "parameter-empty",
            f"{len(empty)} parameters have no elements: {listed(empty)}",
            "nothing for mace_run_train; a DistributedDataParallel of your own must leave them out",
        )


def check_size(module: nn.Module) -> Iterator[Finding]:
    """How large the model is."""
    parameters = list(module.parameters())
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    count, megabytes = sum(parameter.numel() for parameter in parameters), bytes_of(module) / 1e6
    yield ok(
        "model-size",
        f"{type(module).__name__}: {count} weights, {trained} of them train, {megabytes:.1f} MB of tensors",
    )


def bytes_of(module: nn.Module) -> int:
    """Bytes of all registered tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(module).values())
