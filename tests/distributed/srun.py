"""A stand-in for srun on this host: ``python -m tests.distributed.srun -n N COMMAND...``.

It starts N tasks with the variables of a real one, and ends with the highest status. It is srun with
--kill-on-bad-exit: once a task has failed, the others have a few seconds.
"""

import os
import subprocess
import sys
import time

from tests.launcher_environments import srun

KILL_WAIT = 5.0  # seconds that the other tasks have


def main(arguments: list[str]) -> int:
    """Start the tasks and wait."""
    flag, count, *command = arguments
    assert flag == "-n"
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOBID": str(os.getpid())}
    tasks = [
        subprocess.Popen(command, env={**os.environ, **srun(rank, int(count), nodes="node7", count=1), **job})
        for rank in range(int(count))
    ]
    while all(task.poll() in (None, 0) for task in tasks) and None in (task.poll() for task in tasks):
        time.sleep(0.1)
    deadline = time.monotonic() + KILL_WAIT
    for task in tasks:
        try:
            task.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            task.kill()
    return max(task.wait() for task in tasks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
