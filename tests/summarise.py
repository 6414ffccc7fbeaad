"""Print one line a JUnit result file: tests, failures, errors, skipped, seconds."""

import sys
from xml.etree import ElementTree


def summary(path: str) -> str:
    """The counts of one JUnit file as one line."""
    suite = ElementTree.parse(path).getroot().find("testsuite")
    assert suite is not None, path
    counts = " ".join(f"{suite.get(key)} {key}" for key in ("tests", "failures", "errors", "skipped"))
    return f"{path}: {counts}, {float(suite.get('time', 0)):.0f} s"


if __name__ == "__main__":
    print("\n".join(summary(path) for path in sys.argv[1:]))
