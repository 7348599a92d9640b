"""A lane's memory is bounded: while the target is slow, the lane reads only up to its byte
budget.
"""

from __future__ import annotations

import time
from typing import Final

import psutil
import pytest

from tests.support.client import Outgoing, eventually, produce, produce_transaction
from tests.support.quotas import quota
from tests.support.rig import Rig
from tests.support.topics import create_topic, end_offsets

pytestmark = [pytest.mark.faults, pytest.mark.broker]

MB: Final = 1 << 20
BUDGET: Final = 16 * MB
PARTITIONS: Final = 8
RECORD: Final = 100_000
RECORDS: Final = 1_200
"""Number of records, 120 MB in total: seven times the byte budget."""

ANSWERS: Final = 3 * 8 * MB
"""Bytes that a lane may use in addition to its queued records: fetch responses in memory, and
Python's overhead.
"""


def backlog(count: int) -> list[Outgoing]:
    value = bytes(range(256)) * (RECORD // 256)
    return [Outgoing(value=value, partition=n % PARTITIONS) for n in range(count)]


def test_slow_target_costs_no_memory(rig: Rig) -> None:
    create_topic(rig.source, rig.topic, PARTITIONS)
    produce(rig.source, rig.topic, backlog(PARTITIONS))

    def arrived() -> int:
        return sum(end_offsets(rig.target, rig.remote).values())

    with rig.mirror(keys={"twinlog.lane.memory.bytes": str(BUDGET)}) as mirror:
        mirror.eventually(lambda parts: sum(p.records for p in parts) == PARTITIONS)
        (pid,) = mirror.leases.pids()
        lane = psutil.Process(pid)
        before = lane.memory_info().rss
        try:
            # One transaction, so that a lane sees all records at once. It is written before the
            # target is frozen, because a slow machine takes long and the target's own controller
            # fences the broker after 9 s.
            produce_transaction(
                rig.source,
                rig.topic,
                backlog(RECORDS),
                commit=True,
                before=lambda: rig.target.freeze(1),
            )
            most, end = 0, time.monotonic() + 4
            while time.monotonic() < end:
                most = max(most, lane.memory_info().rss)
                time.sleep(0.05)
        finally:
            rig.target.thaw(1)
        assert most - before < BUDGET + ANSWERS, f"{(most - before) / MB:.0f} MB more"
        # partitions that were left out of the fetches are fetched again when memory is free
        while_copying = 0

        def all_there() -> bool:
            nonlocal while_copying
            while_copying = max(while_copying, lane.memory_info().rss)
            return arrived() == RECORDS + PARTITIONS

        eventually(all_there, what="the whole backlog")
        assert while_copying - before < BUDGET + ANSWERS, f"{(while_copying - before) / MB:.0f} MB"
        mirror.stop()
    rig.same()


def test_no_end_is_reported_while_the_source_is_not_read(rig: Rig) -> None:
    """The target's quota blocks all writes, so the lane's memory is full and the source is not
    read. A partition that was at its end may have new records, so it must not be reported as
    AT_END.
    """
    create_topic(rig.source, rig.topic, PARTITIONS)
    produce(rig.source, rig.topic, backlog(PARTITIONS))
    idle = {0, 1}
    with rig.mirror(keys={"twinlog.lane.memory.bytes": str(BUDGET)}) as mirror:
        mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts))
        us = f"twinlog-{rig.flow}"
        quota(rig.target_client, us, {"producer_byte_rate": 30_000.0})
        try:
            more = [one for one in backlog(RECORDS) if one.partition not in idle]
            produce(rig.source, rig.topic, more)
            mirror.eventually(
                lambda parts: all(p.state != "AT_END" for p in parts if p.partition in idle), 60
            )
        finally:
            quota(rig.target_client, us, {"producer_byte_rate": None})
        count = len(more) + PARTITIONS
        eventually(lambda: sum(end_offsets(rig.target, rig.remote).values()) == count)
        mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts))
        mirror.stop()
    rig.same()
