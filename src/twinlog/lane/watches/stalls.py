"""Finds partitions of which the source answers nothing, forever, though its log continues.

A batch whose length field is damaged on the broker's disk ends its segment for the broker: it
believes that the batch is still being written, and answers every read there without an error and
without a byte. Seen from outside that is a partition that lags and says nothing.

An empty answer has harmless reasons, and none of them may look like this one:

- nothing to read: the end (high watermark, or last stable offset under read_committed) is at our
  position. An open transaction holds the last stable offset back, so it is one of these;
- markers and rolled back data are bytes in the answer, and the position moves over them;
- a partition left out of the fetch (budget, memory, no leader) is not at home with any broker, and
  a quota's answers are counted: both let the time begin again;
- a fetch filled by its neighbours, or a session that lost it: the check asks for this partition
  alone, and a broker then sends at least one batch, whatever its size (KIP-74). The check waits for
  a quota by itself, and takes end and records from one answer;
- a replica nearby that is damaged alone: the check asks the leader, and the partition is then read
  there;
- the end of a compacted log: its last records may be gone (tombstones, markers), so that nothing
  lies between position and end. It is distinguished from damage by reading further on: where
  something does lie behind, a sound log would have sent that from our position as well. Where
  nothing can be read there either, a compacted log gets no code: nothing is known to be missing. A
  copy that is to end there (`--once`) has ended only where an open transaction holds the end back
  and the log, read without regard to it, continues there: damage in that segment would have stopped
  such a read, too (over that in an earlier one brokers jump: see `gaps`).

A log that is not compacted has no gaps, so there one empty answer is proof. A topic whose
configuration may not be read counts as compacted.

A broker answers so, too, where records are in remote storage (KIP-405) that does not give them
within `remote.fetch.max.wait.ms`. Nothing is lost there: so nobody is told to delete anything where
the brokers do not say that the topic has none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_records
from twinlog.errors import PartitionError, TwinlogError
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.background import JobKind
from twinlog.lane.sides.source_side import AskedPartition, SourceSide
from twinlog.lane.watches.compaction import may_be_tiered, may_lack_offsets
from twinlog.mirror.findings import source_stalled, tier_stalled
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.record_batch import read_headers

log = logging.getLogger(__name__)

STALLED_AFTER_S: float = 60.0
"""Only then is it checked: a slow broker or a new leader has long answered."""

BOUNDED_AFTER_S: Final = 10.0
"""A copy that has an end is not kept waiting for longer by what may be a gap in front of it."""

ASK_S: Final = 10.0
CHECK_BYTES: Final = 1 << 16
OFFSETS_TRIED: Final = 8
"""Where a compacted log is read further on; the broker's index has an entry every 4 KB."""


class Stalled(NamedTuple):
    """A partition of which nothing can be read from `position` on."""

    position: int
    end: int
    is_gap: bool
    """Compaction left nothing up to the end, and the log continues behind it; False: something must
    be there.
    """
    is_tiered: bool
    """Remote storage may have it, and be slow."""


Found = dict[TopicPartition, Stalled | None]
"""None: there is something to read, or nothing is known to be missing."""


