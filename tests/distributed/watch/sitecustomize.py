"""Write down which process opens which file of the working folder for writing: lines "PID PATH" in WRITES.

Python imports this module at its start if its folder is in PYTHONPATH.
"""

import os
import sys

if os.environ.get("WRITES"):
    folder = os.getcwd() + os.sep
    record = os.open(os.environ["WRITES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def watch(event, arguments):
        if event != "open" or not isinstance(arguments[0], (str, bytes)):
            return
        path, _, flags = arguments
        path = os.path.abspath(os.fsdecode(path))
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR) and path.startswith(folder):
            os.write(record, f"{os.getpid()} {path.removeprefix(folder)}\n".encode())

    sys.addaudithook(watch)
