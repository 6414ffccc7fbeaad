"""Each rank keeps the state of a part of the parameters, and all have the weights of a plain optimiser."""

import pytest
import torch
from torch import nn

from mace.tools.ranks.sharding import collect_state, numbered_groups, optimizer_class, sharded_optimizer
from tests.distributed.processes import on_one_process, run_ranks

pytestmark = pytest.mark.multirank


def _trained(ranks):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4, dtype=torch.float64) for _ in range(3)))
    groups = [{"name": "empty", "params": []}, {"name": "all", "params": list(model.parameters())}]
    if ranks.backend is None:
        optimizer = torch.optim.Adam(groups, lr=0.1)
    else:
        optimizer = sharded_optimizer(torch.optim.Adam, groups, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
    collect_state(optimizer)
    state = optimizer.state_dict()["state"] if ranks.is_main else {}
    return {
        "weights": [parameter.tolist() for parameter in model.parameters()],
        "kept": len(getattr(optimizer, "optim", optimizer).state),
        "saved": {number: entry["exp_avg"].tolist() for number, entry in state.items()},
        "class": optimizer_class(optimizer).__name__,
        "names": [group["name"] for group in numbered_groups(optimizer)],
    }


def test_two_ranks_share_the_state_out():
    plain = on_one_process(_trained)
    answers = run_ranks(2, _trained)
    assert plain["kept"] == 6
    assert all(0 < answer["kept"] < 6 for answer in answers)
    assert sum(answer["kept"] for answer in answers) == 6
    for answer in answers:
        assert answer["weights"] == plain["weights"]
        assert (answer["class"], answer["names"]) == ("Adam", ["empty", "all"])
    assert answers[0]["saved"] == plain["saved"], "a checkpoint is that of a plain optimiser"
