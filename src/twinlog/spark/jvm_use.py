"""Memory, garbage collection and threads of the JVM of Spark's driver, for `/metrics`.

No record passes through this JVM, but its memory is part of the process's limit.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

log = logging.getLogger(__name__)

OPENED: Final = (
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
"""Packages to open, because py4j calls the JVM's management beans by reflection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmUse:
    """The JVM's memory, threads and garbage collection at one moment."""

    heap_bytes: int
    nonheap_bytes: int
    threads: int
    collection_s: tuple[tuple[str, float], ...]
    """Seconds of garbage collection since the JVM's start, by the collector's name."""


def jvm_use(context: Any) -> JvmUse | None:
    """Return the current values of a SparkContext's JVM, or None if they cannot be read."""
    try:
        management = context._jvm.java.lang.management.ManagementFactory
        memory = management.getMemoryMXBean()
        return JvmUse(
            heap_bytes=memory.getHeapMemoryUsage().getUsed(),
            nonheap_bytes=memory.getNonHeapMemoryUsage().getUsed(),
            threads=management.getThreadMXBean().getThreadCount(),
            collection_s=tuple(
                (collector.getName(), collector.getCollectionTime() / 1000)
                for collector in management.getGarbageCollectorMXBeans()
            ),
        )
    except Exception as error:  # noqa: BLE001 (py4j raises anything, also while the JVM ends)
        log.debug("the JVM's beans are not readable error=%r", error)
        return None
