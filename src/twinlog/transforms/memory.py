"""Keeps the processes of the application within `twinlog.transforms.memory.bytes`.

    Python's modules, JVM without its heap    some 450 MiB
    Arrow's buffers in the JVM                a few chunks of 1 MiB, or of one record
    heap of the JVM                           `heap_bytes`, enforced by the JVM
    data of each Python worker                `worker_bytes`, enforced by the kernel (RLIMIT_DATA)
    all of it                                 `watch`, which ends the application

A worker above its limit raises MemoryError, or ends. Both fail the record, as any error of a
function does. The limits of heap and workers together may be above the limit of the application,
because they are rarely reached at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psutil

MEBIBYTE: Final = 1 << 20
RESERVED: Final = 100 * MEBIBYTE
"""Part of the heap that Spark itself needs. With its own value, 300 MiB, it rejects a heap below
450.
"""
LOOK_S: Final = 1.0


def heap_bytes(limit: int) -> int:
    """Return the maximum heap of the JVM."""
    return limit * 5 // 16


def worker_bytes(limit: int) -> int:
    """Return the maximum data of a Python worker."""
    return limit // 2


def bytes_at_once(limit: int) -> int:
    """Return the maximum bytes of the ranges that are computed at the same time."""
    return limit // 128


def payload_bytes(limit: int) -> int:
    """Return the maximum payload of a batch of the source. A worker has it twice for a moment."""
    return limit // 8


def jvm_flags(limit: int) -> tuple[str, ...]:
    """Return flags for a JVM whose heap grows late and shrinks soon."""
    return (
        f"-Xmx{heap_bytes(limit) // MEBIBYTE}m",
        "-Xmn64m",
        "-XX:MinHeapFreeRatio=10",
        "-XX:MaxHeapFreeRatio=25",
        # Arrow's buffers above 1 MiB are freed immediately
        "-Dio.netty.allocator.maxOrder=7",
        "-Dio.netty.allocator.numDirectArenas=2",
    )


def watch(limit: int, exceeded: Callable[[int], object], is_busy: Callable[[], bool]) -> None:
    """Call `exceeded` with the bytes that this process and its descendants use, as soon as they are
    above the limit. They are added up only while `is_busy`.
    """
    while not is_busy() or (used := _used(limit)) <= limit:
        time.sleep(LOOK_S)
    exceeded(used)


def _used(limit: int) -> int:
    """Return the bytes of this process and its descendants, with shared pages counted once. If they
    are surely below the limit, return an upper bound, because that takes less time.
    """
    me = psutil.Process()
    family = [me, *me.children(recursive=True)]
    resident = pss = 0
    for one in family:
        with suppress(psutil.Error):
            resident += one.memory_info().rss
    if resident <= limit:
        return resident
    for one in family:
        with suppress(psutil.Error):
            # without PSS in this kernel, only the limits of heap and workers apply
            pss += getattr(one.memory_full_info(), "pss", 0)
    return pss
