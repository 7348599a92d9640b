"""Keyed topics: one source partition is copied to several target partitions by key.

**Problem.** MirrorMaker 1 placed records by key if the target topic had another number of
partitions than the source topic. But ordinals, sequences, K (`mirror.start_point`), and the runs of
the offset map all rely on a source partition being copied to one target partition.

    source partition --> records --> partition_of --> branch 0 --> target partition 0
                                                  --> branch 1 --> target partition 1 ...

**Branches.** A branch is the copy of those records of a source partition that belong in one target
partition. It has its own ordinals, map rows, mark (`offset_map.Mark`) and in-flight window, so it
is a `PartitionCopy`, except that its input is a part of the partition. A fan is all branches of one
source partition. The source is read once for all of them, and the driver assigns, paces and retries
a fan as one partition.

**Invariants**

1. The target partition follows from the record alone (murmur2 of the key, or of the source offset
   without a key). So every lane that copies a record again writes it to the same partition with the
   same sequence.
2. All branches of a source partition write under one producer ID, which no other source partition
   uses. So in each target partition, the sequences of each ID are contiguous. Rows of the state
   topic assign the IDs. The first row for a source partition wins permanently.
3. The number of target partitions never changes for a copy. Otherwise a key would move
   (`PARTITIONS_DIFFER`).

**Differences from the copy of a whole partition**

- *The map.* Nearly every record would begin a run. Instead, each batch has one run in the map: its
  *last* record. A log always ends after a whole batch, so the resume point is still exact. A branch
  that gets no records announces every few seconds how far the source was read for it (`read_to`).
  Otherwise its next start would read all these records again.
- *K.* Other source partitions write between a branch's batches, so K changes with every response
  and cannot show that records are missing. Instead, losing records is ruled out: while the target
  may not remember the producer ID, only one batch is in flight.
- *Starts* are always cold (`mirror.start.fan_start`); nothing is handed over. Groups are not
  translated, because no single target offset corresponds to a source offset.

**A process may die after each step**

- *The first rows of some branches are durable*: records are read only when all branches have a
  durable row (`FanOut.may_read_source`). A branch without a row has written nothing, and begins
  where the other branches did.
- *A batch is announced*: the row names the source record of that ordinal, whether it is written or
  not.
- *A batch is sent*: the next start finds it by its sequence. If it ends at a record that no row
  names, that record is searched at the source by content.

**Rejected:** a run per record, because the map would be as large as the data. Also rejected:
producer IDs per generation, because two processes that both assume to lead would use one ID for
different partitions. ADR 10 has the complete table.

**Placement.** Keyed records are placed as by Kafka's Java producer, which MirrorMaker 1 used. For a
record without a key, Java's producer alternates between partitions. Here the partition follows from
the record's source offset, so that every lane that copies the record, after a crash or
concurrently, chooses the same partition. `Rows.partitioned` applies the same rule to many records
at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from twinlog.errors import PartitionError, TwinlogError
from twinlog.mirror.copy.intake import Aborted, Intake, OutBatch
from twinlog.mirror.copy.partition import CopyState, LastRecordsCopy, PartitionCopy
from twinlog.mirror.copy.timings import TimingSum
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.skips import Skip
from twinlog.model import Isolation, TopicId, TopicPartition
from twinlog.wire.kernels.twin import murmur2
from twinlog.wire.record_batch import BatchHeader
from twinlog.wire.records import Part, Record, Rows, fingerprint

_POSITIVE: Final = 0x7FFFFFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Java's `BuiltInPartitioner.partitionForKey` does."""
    return (murmur2(key) & _POSITIVE) % partitions


def partition_of(record: Record, partitions: int) -> int:
    """Return the target partition of a source record."""
    key = record.key
    if key is None:
        # the partition is not the offset modulo the count, because with transaction markers only
        # every other offset is a record, so that some partitions would get none
        key = record.offset.to_bytes(8, "big")
    return partition_for_key(key, partitions)


NOWHERE: Final = -1


def read_to(ordinal: int, upstream: int) -> Run:
    """Return a run that states how far the source was read for a branch, and that names no record.

    All source offsets below `upstream` were read for the branch, and the branch's next record will
    have the ordinal `ordinal`.
    """
    return Run(ordinal, upstream, NOWHERE)


