"""``mace_run_train`` that notes memory and open files of each rank after every epoch, in ``watch_<rank>``."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from mace.cli.launch import run_train
from mace.tools.trainer import Trainer


class Heap(ctypes.Structure):
    """``struct mallinfo2`` of glibc: ``uordblks`` and ``hblkhd`` bytes are in use, in the heap and beside."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]  # noqa: RUF012


def watch() -> None:
    """Let every trainer of this process keep the notes."""
    heap = ctypes.CDLL("libc.so.6").mallinfo2
    heap.restype = Heap
    end_epoch = Trainer._end_epoch

    def watched(*args: Any) -> bool:
        going_on = end_epoch(*args)
        gc.collect()  # what only waits for the collector has not grown
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE") // 1024
        now = heap()
        used = (now.uordblks + now.hblkhd) // 1024
        row = {
            "rss_kb": memory,
            "used_kb": used,
            "blocks": sys.getallocatedblocks(),
            "files": len(os.listdir("/proc/self/fd")),
        }
        with Path(f"watch_{os.environ['RANK']}").open("a") as notes:
            print(json.dumps(row), file=notes)
        return going_on

    Trainer._end_epoch = watched  # type: ignore[method-assign]


if __name__ == "__main__":
    watch()
    sys.argv[0] = "mace_run_train"
    run_train()
