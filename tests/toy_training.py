"""A model, data and a trainer that are small enough to train within milliseconds."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mace.arguments.plans import LoopPlan, OptimPlan, StagePlan
from mace.data import AtomicData, Configuration
from mace.modules.loss import FermiWeightedEnergyForcesLoss
from mace.tools import AtomicNumberTable
from mace.tools.checkpoint import CheckpointHandler
from mace.tools.distributed import Ranks
from mace.tools.optimization import LRScheduler, build_ema, build_optimizer, build_stage_two
from mace.tools.torch_geometric import DataLoader
from mace.tools.train import Trainer

DTYPE = torch.float64
OUTPUTS = {
    "energy": True,
    "forces": True,
    "potential": True,
    "virials": False,
    "stress": False,
    "dipoles": False,
}
TAG = "toy_run-1"


class ToyModel(nn.Module):
    """Energy, forces and Fermi level from one message passing step, with the children of a MACE model."""

    def __init__(self, width: int = 4, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.node_embedding = nn.Linear(2, width, dtype=DTYPE)
            self.interactions = nn.ModuleList(
                [
                    nn.ModuleDict(
                        {
                            "linear_up": nn.Linear(width, width, dtype=DTYPE),
                            "linear": nn.Linear(width, width, dtype=DTYPE),
                        }
                    )
                ]
            )
            self.products = nn.ModuleList([nn.Linear(width, width, dtype=DTYPE)])
            self.readouts = nn.ModuleList([nn.Linear(width, 1, dtype=DTYPE)])
            self.potential_output_layer = nn.Linear(width, 1, dtype=DTYPE)
        self.register_buffer("r_max", torch.tensor(4.0, dtype=DTYPE))

    def forward(
        self,
        data: dict[str, Tensor],
        training: bool = False,
        compute_force: bool = True,
        compute_potential: bool = True,
    ) -> dict[str, Tensor | None]:
        positions = data["positions"].requires_grad_(True)
        sender, receiver = data["edge_index"]
        lengths = (positions[receiver] - positions[sender] + data["shifts"]).norm(dim=-1, keepdim=True)
        features = self.node_embedding(data["node_attrs"])
        messages = self.interactions[0]["linear_up"](features)[sender] * torch.exp(-lengths)
        received = torch.zeros_like(features).index_add(0, receiver, messages)
        features = torch.tanh(self.products[0](self.interactions[0]["linear"](received) + features))
        num_graphs = len(data["ptr"]) - 1

        def total(values: Tensor) -> Tensor:
            return values.new_zeros(num_graphs).index_add(0, data["batch"], values.squeeze(-1))

        energy = total(self.readouts[0](features))
        forces = None
        if compute_force:
            forces = -torch.autograd.grad(energy.sum(), positions, create_graph=training)[0]
        potential = total(self.potential_output_layer(features)) if compute_potential else None
        return {"energy": energy, "forces": forces, "potential": potential}


def frames(count: int, seed: int = 1, sizes: tuple[int, int] = (3, 5)) -> list[Configuration]:
    """Random molecules of H and O with smooth labels; ``sizes`` are the smallest and largest ones."""
    rng = np.random.default_rng(seed)
    configurations = []
    for _ in range(count):
        n = int(rng.integers(sizes[0], sizes[1] + 1))
        positions = rng.uniform(0, 2.5, (n, 3))
        configurations.append(
            Configuration(
                atomic_numbers=rng.choice([1, 8], n),
                positions=positions,
                energy=float(np.sin(positions).sum()),
                forces=-np.cos(positions),
                potential=float(np.cos(positions).mean()),
                electron=0.1,
            )
        )
    return configurations


def graphs(configurations: list[Configuration]) -> list[AtomicData]:
    """The graphs of configurations."""
    table = AtomicNumberTable([1, 8])
    return [AtomicData.from_config(config, table, 4.0, dtype=DTYPE) for config in configurations]


def loader(
    configurations: list[Configuration], batch_size: int = 4, ranks: Ranks | None = None
) -> DataLoader:
    """This process's share of the configurations, in order."""
    ranks = Ranks.single() if ranks is None else ranks
    share = graphs(configurations)[ranks.rank :: ranks.world_size]
    return DataLoader(share, batch_size=batch_size)


