"""The plain (not equivariant) networks of constant-potential models. They act on invariant features only."""

from __future__ import annotations

import torch
from torch import Tensor

STATE_WIDTH = 64  # components of the global state of a graph
READOUT_WIDTH = 128


def scalar_readout(num_inputs: int, start: float | None = None) -> torch.nn.Sequential:
    """num_inputs -> 128 -> 1 with ReLU; the last bias starts at ``start`` if given."""
    layers = torch.nn.Sequential(
        torch.nn.Linear(num_inputs, READOUT_WIDTH), torch.nn.ReLU(), torch.nn.Linear(READOUT_WIDTH, 1)
    )
    if start is not None:
        torch.nn.init.constant_(layers[2].bias, start)
    return layers


def EvidentialRegressionOutput(input_dim: int, hidden_dim: int = READOUT_WIDTH) -> torch.nn.Sequential:
    """input_dim -> hidden_dim -> 3 with ReLU, the input of `evidential_positive_outputs`."""
    return torch.nn.Sequential(
        torch.nn.Linear(input_dim, hidden_dim), torch.nn.ReLU(), torch.nn.Linear(hidden_dim, 3)
    )


def evidential_positive_outputs(output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Positive nu, alpha and beta, each [n], from [n, 3]; alpha counts from 1.

    Amini et al., arXiv:1910.02600.
    """
    positive = torch.nn.functional.softplus(output)
    return positive[:, 0], positive[:, 1], positive[:, 2]


class GatedMLP(torch.nn.Module):
    """mlp([x1, x2]) * gate([x1, x2]), [n, c1] and [n, c2] -> [n, c1]; the gate lies in (0, 1)."""

    def __init__(self, c1: int, c2: int, hidden_dim: int = 128) -> None:
        super().__init__()
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(c1 + c2, hidden_dim), torch.nn.SiLU(), torch.nn.Linear(hidden_dim, c1)
        )
        self.gate = torch.nn.Sequential(
            torch.nn.Linear(c1 + c2, hidden_dim),
            torch.nn.SiLU(),
            torch.nn.Linear(hidden_dim, c1),
            torch.nn.Sigmoid(),
        )

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        x = torch.cat([x1, x2], dim=-1)
        return self.mlp(x) * self.gate(x)


class MLP(torch.nn.Module):
    """mlp([x1, x2]), [n, c1] and [n, c2] -> [n, c1]."""

    def __init__(self, c1: int, c2: int, hidden_dim: int = 128) -> None:
        super().__init__()
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(c1 + c2, hidden_dim), torch.nn.ReLU(), torch.nn.Linear(hidden_dim, c1)
        )

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.mlp(torch.cat([x1, x2], dim=-1))
