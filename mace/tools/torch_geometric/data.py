"""One graph as a bag of named tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .utils import as_plain


class Data:
    """A graph whose tensors are attributes and items alike.

    Every keyword becomes an attribute. ``data[key]`` is None for an attribute that is missing; attributes
    that are None are no keys: they are absent from ``keys``, ``to_dict()`` and from batches.

    Args:
        num_nodes: the number of nodes; without it the length of ``positions``, ``node_attrs``, ``x`` or
            ``batch`` is taken. **attributes: tensors, numbers or strings.
    """

    def __init__(self, num_nodes: int | None = None, **attributes: Any) -> None:
        self._num_nodes = num_nodes
        self.__dict__.update(attributes)

    @classmethod
    def from_dict(cls, attributes: dict[str, Any]) -> Data:
        """A graph with the entries of ``attributes``; the constructor of a derived class is not run."""
        data = cls.__new__(cls)
        Data.__init__(data, **attributes)
        return data

    @property
    def keys(self) -> list[str]:
        """Names of the attributes that are not None."""
        return [key for key, value in self.__dict__.items() if value is not None and not key.startswith("_")]

    def __getitem__(self, key: str) -> Any:
        return self.__dict__.get(key)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, value)

    def __contains__(self, key: str) -> bool:
        return key in self.keys

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.to_dict().items())

    def to_dict(self) -> dict[str, Any]:
        """The attributes that are not None, by name."""
        return {key: self.__dict__[key] for key in self.keys}

    @property
    def num_nodes(self) -> int | None:
        """Number of nodes, None if nothing tells."""
        if self._num_nodes is not None:
            return self._num_nodes
        for key in ("positions", "node_attrs", "x", "batch"):
            if self[key] is not None:
                return len(self[key])
        return None

    @num_nodes.setter
    def num_nodes(self, value: int | None) -> None:
        self._num_nodes = value

    @property
    def num_edges(self) -> int | None:
        """Number of directed edges, None without ``edge_index``."""
        return None if self["edge_index"] is None else self["edge_index"].size(-1)

    def apply(self, function: Callable[[Tensor], Tensor], *keys: str) -> Data:
        """Replace the tensors named ``keys`` (all without names) by ``function`` of them; returns self."""
        for key in keys or self.keys:
            value = self.__dict__.get(key)
            if isinstance(value, Tensor):
                self.__dict__[key] = function(value)
        return self

    def to(self, device: torch.device | str | torch.dtype, *keys: str, non_blocking: bool = False) -> Data:
        """Move the tensors named ``keys`` (all without names) to ``device``, in place; returns self."""
        return self.apply(lambda tensor: tensor.to(device, non_blocking=non_blocking), *keys)

    def cpu(self, *keys: str) -> Data:
        """Move the tensors to the CPU, in place; returns self."""
        return self.to("cpu", *keys)

    def cuda(self, device: int | str = "cuda", *keys: str, non_blocking: bool = False) -> Data:
        """Move the tensors to the current or the given CUDA device, in place; returns self."""
        return self.to(torch.device(device), *keys, non_blocking=non_blocking)

    def contiguous(self, *keys: str) -> Data:
        """Make the tensors contiguous, in place; returns self."""
        return self.apply(lambda tensor: tensor.contiguous(), *keys)

    def pin_memory(self, *keys: str) -> Data:
        """Copy the tensors to pinned host memory, in place; returns self. Data loaders call this."""
        return self.apply(lambda tensor: tensor.pin_memory(), *keys)

    def clone(self) -> Data:
        """A copy with copies of all tensors."""
        return copy.copy(self).apply(lambda tensor: tensor.clone())

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={as_plain(self.__dict__[key])}" for key in sorted(self.keys))
        return f"{type(self).__name__}({shown})"
