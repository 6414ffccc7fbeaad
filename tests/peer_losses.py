"""The training steps that mace-torch has done (see upstream/peer_training.py), with this package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase.io import read

from mace.data import AtomicData, config_from_atoms
from mace.modules import ScaleShiftMACE
from mace.modules.loss import WeightedEnergyForcesLoss
from mace.tools import AtomicNumberTable
from mace.tools.model_building import build_model
from mace.tools.torch_geometric import DataLoader
from tests.harness import TREE
from tests.toy_training import make_trainer, optim_plan

OUTPUTS = {
    "energy": True,
    "forces": True,
    "potential": False,
    "virials": False,
    "stress": False,
    "dipoles": False,
}


@dataclass(frozen=True)
class PeerTraining:
    """Settings, initial parameters and the loss of every step."""

    config: dict[str, Any]
    parameters: dict[str, np.ndarray]
    losses: np.ndarray

    @classmethod
    def read(cls, path: Path) -> PeerTraining:
        """Read what peer_training.py has written."""
        with np.load(path, allow_pickle=False) as archive:
            names = [key for key in archive.files if key.startswith("parameter/")]
            parameters = {key.removeprefix("parameter/"): archive[key] for key in names}
            return cls(json.loads(str(archive["config"])), parameters, archive["losses"])

    def initial_model(self) -> ScaleShiftMACE:
        """A new model with the peer's parameters; coupling tensors and all other buffers are its own."""
        keywords = self.config["model"]
        model = build_model(
            ScaleShiftMACE, {**keywords, "num_elements": len(keywords["atomic_numbers"])}, "float64"
        )
        parameters = {name: torch.from_numpy(value).double() for name, value in self.parameters.items()}
        model.load_state_dict({**model.state_dict(), **parameters})
        assert parameters.keys() == {name for name, _ in model.named_parameters()}
        return model

    def graphs(self) -> list[AtomicData]:
        """The training set, in the order of the steps."""
        model = self.config["model"]
        table = AtomicNumberTable(model["atomic_numbers"])
        frames = read(TREE / self.config["file"], self.config["index"])
        return [
            AtomicData.from_config(config_from_atoms(frame), table, model["r_max"], dtype=torch.float64)
            for frame in frames
        ]


def our_losses(peer: PeerTraining, folder: Path) -> np.ndarray:
    """Do the same steps with this package's trainer, which writes its checkpoints to ``folder``."""
    settings = peer.config
    optim = optim_plan(
        ema=True,
        **{key: settings[key] for key in ("lr", "beta", "weight_decay", "amsgrad", "ema_decay", "clip_grad")},
    )
    trainer = make_trainer(
        folder,
        model=peer.initial_model(),
        loss_fn=WeightedEnergyForcesLoss(settings["energy_weight"], settings["forces_weight"]),
        optim=optim,
        log_errors="PerAtomRMSE",
        max_num_epochs=settings["epochs"],
    )
    trainer.output_args = OUTPUTS
    graphs, size = peer.graphs(), settings["batch_size"]
    trainer.fit(DataLoader(graphs, batch_size=size), {"Default": DataLoader(graphs[:size], batch_size=size)})
    return np.array(trainer.metrics_logger.losses())


def deviations(losses: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Relative deviation of every step."""
    assert losses.shape == expected.shape
    return np.abs(losses / expected - 1.0)
