"""The exactly-once append: what a partition may send now, and what each Produce response means.

**Problem.** A copy must append each record of the source once, in order, although lanes and
connections die at any moment, and although no query shows whether a broker has processed a
request. Kafka's idempotent producer solves this within the life of one producer. A copy needs it
across lanes, processes and days.

**Compare-and-append.** All lanes of a flow use one producer ID, and a record's sequence is its
ordinal: the number of records that the flow wrote to the partition before it (mod 2^31). A broker
accepts a batch only if its sequence follows the last one of that ID. So the broker compares the
number of records in its log with the number that the sender expects, and appends only if they are
equal:

    the broker has records up to ordinal 99 of this producer ID

    batch       broker                                   here
    100..109    appends, returns the base offset         K is checked: the offset must be K + 100
    90..99      a repeat: returns its first base offset  `_is_repeat`: another lane wrote it
    105..114    OUT_OF_ORDER_SEQUENCE_NUMBER             `SEQUENCE_REFUSED`: read the log again
    any         appends, if it has forgotten the ID      see "Protected or not"

**Invariants**

1. Every lane that copies a partition writes the same records under the same sequences (ordinal mod
   2^31) and the same producer ID.
2. In a topic to which only this flow writes, `K = target offset - ordinal` is constant as long as a
   lane copies the partition. Every Produce response is checked against it: a lower offset means
   that records are missing (`GAP_WRITTEN`), a higher one that another client wrote
   (`EXTRA_RECORDS`).
3. A batch is sent only after the offset map has the runs that begin in it (`lane.map_writer`).
4. After *any* error response, nothing more is sent until all requests in flight have been answered.
   Then the partition is started again (`mirror.start.position`): the state of the target's log is
   read from the log, never remembered.

**Protected or not.** A broker expires a producer ID when the *timestamp* of its last record is
older than `producer.id.expiration.ms` (one day by default). Each replica does so independently. A
partition is protected while the broker certainly remembers the ID. Compare-and-append works only
then, so a copy of old records is often unprotected. `_window` therefore limits the batches in
flight:

- 1 until the first clean response after a start (the first request goes alone);
- 1 while the partition is unprotected and either had a problem within the last 60 s, or the target
  topic may reject single records, or other clients may write to the topic;
- else `PIPELINE`, and more on a long link (`lane.sides.target_side`). A broker appends the requests
  of one connection in order.

With one batch in flight, a rejected batch cannot be followed by an accepted one, so no gap can
arise.

**A lost response.** If a connection breaks, the outcome of everything in flight is unknown
(`on_disconnected`). The partition drains and goes back to the driver. The driver's message to the
next lane (`lane.messages.Take`) states for how long these requests may still arrive. The next start
reads the target's log. For each batch that was in flight, there are three cases:

- *The batch is on the target.* The log's end shows that, and the copy resumes after it.
- *The batch arrives later.* It has the same first record and the same sequence as the next batch of
  the new copy. The broker appends the batch that arrives first, and rejects the second one or
  answers it as a repeat. After either response, the log is read again.
- *The batch never arrives.* The new copy sends the same records.

If the broker may have forgotten the ID, or may forget it after the batch, the second case would
append records twice. So such a batch is held back until the lost lane has certainly stopped, or
until its requests have certainly arrived. Then the log is read again (`target_log`, code
`HELD_BACK`).

**Limits.** All of this needs a target whose brokers reject a gap in the sequence, recognize a
repeat, and let a new producer ID begin at any sequence. A probe tests that at each start of a flow.
If the target lacks any of the three, or the probe is not permitted, a lost response may cause
duplicates, and the flow's guarantee is `at least once` (`survey.capabilities`).

**Rejected:** to send a failed batch again on the same lane. That decision needs the log's end, the
newest map, and whether another lane wrote, so it would repeat the work of a start with less
evidence (ADR 3). The only exception is a batch that the target rejects as too large, because it was
certainly not appended (`batch_sizes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from twinlog.errors import PartitionError, TwinlogError
from twinlog.mirror.copy import refusals
from twinlog.mirror.copy.batch_sizes import Splitter, join_small
from twinlog.mirror.copy.intake import Aborted, Intake, OutBatch
from twinlog.mirror.copy.refusals import rank, refusal
from twinlog.mirror.copy.target_log import EarlierLane, OtherWriters, TargetLeader
from twinlog.mirror.copy.timings import TimingSum
from twinlog.mirror.map.map_tail import MapTail
from twinlog.mirror.map.offset_map import Mark, Run
from twinlog.mirror.skips import Skip
from twinlog.mirror.start_point import CopyRules, StartPoint
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.produce import ProducedPartition
from twinlog.wire.records import fingerprint, first_record

PIPELINE: Final = 16
TROUBLE_MS: Final = 60_000
"""Time (ms) after a problem during which an unprotected partition has only one batch in flight."""
QUIET_MS: Final = 100
"""If the last response is older than this many ms, the target may have forgotten the producer ID in
the meantime. So an unprotected partition then sends its next batch alone.
"""
CLOCKS_MS: Final = 900_000
"""Maximum difference (ms) that is assumed between a broker's clock and the local clock."""
FUTURE_MS: Final = 1_800_000
"""Timestamps further in the future than this may be rejected. The value is half the default of
message.timestamp.after.max.ms.
"""


