"""Restores the logging configuration after a test that changes it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from twinlog.cli.terminal.output import configure_logging


@pytest.fixture
def logs_as_before() -> Iterator[None]:
    """Configure logging as a command without -v does during the test, and restore it afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("twinlog")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    configure_logging(verbose=False)
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)
