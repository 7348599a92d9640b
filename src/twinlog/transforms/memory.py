"""Limits the memory of the application's processes to `twinlog.transforms.memory.bytes`.

    Python's modules, JVM without its heap    some 450 MiB
    Arrow's buffers in the JVM                a few chunks of 1 MiB, or of one record
    heap of the JVM                           `heap_bytes`, enforced by the JVM
    data of each Python worker                `worker_bytes`, enforced by the kernel (RLIMIT_DATA)
    all of it                                 `watch`, which ends the application

A worker above its limit raises MemoryError, or ends. In both cases the record fails, as after any
error of a function. The limits of heap and workers may add up to more than the limit of the
application, because they are rarely reached at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psutil

MEBIBYTE: Final = 1 << 20
RESERVED: Final = 100 * MEBIBYTE
"""Heap that Spark reserves for itself. With Spark's default of 300 MiB, it would reject a heap
below 450 MiB.
"""
LOOK_S: Final = 1.0


def heap_bytes(limit: int) -> int:
    """Return the maximum heap of the JVM in bytes. `limit`: the limit of the application."""
    return limit * 5 // 16


def worker_bytes(limit: int) -> int:
    """Return the maximum data (RLIMIT_DATA) of a Python worker in bytes."""
    return limit // 2


def bytes_at_once(limit: int) -> int:
    """Return the maximum total size in bytes of the ranges in running rounds (`rounds`: Spark
    jobs).
    """
    return limit // 128


def payload_bytes(limit: int) -> int:
    """Return the maximum payload of a source batch in bytes. A worker may have two copies of it."""
    return limit // 8


def jvm_flags(limit: int) -> tuple[str, ...]:
    """Return JVM flags that bound its memory."""
    return (
        f"-Xmx{heap_bytes(limit) // MEBIBYTE}m",
        "-Xmn64m",
        # with this order, Arrow's buffers above 1 MiB are not pooled, so they are freed immediately
        "-Dio.netty.allocator.maxOrder=7",
        "-Dio.netty.allocator.numDirectArenas=2",
    )


def watch(limit: int, exceeded: Callable[[int], object], is_busy: Callable[[], bool]) -> None:
    """Wait until this process and its descendants use more memory than `limit`, and then call
    `exceeded` with the number of bytes used. The memory is measured only while `is_busy` returns
    True.
    """
    while not is_busy() or (used := _used(limit)) <= limit:
        time.sleep(LOOK_S)
    exceeded(used)


def _used(limit: int) -> int:
    """Return the memory of this process and its descendants in bytes (PSS, in which shared pages
    count once). If the sum of their RSS is within the limit, return that sum, because it is faster
    to get.
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
            # a kernel without PSS counts as 0, so only the limits of heap and workers apply
            pss += getattr(one.memory_full_info(), "pss", 0)
    return pss