class CopyState(StrEnum):
    STARTING = "STARTING"
    COPYING = "COPYING"
    DRAINING = "DRAINING"
    TAKEN_OVER = "TAKEN_OVER"


class PartitionCopy:
    """The copy of one partition on one lane, from its start point until the lane gives the
    partition back to the driver.
    """

    intake_class: type[Intake] = Intake

    def __init__(  # noqa: PLR0913 (keyword-only)
        self,
        *,
        source: TopicPartition,
        target: TopicPartition,
        source_topic_id: TopicId,
        target_topic_id: TopicId,
        rules: CopyRules,
        start: StartPoint,
        tail: MapTail,
        end: int,
        limit_bytes: int,
        may_reject_records: bool = False,
        last_run: Run | None,
        now_ms: int,
        has_log_append_time: bool | None = False,
        late_requests: bool = False,
        old_lane: bool = False,
        skips: Sequence[Skip] = (),
    ) -> None:
        self.source = source
        self.target = target
        self.source_topic_id = source_topic_id
        self.target_topic_id = target_topic_id
        self.tail = tail
        self.end = end
        """First upstream offset that must not be copied, or 2^63-1 if the copy has no end (without
        `--once`).
        """
        self.state = CopyState.TAKEN_OVER if start.taken_over else CopyState.COPYING
        self.intake = self.intake_class(
            position=start.upstream,
            ordinal=start.ordinal,
            k=start.k,
            last_run=last_run,
            producer_id=rules.producer_id,
            isolation=rules.isolation,
            limit_bytes=limit_bytes,
            recompression=rules.recompression,
            join_bytes=0 if may_reject_records else rules.join_bytes,
            last_fetched_epoch=start.last_fetched_epoch,
            skips=skips,
        )
        self.acked_ordinal = start.ordinal
        self.acked_upstream = start.upstream
        self.acked_downstream = start.k + start.ordinal
        self.acked_epoch = start.last_fetched_epoch
        """Source leader epoch of offset `acked_upstream` - 1, or -1 if unknown."""
        self.acked_records = 0
        self.acked_bytes = 0
        self.ages, self.latencies = TimingSum(), TimingSum()
        """Ages of batches when they were read, and latencies of acknowledged batches."""
        self.queued_bytes = 0
        self.in_flight_bytes = 0
        """The part of `queued_bytes` that is in flight."""
        self.pipeline = PIPELINE
        """Number of batches that may be in flight if nothing limits them to one."""
        self.last_timestamp = start.last_timestamp
        self.trouble: PartitionError | None = None
        """The first problem of writing to the target, or a later one that is worse
        (`refusals.rank`). If set, nothing more is sent. After the copy has drained, the next start
        checks the target's log.
        """
        self.source_trouble: TwinlogError | None = None
        """The error that has stopped reading. Records read before it are still sent."""
        self.others = OtherWriters(has_other_flow=start.has_company)
        self.has_unknown_outcomes = False
        """Whether requests of this lane whose response was lost may still be on their way to the
        target.
        """
        self.late_requests = late_requests
        """Whether requests of an earlier lane may have arrived since the start read the log."""
        self._earlier = EarlierLane(late_requests=late_requests, may_live=old_lane)
        self._rules = rules
        self._may_reject_records = may_reject_records
        self._k = start.k
        self._has_log_append_time = has_log_append_time
        self.is_listed = start.is_protected
        """Whether the target knows the flow's producer ID: its leader listed the ID at the start,
        or has accepted a batch since then.
        """
        self._is_proven, self._answered_ms = False, 0
        self._noted: Run | None = None
        self.leader = TargetLeader(start.target_epoch)
        self._trouble_until_ms = now_ms + TROUBLE_MS
        self._begins_at = start.ordinal
        # no batch is sent before the first row of a cold start is durable, because that row fixes
        # where the copy began
        self._first_row_ordinal = (
            tail.runs[0].ordinal if tail.durable_ordinal < 0 and tail.runs else -1
        )
        self._queue: deque[OutBatch] = deque()
        self._in_flight = InFlight()
        self._splitter = Splitter(rules.producer_id)
        self._waiting_below = start.ordinal

    # -- batches from the source

    def on_fetched(self, records: memoryview, aborted: Iterable[Aborted], now_ms: int) -> int:
        """Queue the batches of a Fetch response. Returns the number of bytes that were queued."""
        before = self.queued_bytes
        batches = self.intake.take(records, aborted, self.end)
        if self.intake.join_bytes and len(batches) > 1:
            batches = join_small(
                batches,
                target_bytes=self.intake.join_bytes,
                limit_bytes=self.intake.limit_bytes,
                producer_id=self._rules.producer_id,
            )
        for batch in batches:
            self.queue(batch, now_ms)
        self.has_read()
        return self.queued_bytes - before

    def queue(self, batch: OutBatch, now_ms: int, *, always: bool = False) -> None:
        """Queue a batch, and announce its runs to the offset map. The batch is sent when their rows
        are durable. `always`: announce a run even if it continues the one before.
        """
        is_small = len(batch.data) <= self._splitter.most_bytes
        for part in (batch,) if is_small else self._splitter.parts(batch):
            self._queue_one(part, always=always)
        self.ages.add(now_ms, batch.max_timestamp)

    def _queue_one(self, batch: OutBatch, *, always: bool) -> None:
        for run in batch.runs:
            self.tail.announce(run, batch.fingerprint, always=always)
        is_first = batch.ordinal == self._begins_at
        if is_first and not batch.runs and self.tail.durable_ordinal < self._first_row_ordinal:
            # If another lane writes first, the target has a different record at this ordinal. The
            # map row of this run has the fingerprint of this copy's record, so the next start
            # detects the difference.
            run = Run(batch.ordinal, batch.upstream, self._k + batch.ordinal)
            self.tail.announce(run, fingerprint(first_record(batch.data)), always=True)
        self._queue.append(batch)
        self.queued_bytes += len(batch.data)

    def waiting_batches(self) -> Iterator[OutBatch]:
        """Yield the batches that were already in memory at the last call."""
        for batch in (*self._in_flight, *self._queue):
            if batch.ordinal >= self._waiting_below:
                break
            yield batch
        self._waiting_below = self.intake.ordinal

    def has_read(self) -> None:
        """Finish a Fetch response: drop the queue if the copy has stopped. Request the copy's first
        map row if batches wait for it. Advance `acked_upstream` if nothing is left to send.
        """
        if self.state is not CopyState.COPYING:
            # these batches are not sent; the next lane reads their records again, from
            # `acked_upstream` on
            self.queued_bytes -= drop(self._queue)
        elif self._queue and self.tail.durable_ordinal < self._first_row_ordinal:
            self.tail.dirty = True
        self._acknowledge_what_was_read()

    def _acknowledge_what_was_read(self) -> None:
        """If every record that was read is on the target, advance `acked_upstream` past the markers
        and aborted records after the last one.
        """
        if self.is_idle and self.intake.position >= self.acked_upstream:
            self.acked_upstream = self.intake.position
            self.acked_epoch = self.intake.last_fetched_epoch

    @property
    def is_ours_alone(self) -> bool:
        """Whether only this flow writes to the target topic."""
        return self._rules.is_ours_alone

    @property
    def parts(self) -> tuple[PartitionCopy, ...]:
        """The parts that are written separately: this copy, or the branches of a `FanOut`."""
        return (self,)

    @property
    def wants_fetch(self) -> bool:
        return self.state is CopyState.COPYING and self.intake.position < self.end

    @property
    def is_done(self) -> bool:
        """Whether everything below `end` is on the target."""
        return self.acked_upstream >= self.end and self.is_drained

    # -- batches to the target

    @property
    def is_drained(self) -> bool:
        """Whether nothing is in flight, and nothing that was read is still to be sent."""
        return not self._in_flight and (not self._queue or self.state is not CopyState.COPYING)

    @property
    def is_idle(self) -> bool:
        """Whether every record that was read is on the target, that is, no batch is queued, in
        flight or rejected. False after any trouble: a batch that was rejected, or got no response,
        is not queued any more either, but may be missing on the target.
        """
        is_copying = self.state is CopyState.COPYING and self.trouble is None
        return is_copying and not (self._queue or self._in_flight or self._splitter.refused)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def waits_for_map(self) -> bool:
        """Whether the next batch waits until a row of the offset map is durable. Without a batch:
        whether the first row, or the last one of a draining copy, must still become durable.
        """
        if self._queue:
            return self.tail.durable_ordinal < self._ordinal_to_announce(self._queue[0])
        is_leaving = self.state is CopyState.DRAINING
        return self.tail.dirty and (is_leaving or self.tail.durable_ordinal < 0)

    def _ordinal_to_announce(self, batch: OutBatch) -> int:
        """Return the ordinal up to which the offset map's runs must be durable before this batch is
        sent.
        """
        return batch.runs[-1].ordinal if batch.runs else self._first_row_ordinal

    def next_batch(self, now_ms: int) -> OutBatch | None:
        """Return the next batch and count it as in flight, or None if none may be sent now."""
        if not self.is_ready:
            return None
        batch = self._queue[0]
        if self.leader.needs_check:
            self.stop(self.leader.trouble(self.target), now_ms)
            return None
        if (
            self.tail.durable_ordinal < self._ordinal_to_announce(batch)
            or self.others.unknown is not None
        ):
            return None
        if self.late_requests and self._is_held_back(batch.oldest_timestamp, now_ms):
            return None
        if not self._in_flight:
            self._send_alone_after_pause(now_ms)
        elif len(self._in_flight) >= self._window(batch, now_ms):
            return None
        self._queue.popleft()
        batch.sent += 1
        self._in_flight.sent(batch)
        self.in_flight_bytes += len(batch.data)
        return batch

    def _is_held_back(self, oldest: int, now_ms: int) -> bool:
        """Return True if the next batch must wait because of requests of an earlier lane.

        The queue is then dropped, because it would take memory during the wait. Its records are
        read again after the next start.
        """
        is_old = not self._rules.is_remembered_after(oldest, now_ms)
        if self.is_protected(oldest, now_ms) or not self._earlier.holds_back(is_old=is_old):
            return False
        self.queued_bytes -= drop(self._queue)
        self.state = CopyState.STARTING
        self._refuse_when_due()
        return True

    def on_earlier_lane_ended(self, *, is_over: bool) -> None:
        """Process the end of the earlier lane: it sends nothing more, so a held-back batch may be
        due for the next check of the log.

        `is_over`: the requests that it has sent can no longer arrive either.
        """
        self._earlier.on_ended(is_over=is_over)
        self._refuse_when_due()

    def _refuse_when_due(self) -> None:
        if self.state is CopyState.STARTING and self._earlier.may_be_checked:
            self.trouble = self.trouble or refusals.unchecked_log_error(self.target)

    def on_new_connection(self) -> None:
        """Let the next request go alone, because the connection is new. Must be called with nothing
        in flight.
        """
        self._is_proven = False

    @property
    def is_ready(self) -> bool:
        """Whether `next_batch` may return a batch."""
        rests = self.trouble is not None or bool(self._splitter.refused)
        return bool(self._queue) and not rests and self.state is CopyState.COPYING

    def _send_alone_after_pause(self, now_ms: int) -> None:
        """Let the next batch go alone if the target may have forgotten the producer ID since the
        last response. Must be called with nothing in flight.

        Such a target could reject one batch and still append the batch after it, which would leave
        a gap.
        """
        is_quiet = abs(now_ms - self._answered_ms) > QUIET_MS
        if is_quiet and not self.is_protected(self.last_timestamp, now_ms):
            self._is_proven = False

    def _window(self, batch: OutBatch, now_ms: int) -> int:
        if not self._is_proven:
            return 1
        oldest = newest = batch.max_timestamp
        if self._in_flight:
            oldest = min(oldest, self._in_flight.oldest)
            newest = max(newest, self._in_flight.newest)
        if self.is_protected(oldest, now_ms):
            return self.pipeline
        # Nothing may be in flight after a batch that may be rejected. The same applies in a topic
        # to which other clients write: K (target offset minus ordinal) grows with their records, so
        # the next batch's offset does not show that a batch is missing.
        may_be_refused = (
            self._may_reject_records or newest > now_ms + FUTURE_MS or not self.is_ours_alone
        )
        if self._in_flight:
            may_be_refused |= self._rules.is_remembered_after(self._in_flight.newest, now_ms)
        return 1 if may_be_refused or now_ms < self._trouble_until_ms else self.pipeline

    def is_protected(self, next_timestamp: int, now_ms: int) -> bool:
        """Return True if compare-and-append works: the broker has the state of the producer ID, and
        does not expire it after a batch with this timestamp.
        """
        oldest = min(self.last_timestamp, next_timestamp)
        return self.is_listed and self._rules.is_remembered_after(oldest, now_ms)

    # -- the target's responses

    def on_produced(self, answer: ProducedPartition, now_ms: int) -> None:
        """Process the response to the oldest batch in flight."""
        batch, error = self._in_flight.popleft(), answer.error
        self.queued_bytes -= len(batch.data)
        self.in_flight_bytes -= len(batch.data)
        if self.trouble is not None and error:
            return  # an earlier response has already stopped the copy, so this error adds nothing
        if error:
            what = f"{self.target}: the batch at upstream offset {batch.upstream} of {self.source}"
            refused = refusal(what, self.target, batch, answer)
            if self._splitter.keeps(batch, error, refused):
                self._send_again(now_ms)
            else:
                self.stop(refused, now_ms)
            return
        distance = answer.base_offset - (self._k + batch.ordinal)
        # repeats are detected before K is checked: an earlier lane may have written its batch at
        # any offset, and with other records than this lane's
        is_repeat = self._is_repeat(answer.log_append_time_ms, batch, now_ms)
        if is_repeat or (self._splitter.refused and not distance):
            self.stop(refusals.other_writer_error(self.target, batch), now_ms)
        elif distance:
            self._off_by(batch, distance, now_ms)
        else:
            self._clean(batch, answer.base_offset, now_ms)

    def _send_again(self, now_ms: int) -> None:
        """Split the rejected batches, and queue their parts before all other batches. Does nothing
        while a batch is in flight, because its response may reject it as well.
        """
        if self._in_flight or self.state is not CopyState.COPYING:
            return
        parts, reason = self._splitter.cut()
        for batch in self._queue:
            self.queued_bytes -= len(batch.data)
            parts += self._splitter.parts(batch)
        self._queue = deque(parts)
        self.queued_bytes += sum(len(batch.data) for batch in parts)
        if reason is not None or not self._announce_again(parts):
            self.stop(reason or refusals.unchecked_log_error(self.target), now_ms)
        # from now on the topic counts as one that may reject batches, so nothing is joined
        self._is_proven, self._may_reject_records, self.intake.join_bytes = False, True, 0

    def _announce_again(self, _parts: Sequence[OutBatch]) -> bool:
        """Announce the runs that split batches need in the map. Return False if their chunk is no
        longer in memory. A copy of a whole partition needs none.
        """
        return True

    def _clean(self, batch: OutBatch, base_offset: int, now_ms: int) -> None:
        self.acked_ordinal = batch.ordinal + batch.count
        self.acked_upstream = batch.upstream_next
        self.acked_downstream = base_offset + batch.count
        self.acked_records += batch.count
        self.acked_bytes += len(batch.data)
        self.acked_epoch = batch.leader_epoch
        self.last_timestamp = batch.max_timestamp
        self.latencies.add(now_ms, batch.max_timestamp)
        self._is_proven = self.is_listed = True
        self._answered_ms = now_ms
        if self.is_ours_alone:
            # A start gets only a part of a large map's runs, but all from the map's mark on. So the
            # mark moves with each response.
            self.tail.mark = Mark(self.acked_ordinal, self.acked_downstream)
        if not self._in_flight:
            self._acknowledge_what_was_read()

    def _is_repeat(self, log_append_time_ms: int, batch: OutBatch, now_ms: int) -> bool:
        """Return True if the target already had a batch of these sequences, sent by another lane.

        With CreateTime, the response to an append has the time -1. The response to a repeat has the
        newest timestamp of the batch *in the log*. It may be older or newer than this batch's,
        because the logged batch may contain other records. So any time but -1 means a repeat, by
        another lane if this lane has sent the batch only once.

        Two kinds of repeats are not detected: with LogAppendTime both responses have the time of
        the broker's clock, and a batch without timestamps has -1 in both. In both
        cases nothing is sent until all requests that could be repeated have certainly arrived.
        """
        if log_append_time_ms == -1:
            # the response shows CreateTime, whatever the configs are
            self._has_log_append_time = False
            return False
        if self._has_log_append_time is not None:
            return not self._has_log_append_time and batch.sent == 1
        # the topic's configs are unknown. The response to an append has the broker's current time
        # or -1 (returned above), so a time that is not near now shows a repeat
        is_now = abs(log_append_time_ms - now_ms) < CLOCKS_MS
        return not is_now or log_append_time_ms <= batch.max_timestamp

    def _off_by(self, batch: OutBatch, distance: int, now_ms: int) -> None:
        begin = self._k + batch.ordinal
        if distance < 0:
            runs = self.tail.runs
            gap = refusals.gap_error(self.source, self.target, batch, begin, -distance, runs)
            self.stop(gap, now_ms)
        elif self._rules.is_ours_alone:
            self.stop(refusals.foreign_error(self.target, batch, begin, distance), now_ms)
        elif self._splitter.refused:
            self.stop(refusals.other_writer_error(self.target, batch), now_ms)
        else:
            self._shift(batch, distance, now_ms)

    def _shift(self, batch: OutBatch, distance: int, now_ms: int) -> None:
        # Another client wrote to this partition, so the offset map gets the actual offset of the
        # record. Unless another Twinlog flow is known to write here, nothing more is sent until the
        # writer is known.
        begin = self._k + batch.ordinal
        self._k += distance
        self.intake.shift(distance)
        self.tail.shift(Run(batch.ordinal, batch.upstream, begin + distance), distance)
        self._clean(batch, begin + distance, now_ms)
        self.others.note_foreign(begin, begin + distance, batch.ordinal)

    def stop(self, error: PartitionError, now_ms: int) -> None:
        """Send nothing more because of this error. After the copy has drained, the next start
        checks the target's log.
        """
        if self.trouble is None or rank(error) > rank(self.trouble):
            self.trouble = error
        self._trouble_until_ms = now_ms + TROUBLE_MS

    # -- draining and marks

    def set_expiry(self, rules: CopyRules) -> None:
        """Apply a changed producer ID expiry of the target."""
        self._rules = replace(self._rules, producer_expiry_ms=rules.producer_expiry_ms)

    def on_disconnected(self, error: PartitionError, now_ms: int) -> None:
        """Stop after a broken connection. The outcome of everything in flight is unknown, so the
        next start checks the target's log.
        """
        self.has_unknown_outcomes |= bool(self._in_flight)
        self.queued_bytes -= drop(self._in_flight)
        self.in_flight_bytes = 0
        self.stop(error, now_ms)

    def drain(self) -> None:
        """Send nothing more. The lane gives the partition back to the driver as soon as
        `is_drained` is True.
        """
        # the state TAKEN_OVER does not change, so that it is reported to the next lane
        if self.state is not CopyState.TAKEN_OVER:
            self.state = CopyState.DRAINING
        self.queued_bytes -= drop(self._queue)

    def note_position(self) -> None:
        """Write to the map how far the source was read after the last copied record, if nothing is
        left to send.

        The reason: if the source deletes the markers and aborted records before that position, they
        must not count as lost.
        """
        run = Run(self.acked_ordinal, self.acked_upstream, self._k + self.acked_ordinal)
        if self.is_idle and self.tail.runs and not run.continues(self.tail.runs[-1]):
            self.tail.announce(run, None)
            self._noted = run

    @property
    def has_undurable_position(self) -> bool:
        """Whether the row of the last `note_position` is not durable yet."""
        is_last = self._noted is not None and self.tail.runs[-1:] == [self._noted]
        return is_last and self.tail.durable_ordinal < self.acked_ordinal

    def mark(self, *, at_rest: bool = False) -> Mark:
        """Return the mark for the map: all of this flow's records are below its target offset
        (`mirror.map.offset_map.Mark`).

        `at_rest`: the copy is drained and sends nothing more, so the mark may be final.
        """
        if self.others.unknown is not None and self.tail.mark is not None:
            # keep the old mark: the records of the unknown writer may be repeats of this flow's
            # records, and a start does not read what is below a mark
            return self.tail.mark
        is_quiet = not (self.has_unknown_outcomes or self.late_requests)
        reached = self.others.mark_above(self.acked_downstream, moves=self.is_idle and is_quiet)
        return Mark(self.acked_ordinal, reached, at_rest and is_quiet and not self._in_flight)