def is_record(run: Run) -> bool:
    """Return True if a run of a branch's map names a source record, False if it was made by
    `read_to`.
    """
    return run.downstream != NOWHERE


def next_upstream(runs: Sequence[Run], ordinal: int) -> int | None:
    """Return the upstream offset at which a branch resumes if its next record has this ordinal.
    Return None if `runs` has neither this ordinal nor the record before it.
    """
    record_at = {run.ordinal: run.upstream for run in runs if is_record(run)}
    if ordinal in record_at:
        return record_at[ordinal]  # the next record was announced, but is not on the target
    for run in runs:
        if run.ordinal == ordinal:
            return run.upstream
    last = record_at.get(ordinal - 1)
    return None if last is None else last + 1


class FanIntake(Intake):
    """The intake of a whole source partition: decodes batches for the branches. `take` returns no
    batches to send.
    """

    _gathered: list[Part]
    _headers: list[BatchHeader]

    def read(
        self, records: memoryview, aborted: Iterable[Aborted], end: int
    ) -> tuple[BatchHeader | None, Rows]:
        """Return (header, records) of one Fetch response. `header`: that of the last batch that was
        decoded, or None if there was none.

        As in `take`, records before a batch that cannot be read are returned, and the next response
        begins with that batch.
        """
        self._gathered, self._headers = [], []
        try:
            self.take(records, aborted, end)
        except TwinlogError:
            if not self._headers:
                raise
        return (self._headers[-1] if self._headers else None), Rows(self._gathered)

    def _deep(self, header: BatchHeader, rows: Rows) -> list[OutBatch]:
        self.deep_batches += 1
        self._gathered += self._rows_to_copy(rows).parts
        self._headers.append(header)
        self.position = max(self.position, header.next_offset)
        return []


class BranchIntake(Intake):
    """The intake of one branch: encodes the branch's records as batches."""

    def encode(self, header: BatchHeader, rows: Rows, upto: int) -> Iterable[OutBatch]:
        """Return batches of `rows`, the branch's records of one Fetch response. `header`: a source
        batch of that response. `upto`: all source offsets below it were read.
        """
        out: list[OutBatch] = []
        for group in self._before_wrap(rows.at_or_after(self.position)):
            done = 0
            for batch in self._encoded(header, group):
                done += batch.count
                last = group.record(done - 1)
                at = batch.next_ordinal - 1
                batch.runs = (Run(at, last.offset, self.k + at),)
                batch.fingerprint = fingerprint(last)
                batch.offsets = group.slice(done - batch.count, done).offsets()
                out.append(batch)
        self.position = max(self.position, upto)
        if out:
            out[-1].upstream_next = self.position
        return out

    def _runs(self, rows: Rows) -> tuple[tuple[Run, ...], int | None]:
        return (), None


class Branch(LastRecordsCopy):
    """The copy of the records of a source partition that belong in one target partition."""

    intake: BranchIntake
    intake_class = BranchIntake

    def on_share(self, header: BatchHeader | None, rows: Rows, upto: int, now_ms: int) -> None:
        """Queue `rows`, this branch's records of a Fetch response. `header`: a source batch of that
        response, or None if it had no records. All source offsets below `upto` were read.
        """
        if header is not None:
            for batch in self.intake.encode(header, rows, upto):
                self.queue(batch, now_ms, always=True)
        self.intake.position = max(self.intake.position, upto)
        self.has_read()

    def note_position(self) -> None:
        """Write to the offset map how far the source was read after this branch's last record
        (`read_to`).
        """
        known, position = self.tail.runs[-1], self.intake.position
        if self.is_idle and known.upstream_of(self.acked_ordinal) < position:
            # the next batch begins with this ordinal, so this row is written before that batch is
            # sent
            self.tail.announce(read_to(self.acked_ordinal, position), None, always=True)

    def _shift(self, batch: OutBatch, distance: int, now_ms: int) -> None:
        # other source partitions write to this target partition, too, so this branch's next record
        # gets a higher offset than planned
        self._k += distance
        self.intake.shift(distance)
        self._clean(batch, self._k + batch.ordinal, now_ms)


