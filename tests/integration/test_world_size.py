"""The same run on one and on two ranks: the number of processes is no setting of the training."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness import CP, losses, metric, one, tiny_data, two

TOLERANCE = 1e-6  # relative; what the sum over ranks in another order may do to losses over some epochs


@pytest.mark.multirank
def test_two_ranks_give_the_losses_of_one_with_the_same_global_batch(tmp_path):
    tiny_data(tmp_path, nmin=5, nmax=5)  # the mean over ranks is that of one batch for frames of equal size
    flags = [*CP, "--ema", "--max_num_epochs=3"]
    one([*flags, "--name=one", "--batch_size=4"], tmp_path).succeeded()
    two([*flags, "--name=two", "--batch_size=2"], tmp_path).succeeded()
    single, double = (losses(tmp_path / f"results/{name}_run-1_train.txt") for name in ("one", "two"))
    assert len(single) == 9  # 3 epochs of 12 frames
    np.testing.assert_allclose(double, single, rtol=TOLERANCE)
    for key in ("loss", "rmse_e_per_atom", "rmse_f", "rmse_p"):
        pair = [metric(tmp_path, name, key, epoch=2) for name in ("one", "two")]
        np.testing.assert_allclose(pair[1], pair[0], rtol=TOLERANCE)