class LastRecordsCopy(PartitionCopy):
    """A copy that announces the last record of each batch to the offset map, because a start looks
    up its position there (`fan_out`, `transformed`).
    """

    # the log may end after any part of a split batch, so the last record of each part is announced

    def _queue_one(self, batch: OutBatch, *, always: bool) -> None:
        self._end_run(batch)
        super()._queue_one(batch, always=always)

    def _announce_again(self, parts: Sequence[OutBatch]) -> bool:
        for batch in parts:
            run = self._end_run(batch)
            if run is not None and not self.tail.insert(run):
                return False
        return True

    def _end_run(self, batch: OutBatch) -> Run | None:
        """Add a run of the offset map for the last record of a batch, and return the run. Return
        None if a run already begins there.
        """
        at = batch.next_ordinal - 1
        if batch.runs and batch.runs[-1].ordinal == at:
            return None
        run = Run(at, batch.upstream_at(batch.count - 1), self._k + at)
        batch.runs = (*batch.runs, run)
        return run


class InFlight(deque[OutBatch]):
    """Batches in flight, in the order in which they were sent."""

    oldest = newest = 0
    """Oldest and newest timestamp (ms) of the batches that were sent after the last moment with
    nothing in flight.
    """

    def sent(self, batch: OutBatch) -> None:
        stamp = batch.max_timestamp
        if not self:
            self.oldest = self.newest = stamp
        elif stamp < self.oldest:
            self.oldest = stamp
        elif stamp > self.newest:
            self.newest = stamp
        self.append(batch)


def drop(batches: deque[OutBatch]) -> int:
    """Remove all batches and return the number of bytes freed."""
    freed = sum(len(batch.data) for batch in batches)
    batches.clear()
    return freed