class FanOut:
    """All branches of one source partition on one lane. To the lane they are one copy."""

    def __init__(
        self,
        *,
        source: TopicPartition,
        source_topic_id: TopicId,
        branches: Sequence[Branch],
        isolation: Isolation,
        end: int,
        skips: Sequence[Skip] = (),
    ) -> None:
        self.source = source
        self.source_topic_id = source_topic_id
        self.parts = tuple(branches)
        self._rowless = {branch for branch in branches if branch.tail.dirty}
        self._is_read = False
        self.end = end
        first = min(branches, key=lambda branch: branch.intake.position).intake
        self.intake = FanIntake(
            position=first.position,
            ordinal=0,
            k=0,
            last_run=None,
            producer_id=-1,
            isolation=isolation,
            limit_bytes=0,
            last_fetched_epoch=first.last_fetched_epoch,
            skips=skips,
        )
        self.source_trouble: TwinlogError | None = None
        self.ages, self.latencies = TimingSum(), TimingSum()
        for branch in branches:
            branch.ages, branch.latencies = self.ages, self.latencies

    def on_fetched(self, records: memoryview, aborted: Iterable[Aborted], now_ms: int) -> int:
        """Distribute the records of a Fetch response to the branches, and queue them. Return the
        number of bytes that were queued.
        """
        before = self.queued_bytes
        header, gathered = self.intake.read(records, aborted, self.end)
        for branch, share in zip(self.parts, gathered.partitioned(len(self.parts)), strict=True):
            branch.on_share(header, share, self.intake.position, now_ms)
        return self.queued_bytes - before

    def may_read_source(self) -> bool:
        """Return True once, as soon as all branches have a durable row, so that the source may be
        read.

        The first map row of a branch states where the branch begins. If records were read earlier,
        their rows would replace it. If the lane then died before all branches have a row, it would
        be unknown where the branches without a row begin.
        """
        self._rowless = {branch for branch in self._rowless if branch.tail.durable_ordinal < 0}
        self._is_read, before = not self._rowless, self._is_read
        return self._is_read and not before

    def halt(self) -> None:
        """Drain the other branches after one of them failed."""
        for branch in self.parts:
            if branch.trouble is None and branch.state is CopyState.COPYING:
                branch.drain()

    def drain(self) -> None:
        """Send nothing more. The lane gives the partition back to the driver as soon as
        `is_drained` is True.
        """
        for branch in self.parts:
            branch.note_position()
            branch.drain()

    @property
    def trouble(self) -> PartitionError | None:
        return next((part.trouble for part in self.parts if part.trouble is not None), None)

    @property
    def state(self) -> CopyState:
        return next(
            (part.state for part in self.parts if part.state is not CopyState.COPYING),
            CopyState.COPYING,
        )

    @property
    def wants_fetch(self) -> bool:
        return self.state is CopyState.COPYING and self.intake.position < self.end

    @property
    def is_done(self) -> bool:
        return self.acked_upstream >= self.end and self.is_drained

    @property
    def is_drained(self) -> bool:
        return all(part.is_drained for part in self.parts)

    @property
    def queued_bytes(self) -> int:
        return sum(part.queued_bytes for part in self.parts)

    @property
    def has_unknown_outcomes(self) -> bool:
        return any(part.has_unknown_outcomes for part in self.parts)

    @property
    def acked_ordinal(self) -> int:
        """Number of records that all branches have written to the target."""
        return sum(part.acked_ordinal for part in self.parts)

    @property
    def acked_upstream(self) -> int:
        """All records below this upstream offset are on the target."""
        return min(part.acked_upstream for part in self.parts)

    @property
    def acked_downstream(self) -> int:
        """-1, because no single target offset describes a fan."""
        return -1

    @property
    def acked_records(self) -> int:
        return sum(part.acked_records for part in self.parts)

    @property
    def acked_bytes(self) -> int:
        return sum(part.acked_bytes for part in self.parts)

    @property
    def last_timestamp(self) -> int:
        return max(part.last_timestamp for part in self.parts)

    def is_protected(self, next_timestamp: int, now_ms: int) -> bool:
        return all(part.is_protected(next_timestamp, now_ms) for part in self.parts)


Copy = PartitionCopy | FanOut
"""The copy of one source partition on a lane."""
