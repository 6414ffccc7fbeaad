"""What older scripts saved: whole DistributedDataParallel objects and their state dicts.

usage: python ddp_pickles.py FOLDER KIND...

One gloo process is enough. Kinds: "layers" (torch's own), "foreign" (a class of this script), "fermi" (a
model of this package, from tests.small_models). Of each are written NAME.pt (the wrapper), NAME_state.pt (its
state dict), NAME_module.pt (the state dict of the module in it), NAME_bare.pt (the wrapper without the
attributes that its constructor sets, as other versions of torch have others), NAME_cuda.pt and
NAME_cuda_state.pt (their tensors tagged as those of a GPU). Runs with any torch.
"""

import os
import sys
import tempfile

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_GETSTATE = DistributedDataParallel.__getstate__


class Net(nn.Module):
    """A class of a script: nobody else can import it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 3)


def layers():
    """Parameters, buffers, an empty place, a layer that occurs twice."""
    shared = nn.Linear(4, 4)
    return nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.SiLU(), shared, nn.ModuleDict({"last": shared})["last"]
    )


def fermi():
    """A model of this package, as runs build it for DistributedDataParallel."""
    from mace.tools.rebuild import disable_e3nn_codegen
    from tests import small_models

    with disable_e3nn_codegen():
        return small_models.fermi()


KINDS = {"layers": layers, "foreign": Net, "fermi": fermi}


def _of_every_module(wrapper):
    return {name: vars(wrapper)[name] for name in vars(nn.Module())}


def save(module, folder, name):
    """Every file of a module."""
    wrapper = DistributedDataParallel(module)
    as_on_a_gpu = torch.serialization.location_tag
    for mark, tag in (("", as_on_a_gpu), ("_cuda", lambda _: "cuda:0")):
        torch.serialization.location_tag = tag
        torch.save(wrapper, os.path.join(folder, name + mark + ".pt"))
        torch.save(wrapper.state_dict(), os.path.join(folder, name + mark + "_state.pt"))
    torch.serialization.location_tag = as_on_a_gpu
    torch.save(module.state_dict(), os.path.join(folder, name + "_module.pt"))
    DistributedDataParallel.__getstate__ = _of_every_module
    torch.save(wrapper, os.path.join(folder, name + "_bare.pt"))
    DistributedDataParallel.__getstate__ = _GETSTATE


def main(folder, *kinds):
    """Write the files of all kinds into a folder."""
    with tempfile.TemporaryDirectory() as meeting:
        where = "file://" + os.path.join(meeting, "ranks")
        torch.distributed.init_process_group("gloo", init_method=where, rank=0, world_size=1)
        for kind in kinds:
            torch.manual_seed(1)
            save(KINDS[kind](), folder, kind)
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
