"""Where the copy of a partition resumes: its ordinal, its upstream offset, and K.

**Problem.** To resume, a copy must know how many of its records are on the target. A number that is
stored elsewhere (a committed offset, a checkpoint, a file) may be older or newer than the log after
a crash. So the number must come from the target's log itself.

    target offset     70  71  72      73  74  75  |  log end 76
    ordinal            0   1   2       3   4   5  |  next ordinal = 76 - 70 = 6
    upstream         100 101 102  .  104 105 108  |  next upstream offset: from the offset map

- The *ordinal* of a record is the number of records that the flow wrote to the target partition
  before it. It is also the sequence of the record (mod 2^31), so brokers count with the copy
  (`mirror.copy.partition`).
- *K*, the offset delta, is target offset minus ordinal. In a topic to which only this flow writes,
  K is the same for all records: 70 here, because 70 records were there before the copy began. The
  flow writes no transactions, so there are no markers between its records, and neither retention
  nor compaction changes offsets.

So two facts from the target determine the position: the log's end minus K is the next ordinal, and
the map has the upstream offset of each ordinal. Each Produce response confirms K: a batch must be
at K + ordinal. If the offset is lower, records are missing before the batch; if it is higher,
another client wrote to the partition.

| topic | K | the end of the copy |
| --- | --- | --- |
| only this flow writes to it | constant | log end - K (`mirror.start.position`) |
| the same, after accepted foreign records | larger after each range; in the map | as above |
| shared with other clients | grows with each foreign record | a walk (`mirror.start.our_end`) |
| keyed (`mirror.copy.fan_out`) | grows with each response | the same walk |

In the last two kinds of topics, the K of a `StartPoint` is a lower bound, which the first response
corrects. So a response cannot reveal that records are missing. Missing records are prevented
instead: an unprotected partition has only one request in flight (`mirror.copy.partition`).

`CopyRules` has the settings that apply to all copies of a flow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.mirror.map.offset_map import Mark, Run
from twinlog.model import Isolation, TopicId
from twinlog.wire.compression import Recompression

EXPIRY_MARGIN_MS: Final = 3_600_000
"""Twinlog treats a producer ID as forgotten this many ms before its expiry time has passed, or a
quarter of that time before, whichever is less.

Brokers compare record timestamps with their own clocks, and Twinlog with the local clock. If the
local clock is slow, a forgotten ID would count as remembered without this margin. A fast clock errs
only in the safe direction. Clocks under NTP never differ by an hour. The cost is that records
between 23 and 24 hours old are sent one batch at a time after a problem.
"""


class KnownDeadLetters(NamedTuple):
    """The dead letters of a copy that are on the target (`mirror.copy.dead_letters`)."""

    topic_id: TopicId
    epoch: int
    """Leader epoch of the dead-letter partition when its log was read, or -1 if unknown."""
    offsets: tuple[int, ...]
    """Source offsets of the dead letters for records at or after the copy's position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPoint:
    """Where a partition resumes, as found by a start (`mirror.start.position`) or handed over by
    the previous lane.
    """

    ordinal: int
    upstream: int
    k: int
    last_fetched_epoch: int
    """Source leader epoch of offset `upstream` - 1, or -1 if unknown."""
    is_protected: bool
    """Whether the target's leader lists this flow's producer ID for this partition."""
    last_timestamp: int
    """Timestamp of this flow's last record on the target, in ms, or -1 if unknown."""
    taken_over: bool = False
    """Whether other clients wrote after this flow's last record, so that nothing more is copied."""
    lost: tuple[int, int] | None = None
    """[first, next) of upstream offsets that the source deleted before they were copied. They are
    skipped because the operator accepts the loss, or because the consumer group at whose offset the
    copy begins would also skip them.
    """
    has_company: bool = False
    """Whether another Twinlog flow writes to the target partition."""
    target_epoch: int = -1
    """Leader epoch of the target partition under which its log was checked, or -1 if unknown."""
    compared: int = -1
    """Number of records at the end of the target log that were found equal at the source, or -1 if
    none was compared.
    """
    jumps: tuple[Run, ...] = ()
    """Runs before `ordinal` that correct the map, because other clients wrote between the records,
    or because another lane's batch was appended instead of the announced one.
    """
    undecided: tuple[int, int] | None = None
    """Target offsets [first, next) for which the map was wrong, and whose records were not found at
    the source. Offsets of groups are translated so that the groups read these records again.
    """
    dead_letters: KnownDeadLetters | None = None
    """The known dead letters, or None if the flow has no dead-letter topic."""

    @property
    def as_mark(self) -> Mark:
        """Return a mark (`offset_map.Mark`) at this point. It is final if other clients ended the
        copy.
        """
        return Mark(self.ordinal, self.k + self.ordinal, is_final=self.taken_over)

    def mark(self, known_mark: Mark | None, *, is_alone: bool) -> Mark | None:
        """Return the mark (`offset_map.Mark`) with which the copy begins. `known_mark`: the mark in
        the map, which was read before the logs were checked, or None. `is_alone`: only this flow
        writes to the topic, so K is exact.

        If other clients ended the copy, the result is a final mark at the end that this start
        found.
        """
        if self.taken_over or is_alone:
            return self.as_mark
        return None if known_mark is None else known_mark._replace(is_final=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRules:
    """Settings of a flow for the copies of all its partitions."""

    producer_id: int
    isolation: Isolation
    is_ours_alone: bool
    producer_expiry_ms: int | None
    """The brokers' producer.id.expiration.ms, or None if unknown. If it is unknown, every partition
    is unprotected.
    """
    recompression: Recompression | None = None
    join_bytes: int = 0
    """Maximum size in bytes of a batch into which small batches are joined; 0 disables joining."""

    safe_age_ms: int | None = field(init=False)
    """Age in ms up to which a record certainly keeps the producer ID alive; None if unknown."""

    def __post_init__(self) -> None:
        expiry = self.producer_expiry_ms
        age = None if expiry is None else expiry - min(EXPIRY_MARGIN_MS, expiry // 4)
        object.__setattr__(self, "safe_age_ms", age)

    def is_remembered_after(self, timestamp: int, now_ms: int) -> bool:
        """Return True if brokers certainly remember the producer ID after a record with this
        timestamp (ms).
        """
        age = self.safe_age_ms
        return age is not None and timestamp > now_ms - age

    def is_remembered_at(self, start: StartPoint, now_ms: int) -> bool:
        """Return True if brokers certainly remember this flow's producer ID at this start point."""
        return start.is_protected and self.is_remembered_after(start.last_timestamp, now_ms)
