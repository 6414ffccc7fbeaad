"""Fifty training steps against the losses that mace-torch 0.3.16 had, stored in tests/data/peer_training."""

from __future__ import annotations

from tests.harness import DATA_FOLDER
from tests.peer_losses import PeerTraining, deviations, our_losses
from tests.tolerances import relative


def test_fifty_step_losses_are_the_stored_ones_of_mace_torch(tmp_path):
    stored = PeerTraining.read(DATA_FOLDER / "peer_training" / "ell3.npz")
    worst = deviations(our_losses(stored, tmp_path), stored.losses).max()
    print(f"largest relative deviation of a step's loss {worst:.1e}")
    assert worst < relative("training steps")
