"""Restores logging after a test that configures it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from twinlog.cli.terminal.output import configure_logging


@pytest.fixture
def logs_as_before() -> Iterator[None]:
    """Log like a command without -v during the test, and restore logging after it."""
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
