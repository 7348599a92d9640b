"""Versions of Kafka on either side that are tried."""

from __future__ import annotations

import os
from typing import Final

from twinlog.sandbox.kafka_jars import KAFKA_VERSION

SOURCES: Final = ("2.8.2", "3.4.1", "3.9.1", "4.3.0")
TARGETS: Final = ("3.4.1", "3.9.1", "4.3.0")

FAULT_SOURCE, _, FAULT_TARGET = os.environ.get(
    "TWINLOG_FAULT_VERSIONS", f"{KAFKA_VERSION}:{KAFKA_VERSION}"
).partition(":")
"""Of the pair of the fault tests; 2.8.2:3.4.1 is the oldest."""
