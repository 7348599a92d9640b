"""The copy of a partition whose records are transformed (ADR 40).

**Problem.** User code changes and filters the records. It runs in another application, which may
answer late, twice, differently each time, or never. The copy must still append each record that
survives once, in order, and the offset map must contain its source offset.

    source ─fetch─▶ stretches ─ranges─▶ application ─answers─▶ batches ─▶ target
                    (in order)          (any order)            (in order)

An answer is accepted once, and used in the order of the source. Then its batches are ordinary ones:
they get the next ordinals, their map rows are written first, and `PartitionCopy` does the rest.

**Differences from the copy of a raw (untransformed) partition**

1. *Ordinals count output records.* K is still constant, because only this flow writes to the target
   partition. A filtered record is a gap like that of a compacted source.
2. *Each batch announces its last record*, even if no run begins there. A raw start finds its
   position by comparing records, which is impossible here, because a function may return another
   result next time. So the map is the only evidence for a source offset, and a start uses only
   ordinals that the map names (`mirror.start.announced`). Rows have a mark, so that a start gets
   all runs that it may need.
3. *A position is announced* if everything after the last record was filtered (`note_position`): all
   offsets below it were read, and the next record gets the announced ordinal.
4. *The copy never runs while late requests may arrive.* Two raw lanes send the same record under
   the same sequence, so it does not matter whose request the broker accepts. With transforms, the
   map of one lane would describe records of the other lane. So a transformed partition starts only
   after no request of an earlier lane can arrive (`control.lanes.takes.put_off`), and then the map
   and the log are read.

**A failure** of the function ends reading at that record. Everything before it is appended, then
the partition is given back to the driver with the record's offset. With `on-error` quarantine, the
answer lacks the failed record, and is used only after that record is in the dead-letter topic
(`mirror.copy.dead_letters`).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

from twinlog.errors import CorruptData, Fate, PartitionError, TwinlogError
from twinlog.mirror.copy.dead_letters import DeadLetters, DeadLetterTarget
from twinlog.mirror.copy.intake import Aborted
from twinlog.mirror.copy.partition import CopyState, LastRecordsCopy
from twinlog.mirror.copy.range_intake import RangeIntake, Stretch
from twinlog.mirror.copy.ranges import RangeAnswer, SourceRange
from twinlog.mirror.copy.refusals import unreadable_error
from twinlog.mirror.skips import Skip
from twinlog.mirror.start_point import KnownDeadLetters

OPEN_RANGES: Final = 2
"""Number of ranges of a partition that may wait for an answer before further records are collected
in one range. The application runs two rounds at the same time.
"""


class Transformer(Protocol):
    """The application that runs the transforms, as a lane uses it."""

    def offer(self, source_range: SourceRange) -> None:
        """Submit this range to be transformed."""

    def withdraw(self, number: int) -> None:
        """Drop the range with this number, because its answer is no longer needed."""

    def answers(self) -> Iterable[RangeAnswer]:
        """Return the answers that have arrived since the last call. Never blocks."""

    def unanswered(self, after_s: float) -> Iterable[SourceRange]:
        """Return the ranges that have waited for an answer for at least `after_s` seconds since
        their turn came (`lane.sides.range_port`).
        """


class RangeDesk:
    """Numbers the ranges that a lane offers, and passes the first answer to each range to the copy
    that offered it.
    """

    def __init__(self, transformer: Transformer) -> None:
        self._transformer = transformer
        self._numbers = itertools.count()
        self._given: dict[int, TransformedCopy] = {}
        """By number of each range without an answer, the copy that offered it."""

    def offer(self, copy: TransformedCopy, stretch: Stretch) -> int:
        """Offer a stretch of this copy to the transforms' application. Returns the number of its
        range.
        """
        number = next(self._numbers)
        lent = SourceRange(
            number=number,
            topic=copy.source.topic,
            partition=copy.source.partition,
            transform=copy.transform,
            first=stretch.first,
            end=stretch.end,
            batches=b"".join(stretch.batches),
        )
        stretch.batches = [memoryview(lent.batches)]  # the bytes are not stored twice
        self._given[number] = copy
        self._transformer.offer(lent)
        return number

    def withdraw(self, number: int) -> None:
        """Withdraw the range with this number. If an answer to it still arrives, the answer is
        dropped.
        """
        if self._given.pop(number, None) is not None:
            self._transformer.withdraw(number)

    def unanswered(self, after_s: float) -> Iterator[tuple[TransformedCopy, SourceRange]]:
        """Yield (copy, range) for each copy that has waited for the answer to a range for at least
        `after_s` seconds. `range` is the first such range. All ranges of that copy are withdrawn.
        """
        for source_range in self._transformer.unanswered(after_s):
            if (copy := self._given.get(source_range.number)) is not None:
                copy.drop_unsent()
                yield copy, source_range

    def deliver(self, now_ms: int) -> Iterator[TransformedCopy]:
        """Pass each answer that has arrived to the copy that offered the range, and yield that
        copy.

        Answers with an unknown number are dropped. They are second answers to a range, or answers
        to a withdrawn range.
        """
        for answer in self._transformer.answers():
            if answer.number in self._given:
                copy = self._given.pop(answer.number)
                copy.on_answer(answer, now_ms)
                yield copy


class TransformedCopy(LastRecordsCopy):
    """The copy of one transformed partition on one lane."""

    intake: RangeIntake
    intake_class = RangeIntake

    def __init__(
        self,
        *,
        transform: str,
        desk: RangeDesk,
        dead_letters: DeadLetterTarget | None = None,
        **given: Any,
    ) -> None:
        """`given`: the arguments of `PartitionCopy`."""
        there = given["start"].dead_letters
        done = [Skip(first=at, next=at + 1) for at in (() if there is None else there.offsets)]
        super().__init__(**given | {"skips": (*given.get("skips", ()), *done)})
        if self.late_requests or not self.is_ours_alone:
            raise ValueError("a transformed copy needs a topic of its own, and no late requests")
        self.transform = transform
        """Digest of the topic's chain of transforms, in hex."""
        self._desk = desk
        self.dead_letters = (
            None if dead_letters is None else DeadLetters(dead_letters, self, **given)
        )
        """The writer of dead letters, or None if the flow has no dead-letter topic."""
        self._asked: deque[Stretch] = deque()
        """Stretches that were read and have not become batches yet, in order."""
        self._decided = self.intake.position
        """All records below this upstream offset were filtered, or are in batches that were queued
        or sent.
        """
        self._decided_epoch = self.acked_epoch
        self._read_timestamps: deque[tuple[int, int]] = deque()
        """Base offset and timestamp (ms) of source batches that were read, in order, until a record
        of the batch is below `acked_upstream`.
        """
        self._source_timestamp = 0

    @property
    def source_timestamp(self) -> int:
        """Timestamp (ms) of the last source batch that has a record below `acked_upstream`. If this
        copy has not decided any record yet, the timestamp of the next batch, or 0 before it is
        read.

        `last_timestamp` is the timestamp of a record on the target. It does not show how far the
        source was read, because a transform may filter records or change their timestamps.
        """
        read = self._read_timestamps
        while read and read[0][0] < self.acked_upstream:
            self._source_timestamp = read.popleft()[1]
        return self._source_timestamp or (read[0][1] if read else 0)

    # -- batches from the source

    def on_fetched(self, records: memoryview, aborted: Iterable[Aborted], now_ms: int) -> int:
        before = self.queued_bytes
        if self._uses_answers and self.source_trouble is None:
            for stretch in self.intake.read(records, aborted, self.end):
                self._read_timestamps += stretch.timestamps
                self._ask(stretch)
            self.use_answers(now_ms)
        return self.queued_bytes - before

    @property
    def _uses_answers(self) -> bool:
        """Whether answers become batches. An error of the source (`source_trouble`) does not end
        that, because the records before the error must still be sent.
        """
        return self.state is CopyState.COPYING and self.trouble is None

    def _ask(self, stretch: Stretch) -> None:
        """Append a stretch to the queue of stretches, or to the last one in it that still grows."""
        self.queued_bytes += stretch.size
        stretch.answer_itself()
        if len(self._without_answer()) >= OPEN_RANGES:
            stretch.copy_batches()
        if not (self._asked and self._asked[-1].extend(stretch)):
            self._asked.append(stretch)

    def _without_answer(self) -> list[Stretch]:
        return [asked for asked in self._asked if asked.answer is None]

    def _offer(self) -> None:
        """Offer all stretches to the transforms' application, except the last one while OPEN_RANGES
        earlier ones have no answer. Until then the last one grows.
        """
        waiting = self._without_answer()
        if len(waiting) > OPEN_RANGES and waiting[-1] is self._asked[-1]:
            waiting.pop()
        for asked in waiting:
            if asked.number < 0:
                asked.number = self._desk.offer(self, asked)

    def on_answer(self, answer: RangeAnswer, now_ms: int) -> None:
        """Process an answer to a range, or to the first part of a range. Answers may arrive in any
        order.
        """
        asked = next((stretch for stretch in self._asked if stretch.number == answer.number), None)
        if asked is None or not self._uses_answers:
            return
        if answer.is_part and answer.failure is None and asked.first < answer.end < asked.end:
            rest = asked.cut(answer.end)
            rest.answer_itself()
            self._asked.insert(self._asked.index(asked) + 1, rest)
            self.queued_bytes += rest.size
        if not answer.quarantined:
            asked.batches = []
        size = sum(map(len, (*answer.batches, *asked.batches)))
        self.queued_bytes += size - asked.size
        asked.answer, asked.size = answer, size
        self.use_answers(now_ms)

    def use_answers(self, now_ms: int) -> None:
        """Turn answers into batches, in the order of the source, up to the first range without an
        answer.

        An answer waits until the dead letters of its failed records are on the target.
        """
        self.check_dead_letters()
        while self._uses_answers and self._asked and (answer := self._asked[0].answer) is not None:
            asked = self._asked[0]
            try:
                if answer.quarantined and not self._is_quarantined(asked, answer, now_ms):
                    break
                self._asked.popleft()
                self.queued_bytes -= asked.size
                self._queue_results(asked, answer, now_ms)
            except TwinlogError as error:
                self._fail(_unusable_error(self, asked, error))
        if self._uses_answers:
            self._offer()
        self.has_read()

    def _is_quarantined(self, stretch: Stretch, answer: RangeAnswer, now_ms: int) -> bool:
        if self.dead_letters is None:
            raise CorruptData(
                "the result has records for the dead-letter topic, but "
                "twinlog.transforms.on-error is not quarantine"
            )
        return self.dead_letters.are_on_target(stretch, answer, self.acked_upstream, now_ms)

    def check_dead_letters(self) -> None:
        """Stop the copy with the error of its dead letters, if they have one. The lane then returns
        the partition to the driver.
        """
        if (letters := self.dead_letters) is not None:
            self.trouble = self.trouble or letters.trouble
            self.has_unknown_outcomes |= letters.has_unknown_outcomes

    @property
    def known_dead_letters(self) -> KnownDeadLetters | None:
        """The dead letters of source records at or after `acked_upstream`, or None if the flow has
        no dead-letter topic.
        """
        if (letters := self.dead_letters) is None:
            return None
        return letters.known_from(self.acked_upstream)

    def _queue_results(self, stretch: Stretch, answer: RangeAnswer, now_ms: int) -> None:
        for batch in self.intake.encode(stretch, answer):
            self._end_run(batch)  # the run's fingerprint is that of the batch's last record
            self.queue(batch, now_ms, always=True)
            self._decided, self._decided_epoch = batch.upstream_next, stretch.epoch
        if answer.failure is None:
            self._decided, self._decided_epoch = stretch.end, stretch.end_epoch
            return
        at = answer.failure.offset
        if at > stretch.first:
            self._decided, self._decided_epoch = at, stretch.epoch
        error = PartitionError(
            f"{self.source}: the transform fails at upstream record {at}: {answer.failure.text}",
            code="RECORD_NOT_TRANSFORMED",
        )
        error.poison = at, at + 1
        self._fail(error)

    def _fail(self, error: TwinlogError) -> None:
        """Stop reading because of this error. Batches that were already made of answers are still
        sent.
        """
        # an earlier error is about later records, which are read again
        self.source_trouble = error
        self.drop_unsent()

    def drop_unsent(self) -> None:
        """Drop all stretches and answers that have not become batches, and withdraw the ranges of
        the stretches.
        """
        for asked in self._asked:
            self.queued_bytes -= asked.size
            self._desk.withdraw(asked.number)
        self._asked.clear()
        if self.dead_letters is not None:
            self.dead_letters.stop_sending()

    def _acknowledge_what_was_read(self) -> None:
        """If every batch is on the target, advance `acked_upstream` past the filtered records and
        markers after the last one.
        """
        if self.is_idle and self._decided >= self.acked_upstream:
            self.acked_upstream, self.acked_epoch = self._decided, self._decided_epoch

    # -- batches to the target

    @property
    def is_drained(self) -> bool:
        is_answered = not self._asked or self.state is not CopyState.COPYING
        is_quarantined = self.dead_letters is None or not self.dead_letters.in_flight
        return super().is_drained and is_answered and is_quarantined

    def drain(self) -> None:
        super().drain()
        self.drop_unsent()


def _unusable_error(copy: TransformedCopy, stretch: Stretch, error: TwinlogError) -> TwinlogError:
    """Return the error with which a partition stops if the answer for `stretch` cannot be used."""
    if not isinstance(error, CorruptData):
        return unreadable_error(error, copy.source, stretch.first)
    return PartitionError(
        f"{copy.source}: the result of the transforms for source offsets "
        f"[{stretch.first}, {stretch.end}) cannot be used: {error.message}",
        code="TRANSFORM_UNAVAILABLE",
        fate=Fate.RETRIABLE,
    )
