"""Small helpers around tensors, seeds, devices and the default dtype."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mace.exceptions import InputError
from mace.tools.ranks.placement import available_device

TensorDict = dict[str, Tensor]

dtype_dict = {"float32": torch.float32, "float64": torch.float64}


def to_one_hot(indices: Tensor, num_classes: int, dtype: torch.dtype | None = None) -> Tensor:
    """One-hot rows.

    Args:
        indices: int64 (n, 1), the class of every row.
        num_classes: number of columns.
        dtype: of the result; torch's default without it.

    Returns:
        (n, num_classes), one 1 in every row.
    """
    shape = (*indices.shape[:-1], num_classes)
    return torch.zeros(shape, dtype=dtype, device=indices.device).scatter_(-1, indices, 1)


def count_parameters(module: nn.Module) -> int:
    """Number of all parameters, trainable or not."""
    return sum(parameter.numel() for parameter in module.parameters())


def tensor_dict_to_device(
    td: Mapping[str, Tensor | None], device: torch.device | str
) -> dict[str, Tensor | None]:
    """The same dictionary with every tensor on ``device``; None stays None."""
    return {key: None if value is None else value.to(device) for key, value in td.items()}


def to_numpy(t: Tensor) -> np.ndarray:
    """The values of a tensor, wherever it lives and whatever graph it belongs to."""
    return t.detach().cpu().numpy()


def voigt_to_matrix(t: Tensor) -> Tensor:
    """A symmetric 3x3 matrix from one of its notations.

    Args:
        t: (6,) in the order xx, yy, zz, yz, xz, xy; (9,) row by row; or (3, 3).

    Returns:
        (3, 3).

    Raises:
        InputError: another shape.
    """
    if t.shape == (3, 3):
        return t
    if t.shape == (6,):
        return t[[0, 5, 4, 5, 1, 3, 4, 3, 2]].reshape(3, 3)
    if t.shape == (9,):
        return t.reshape(3, 3)
    raise InputError(f"a stress or virial has shape (6,), (9,) or (3, 3), got {tuple(t.shape)}")


def init_device(device_str: str) -> torch.device:
    """The torch device of that name, with a line about it in the log; errors as :func:`available_device`."""
    device = available_device(device_str)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        logging.info(f"CUDA version: {torch.version.cuda}, CUDA device: {index}")
    else:
        kind = device.type
        logging.info("Using CPU" if kind == "cpu" else f"Using {kind.upper()} GPU acceleration")
    return device


def set_seeds(seed: int) -> None:
    """Seed the global generators of numpy and torch."""
    np.random.seed(seed)
    torch.manual_seed(seed)


def set_default_dtype(dtype: str) -> None:
    """Make ``float32`` or ``float64`` torch's default in this process; :func:`default_dtype` restores it."""
    torch.set_default_dtype(_dtype(dtype))


@contextmanager
def default_dtype(dtype: torch.dtype | str) -> Iterator[None]:
    """Make ``dtype`` torch's default within the context; at its end the former one comes back."""
    former = torch.get_default_dtype()
    torch.set_default_dtype(_dtype(dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(former)


def _dtype(dtype: torch.dtype | str) -> torch.dtype:
    """A dtype from its name; dtypes pass through."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in dtype_dict:
        raise InputError(f"unknown dtype {dtype!r}; known are {', '.join(dtype_dict)}")
    return dtype_dict[dtype]


def spherical_to_cartesian(t: Tensor) -> Tensor:
    """Symmetric 3x3 tensors (..., 3, 3) from their spherical components (..., 6), irreps 0e + 2e of e3nn."""
    return torch.einsum("...k,kij->...ij", t, _symmetric_basis(t))


def cartesian_to_spherical(t: Tensor) -> Tensor:
    """Spherical components (..., 6), irreps 0e + 2e of e3nn, of symmetric 3x3 tensors (..., 3, 3)."""
    return torch.einsum("...ij,kij->...k", t, _symmetric_basis(t))


def _symmetric_basis(like: Tensor) -> Tensor:
    """Orthonormal matrices (6, 3, 3): the unit matrix, xz, xy, 2yy-xx-zz, yz, zz-xx (the order of e3nn)."""
    rows = [[1, 0, 0, 0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 1, 0, 0], [0, 1, 0, 1, 0, 0, 0, 0, 0]]
    rows += [[-1, 0, 0, 0, 2, 0, 0, 0, -1], [0, 0, 0, 0, 0, 1, 0, 1, 0], [-1, 0, 0, 0, 0, 0, 0, 0, 1]]
    basis = torch.tensor(rows, dtype=like.dtype, device=like.device)
    return (basis / basis.norm(dim=1, keepdim=True)).reshape(6, 3, 3)


def init_wandb(project: str, entity: str, name: str, config: Mapping[str, Any], directory: str) -> None:
    """Start a Weights & Biases run.

    Raises:
        InputError: the package wandb is not installed.
    """
    try:
        import wandb
    except ImportError as error:
        raise InputError("--wandb needs the package wandb: pip install 'cp-mace[wandb]'") from error
    wandb.init(project=project, entity=entity, name=name, config=dict(config), dir=directory, resume="allow")


@contextmanager
def frozen(parameters: Iterable[torch.nn.Parameter]) -> Iterator[None]:
    """Let no parameter require a gradient meanwhile; afterwards those that did do so again."""
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