class Records(list):
    """Keeps the records of a run."""

    def log(self, d: Any) -> None:
        self.append(dict(d))

    def losses(self, mode: str = "opt") -> list[float]:
        return [record["loss"] for record in self if record["mode"] == mode]


def optim_plan(**changes: Any) -> OptimPlan:
    """Plain Adam with a plateau schedule."""
    settings: dict[str, Any] = {
        "optimizer": "adam",
        "lr": 0.01,
        "beta": 0.9,
        "beta1_schedulefree": 0.9,
        "beta2_schedulefree": 0.98,
        "weight_decay": 5e-7,
        "amsgrad": True,
        "scheduler": "ReduceLROnPlateau",
        "lr_factor": 0.5,
        "scheduler_patience": 50,
        "lr_scheduler_gamma": 0.9,
        "ema": False,
        "ema_decay": 0.9,
        "clip_grad": 10.0,
    }
    return OptimPlan(**{**settings, **changes})


def loop_plan(**changes: Any) -> LoopPlan:
    """Three epochs."""
    settings: dict[str, Any] = {
        "max_num_epochs": 3,
        "patience": 100,
        "eval_interval": 1,
        "restart_latest": False,
        "keep_checkpoints": False,
        "save_all_checkpoints": False,
        "progress": False,
    }
    return LoopPlan(**{**settings, **changes})


def make_trainer(
    folder: Path,
    *,
    model: nn.Module | None = None,
    loss_fn: nn.Module | None = None,
    optim: OptimPlan | None = None,
    stages: StagePlan | None = None,
    ranks: Ranks | None = None,
    tag: str = TAG,
    log_errors: str = "Fermi_PerAtomRMSE",
    **loop: Any,
) -> Trainer:
    """A trainer whose checkpoints are in ``folder``; its ``metrics_logger`` is a list of records."""
    model = ToyModel() if model is None else model
    optim = optim_plan() if optim is None else optim
    loop_settings = loop_plan(**loop)
    loss_fn = FermiWeightedEnergyForcesLoss(1.0, 10.0, 1.0) if loss_fn is None else loss_fn
    optimizer = build_optimizer(model, optim)
    return Trainer(
        model=model,
        loss_fn=loss_fn,
        optimizer=optimizer,
        lr_scheduler=LRScheduler(optimizer, optim),
        ema=build_ema(model, optim),
        swa=build_stage_two(optimizer, FermiWeightedEnergyForcesLoss(10.0, 10.0, 1.0), stages),
        plan=loop_settings,
        max_grad_norm=optim.clip_grad,
        output_args=OUTPUTS,
        ranks=Ranks.single() if ranks is None else ranks,
        checkpoints=CheckpointHandler(
            folder,
            tag,
            keep=loop_settings.keep_checkpoints,
            swa_start=None if stages is None else stages.start,
        ),
        metrics_logger=Records(),
        log_errors=log_errors,
    )


def fit(trainer: Trainer, train: int = 12, valid: int = 5, **options: Any) -> Records:
    """Train on ``train`` configurations, validate on ``valid``; the records of the run."""
    options = {"batch_size": 4, **options}
    trainer.fit(
        loader(frames(train, 1), ranks=trainer.ranks, **options),
        {"Default": loader(frames(valid, 2), ranks=trainer.ranks, **options)},
    )
    return trainer.metrics_logger


def lines(caplog: Any, level: int = logging.INFO) -> list[str]:
    """Messages of the log of at least a level."""
    return [record.getMessage() for record in caplog.records if record.levelno >= level]
