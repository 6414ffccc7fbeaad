"""What one model holds that another does not: tensors to the bit, flags, submodules, hooks, attributes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from e3nn import o3

_GENERATED = (torch.jit.ScriptModule, torch.fx.GraphModule)
_BOOKKEEPING = frozenset(vars(torch.nn.Module())) | {"_recorded_config"}
_Difference = Iterator[str]


def own_modules(model: torch.nn.Module, prefix: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    """All submodules with names; not the inside of generated code, which depends on how it is generated."""
    yield prefix, model
    if not isinstance(model, _GENERATED):
        for name, child in model.named_children():
            yield from own_modules(child, f"{prefix}.{name}" if prefix else name)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal dtype, shape and bit pattern (NaN equals itself, -0 differs from 0), on whatever device."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(*[_bytes(tensor.detach().cpu()) for tensor in (a, b)])


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    # An element that was expanded counts as contiguous with a stride of 0, which no view as bytes takes.
    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def differences(live: torch.nn.Module, copy: torch.nn.Module) -> list[str]:
    """One sentence for each respect in which ``copy`` is not the same model as ``live``; empty if it is."""
    found = [*_tensors(live, copy)]
    lives, copies = dict(own_modules(live)), dict(own_modules(copy))
    found += [f"submodule {name!r} is unknown to its configuration" for name in lives.keys() - copies.keys()]
    found += [f"submodule {name!r} is gone" for name in copies.keys() - lives.keys()]
    for name in lives.keys() & copies.keys():
        found += [f"{name}.{text}" if name else text for text in _modules(lives[name], copies[name])]
    return sorted(found)


def _tensors(live: torch.nn.Module, copy: torch.nn.Module) -> _Difference:
    for kind in ("named_parameters", "named_buffers"):
        lives, copies = dict(getattr(live, kind)()), dict(getattr(copy, kind)())
        for name in lives.keys() ^ copies.keys():
            yield f"tensor {name!r} is " + ("unknown to its configuration" if name in lives else "gone")
        for name in lives.keys() & copies.keys():
            a, b = lives[name], copies[name]
            if not same_bits(a, b):
                yield f"tensor {name!r} differs ({a.dtype}, {tuple(a.shape)} and {b.dtype}, {tuple(b.shape)})"
            if a.device != b.device:
                yield f"tensor {name!r} is on {a.device}, the copy's on {b.device}"
            if a.requires_grad != b.requires_grad:
                yield f"tensor {name!r} has requires_grad={a.requires_grad}, the copy's {b.requires_grad}"


def _modules(live: torch.nn.Module, copy: torch.nn.Module) -> _Difference:
    if live.training != copy.training:
        yield f"training is {live.training}, the copy's {copy.training}"
    if isinstance(live, _GENERATED) and isinstance(copy, _GENERATED):
        return
    if type(live) is not type(copy):
        yield f"class is {type(live).__name__}, its configuration gives {type(copy).__name__}"
        return
    for hooks in ("_forward_hooks", "_forward_pre_hooks"):
        if len(getattr(live, hooks)) != len(getattr(copy, hooks)):
            yield f"{hooks.strip('_')} were registered"
    yield from _attributes(vars(live), vars(copy))


def _attributes(live: dict[str, Any], copy: dict[str, Any]) -> _Difference:
    for name in live.keys() - copy.keys() - _BOOKKEEPING:
        if not name.startswith("_"):  # private additions are the bookkeeping of those who wrap models
            yield f"{name} is unknown to its configuration"
    for name in copy.keys() - live.keys():
        yield f"{name} is gone"
    for name in (live.keys() & copy.keys()) - _BOOKKEEPING:
        if not _same(live[name], copy[name]):
            yield f"{name} is {live[name]!r:.60}, its configuration gives {copy[name]!r:.60}"


def _same(a: Any, b: Any) -> bool:
    if _is_function(a) and _is_function(b):
        # Scripted and plain forms of one function count as the same, and closures made anew each time too.
        scripted = any(isinstance(function, torch.jit.ScriptFunction) for function in (a, b))
        return scripted or _function_name(a) == _function_name(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return same_bits(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (o3.Irreps, o3.Irrep)):
        return a == b
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, type):
        return a is b
    if dataclasses.is_dataclass(a):
        return all(_same(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a))
    if type(a).__eq__ is object.__eq__:
        return (
            True  # an object without a value of its own: that it is of the same class is all that can be said
        )
    return bool(a == b) or a != a and b != b


def _is_function(value: Any) -> bool:
    return inspect.isroutine(value) or isinstance(value, torch.jit.ScriptFunction)


def _function_name(function: Any) -> tuple[Any, Any]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", None)
