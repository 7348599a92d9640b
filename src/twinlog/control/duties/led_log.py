"""A topic of one partition to which whoever leads a flow appends what it found.

Readers take the newest row of a key for what is so now. A leader that was frozen wakes with what it
found before, and its successor knows what it wrote itself: nothing would put the older row right
while nothing moves. So right before it appends, a process asks its own clock whether it still
leads; and what arrives all the same (the freeze fell between that and the request, or the request
was late) shows in the offsets: the log is not where the successor left it. It then reads the
topic again, and writes what differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append, ends_of_logs, read_to_end
from twinlog.control.duties.rounds import LedFlow, NotNow
from twinlog.model import TopicPartition
from twinlog.wire.records import Record

CHECK_EVERY_S: Final = 60.0


class LedLog:
    """One such topic; for one thread."""

    def __init__(
        self,
        flow: LedFlow,
        client: ClusterClient,
        topic: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flow, self._client, self._clock = flow, client, clock
        self._tp = TopicPartition(topic, 0)
        self._end = -1
        """The log ends there if nobody else writes; -1: not known."""
        self._is_foreign = False
        """Somebody else wrote since it was read."""
        self._next_check = 0.0

    def read(self) -> Iterator[Record]:
        """All records, oldest first. Raises TwinlogError."""
        self._end, self._is_foreign = -1, False
        (end,) = ends_of_logs(self._client, [self._tp]).values()
        yield from read_to_end(self._client, self._tp.topic, 0, end=end)
        self._end, self._next_check = end, self._clock() + CHECK_EVERY_S

    def append(self, records: Sequence[Record]) -> None:
        """As one batch. Raises NotNow where this process does not lead any more."""
        if not self._flow.leads():
            raise NotNow(f"{self._flow.name}: is led elsewhere by now")
        base = append(self._client, self._tp, records)
        self._is_foreign |= self._end not in (-1, base)
        self._end = base + len(records)

    def others_wrote(self) -> bool:
        """Whether the topic holds what is neither read nor ours, once a minute; else False.

        Raises TwinlogError where the log's end cannot be asked.
        """
        if self._end < 0 or self._clock() < self._next_check:
            return False
        self._next_check = self._clock() + CHECK_EVERY_S
        (end,) = ends_of_logs(self._client, [self._tp]).values()
        return self._is_foreign or end != self._end
