"""What mace-torch's users have: a DistributedDataParallel object around a model, and a run's folder.

usage: python peer_rescue.py wrap JOB.json      as peer_interchange.py pickle, inside the wrapper, as NAME.pt
       python peer_rescue.py train FLAGS...     the training command
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent))


def wrap(job: str) -> None:
    from peer_interchange import built, evaluate

    torch.set_default_dtype(torch.float64)
    where = f"file://{Path('ranks').resolve()}"
    torch.distributed.init_process_group("gloo", init_method=where, rank=0, world_size=1)
    for name, model in json.loads(Path(job).read_text()).items():
        live = built(model["class"], model["arguments"])
        torch.save(DistributedDataParallel(live, find_unused_parameters=True), f"{name}.pt")
        evaluate(live, name)
    torch.distributed.destroy_process_group()


def train(*flags: str) -> None:
    sys.argv = ["mace_run_train", *flags]
    importlib.import_module("mace.cli.run_train").main()


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"wrap": wrap, "train": train}[sys.argv[1]](*sys.argv[2:])
