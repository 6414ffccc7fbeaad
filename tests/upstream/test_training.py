"""The first steps of a training are those of mace-torch 0.3.16: same weights, batches and settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.harness import DATA_FOLDER
from tests.peer_losses import PeerTraining, deviations, our_losses
from tests.tolerances import relative

WORKER = Path(__file__).with_name("peer_training.py")
CASES = ("ell2", "ell3")
pytestmark = [pytest.mark.upstream, pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def peers(tmp_path_factory, peer) -> dict[str, PeerTraining]:
    """What mace-torch does, freshly trained."""
    folder = tmp_path_factory.mktemp("peer")
    for case in CASES:
        peer([str(WORKER), case, f"{case}.npz"], folder)
    return {case: PeerTraining.read(folder / f"{case}.npz") for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_fifty_step_losses_are_those_of_mace_torch(case, peers, tmp_path):
    assert len(peers[case].losses) == 50
    worst = deviations(our_losses(peers[case], tmp_path), peers[case].losses).max()
    print(f"{case}: largest relative deviation of a step's loss {worst:.1e}")
    assert worst < relative("training steps")


def test_stored_losses_are_those_of_mace_torch(peers):
    """What the fast tier compares with is what the installed mace-torch does."""
    stored, fresh = PeerTraining.read(DATA_FOLDER / "peer_training" / "ell3.npz"), peers["ell3"]
    assert stored.config == fresh.config
    assert stored.parameters.keys() == fresh.parameters.keys()
    for name, value in stored.parameters.items():
        np.testing.assert_array_equal(value, fresh.parameters[name], err_msg=name)
    assert deviations(stored.losses, fresh.losses).max() < relative("training steps")
