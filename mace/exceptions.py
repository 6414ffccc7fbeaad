"""The exceptions whose message is all that a user needs: commands print it once and end with status 1."""


class InputError(ValueError):
    """What the user gave cannot be used.

    The message is one line that says what is wrong, which value was found and what to do about it. Commands
    print that line once (not once a rank, and without a traceback) and end with status 1; Python callers
    catch it as a ``ValueError``.
    """


class RunError(RuntimeError):
    """A run that was well asked for has failed, and one line can tell why (which file, which cause)."""


class StopRequested(RunError):
    """Somebody has asked the run to stop, and it has stopped where it can go on.

    Commands end with ``status``, which queues that run a job again can tell from a failure.
    """

    status = 75  # EX_TEMPFAIL of sysexits.h: try again later
