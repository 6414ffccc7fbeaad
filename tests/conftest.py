"""Settings for every test process: its share of the cores, and a root logger that stays as it was."""

from __future__ import annotations

import logging
from collections.abc import Generator

import pytest
import torch

torch.set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Put the root logger back as it was before the test and the fixtures it was the first to need.

    A run in this process, as some fixtures do, points the root logger at its own files and lets every record
    through: tests that read the log would depend on which came before.
    """
    logger = logging.getLogger()
    level, handlers = logger.level, list(logger.handlers)
    try:
        return (yield)
    finally:
        for handler in [handler for handler in logger.handlers if handler not in handlers]:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)
