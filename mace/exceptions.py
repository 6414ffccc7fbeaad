"""The one exception that means: what the user gave cannot be used."""


class InputError(ValueError):
    """What the user gave cannot be used.

    The message is one line that says what is wrong, which value was found and what to do about it. Commands
    print that line once (not once a rank, and without a traceback) and end with status 1; Python callers
    catch it as a ``ValueError``.
    """