@dataclass(slots=True, kw_only=True)
class StallWatch:
    """Checks the partitions of one lane that were asked for in vain for too long."""

    ports: LanePorts
    source: SourceSide
    isolation: Isolation
    _since: dict[TopicPartition, tuple[AskedPartition, float]] = field(default_factory=dict)
    _is_checking: bool = False

    def tend(self) -> None:
        """Begin a check when one is due; to be called about once a second."""
        now = self.ports.clock.monotonic()
        asked = {one.tp: one for one in self.source.asked_in_vain()}
        since = self._since
        self._since = {
            tp: since[tp] if tp in since and since[tp][0] == one else (one, now)
            for tp, one in asked.items()
        }
        due = {
            tp: one.position
            for tp, (one, began) in self._since.items()
            if now - began >= _patience_s(one)
        }
        if due and not self._is_checking:
            self._is_checking = True
            self.ports.background.submit(
                JobKind.WATCH, lambda: self._check(due), self._on_found, self._on_failed
            )

    def _on_found(self, found: Found) -> None:
        self._is_checking = False
        for tp, stalled in found.items():
            self._since.pop(tp, None)
            if stalled is not None and stalled.is_gap:
                self.source.end_at(tp, stalled.position, stalled.end)
            if stalled is None or stalled.is_gap:
                self.source.ask_again(tp)
            elif self.source.position_of(tp) == stalled.position:
                self.source.events.troubled(tp, self._error(tp, stalled))

    def _on_failed(self, error: TwinlogError) -> None:
        self._is_checking = False
        self._since.clear()  # not again at once
        log.debug("a look at silent partitions failed error=%s", error)

    def _error(self, tp: TopicPartition, stalled: Stalled) -> PartitionError:
        leader = self.ports.source.leaders.get(tp)
        where = "its leader" if leader is None else f"its leader, node {leader.node}"
        found = f"{tp}: from upstream offset {stalled.position} the source answers nothing, though"
        what = f"{found} its log ends at {stalled.end}"
        if stalled.is_tiered:
            return tier_stalled(what, where)
        return source_stalled(what, tp, where).error()

    # -- in the background -----------------------------------------------------------------------

    def _check(self, due: dict[TopicPartition, int]) -> Found:
        with self.ports.source.borrowed() as client:
            found: Found = dict.fromkeys(due)
            silent = {
                tp: self._end(answer)
                for tp, answer in self._read(client, due, isolation=self.isolation).items()
                if not answer.records and self._end(answer) > due[tp]
            }
            topics = {tp.topic for tp in silent}
            compacted, tiered = may_lack_offsets(client, topics), may_be_tiered(client, topics)
            for tp, end in silent.items():
                stall = (client, tp, due[tp], end)
                if tp.topic not in compacted or self._is_followed(*stall):
                    found[tp] = Stalled(due[tp], end, False, tp.topic in tiered)
                elif self._is_gap(*stall):
                    found[tp] = Stalled(due[tp], end, True, tp.topic in tiered)
        return found

    def _is_followed(
        self, client: ClusterClient, tp: TopicPartition, position: int, end: int
    ) -> bool:
        """Something lies further on, below the end."""
        return any(
            header.base_offset < end
            for offset in _offsets_to_try(position, end)
            for answer in self._read(client, {tp: offset}, isolation=self.isolation).values()
            for header, _ in read_headers(answer.records)
        )

    def _is_gap(self, client: ClusterClient, tp: TopicPartition, position: int, end: int) -> bool:
        """The log's next batch is one of the open transaction that holds the end back."""
        answers = self._read(client, {tp: position}, isolation=Isolation.READ_UNCOMMITTED).values()
        headers = (header for answer in answers for header, _ in read_headers(answer.records))
        return any(header.base_offset >= end for header in islice(headers, 1))

    def _read(
        self, client: ClusterClient, offsets: dict[TopicPartition, int], *, isolation: Isolation
    ) -> dict[TopicPartition, FetchedRecords]:
        answers = fetch_records(
            client,
            {tp: (offset, CHECK_BYTES) for tp, offset in offsets.items()},
            isolation=isolation,
            timeout_s=ASK_S,
        )
        return {tp: one for tp, one in answers.items() if not isinstance(one, TwinlogError)}

    def _end(self, answer: FetchedRecords) -> int:
        return (
            answer.last_stable_offset
            if self.isolation is Isolation.READ_COMMITTED
            else answer.high_watermark
        )


def _patience_s(asked: AskedPartition) -> float:
    return min(STALLED_AFTER_S, BOUNDED_AFTER_S) if asked.is_bounded else STALLED_AFTER_S


def _offsets_to_try(position: int, end: int) -> Iterator[int]:
    """Offsets behind `position`, the last one first: the index is most likely to lead there."""
    step = max(1, (end - 1 - position) // OFFSETS_TRIED)
    yield from range(end - 1, position, -step)
