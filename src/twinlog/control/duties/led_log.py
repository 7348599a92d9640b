"""A topic of one partition to which a flow's leader appends results.

Readers treat the newest row of a key as current. A leader that was frozen may append an outdated
result when it resumes. Its successor knows only its own rows, so it would not correct the outdated
row until the result changes. So right before an append, the process checks by its own clock whether
it still leads. A row may still arrive later if the process was frozen after that check, or if the
request was delayed. The successor detects such a row, because the log no longer ends after the
successor's own last row. Then it reads the topic again, and writes what differs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append, read_to_end, readable_ends
from twinlog.control.duties.rounds import LedFlow, NotNow
from twinlog.model import TopicPartition
from twinlog.wire.records import Record

CHECK_EVERY_S: Final = 60.0


class LedLog:
    """A topic to which the flow's leader appends results. Not thread-safe."""

    def __init__(self, flow: LedFlow, client: ClusterClient, topic: str) -> None:
        self._flow, self._client = flow, client
        self._tp = TopicPartition(topic, 0)
        self._end = -1
        """The expected log end if no other process writes, or -1 if unknown."""
        self._is_foreign = False
        """True if another process has written since the topic was read."""
        self._next_check = 0.0

    def read(self) -> Iterator[Record]:
        """Yield all records, oldest first. Raises TwinlogError."""
        self._end, self._is_foreign = -1, False
        (end,) = readable_ends(self._client, [self._tp]).values()
        yield from read_to_end(self._client, self._tp.topic, 0, end=end)
        self._end, self._next_check = end, time.monotonic() + CHECK_EVERY_S

    def append(self, records: Sequence[Record]) -> None:
        """Append one batch. Raises NotNow if this process no longer leads."""
        if not self._flow.leads():
            raise NotNow(f"{self._flow.name}: another process leads the flow now")
        base = append(self._client, self._tp, records)
        self._is_foreign |= self._end not in (-1, base)
        self._end = base + len(records)

    def has_foreign_records(self) -> bool:
        """Return True if the topic has records that this process neither read nor wrote. The log is
        checked once a minute; in between, return False.

        Raises TwinlogError if the log's end cannot be read.
        """
        if self._end < 0 or time.monotonic() < self._next_check:
            return False
        self._next_check = time.monotonic() + CHECK_EVERY_S
        (end,) = readable_ends(self._client, [self._tp]).values()
        return self._is_foreign or end != self._end
