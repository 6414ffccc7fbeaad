"""The two ways in which a verb says no."""


class Refused(Exception):
    """The verb cannot do its work exactly: nothing has been changed; the message says what is in the way."""


class Misuse(Exception):
    """The command line asks for something that does not exist, such as a patch that is not in the series."""
