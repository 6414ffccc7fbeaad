"""A stand-in for srun on this host: ``python -m tests.distributed.srun -n N COMMAND...``.

It starts N tasks with the variables of a real one, waits for all, and ends with the highest status, as srun.
"""

import os
import subprocess
import sys

from tests.launcher_environments import srun


def main(arguments: list[str]) -> int:
    """Start the tasks and wait."""
    flag, count, *command = arguments
    assert flag == "-n"
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOBID": str(os.getpid())}
    tasks = [
        subprocess.Popen(command, env={**os.environ, **srun(rank, int(count), nodes="node7", count=1), **job})
        for rank in range(int(count))
    ]
    return max(task.wait() for task in tasks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
