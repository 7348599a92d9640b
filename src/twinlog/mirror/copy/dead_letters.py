"""The dead-letter topic of a flow, to which records are written once if a transform fails (ADR 40).

**Problem.** A record on which user code fails is written to a topic on the target, and the copy
continues after the record. The lane may die between these two steps, or lose the response to the
first one. The next lane must know whether the record is in the dead-letter topic, even if the
function does not fail for the record any more. Otherwise the record would be in both topics.

    answer       records 100, 102, 103; the function fails for 101
    1. append 101 to the dead-letter topic, and wait for the response
    2. use the answer: row of the map, batch 100, 102, 103
    3. the position is 104

**Rules**

1. The answer for a range (`mirror.copy.ranges`) is used only after the dead letters of its failed
   records are acknowledged. So the position of a later start is after a failed record only if the
   record is in the dead-letter topic.
2. A dead letter is sent once. After an error or a lost response the partition is given back to the
   driver. A transformed partition starts again only after no request of an earlier lane can arrive
   (rule 4 of `mirror.copy.transformed`).
3. That start reads the dead letters of the partition from the target (`lane.cold_starts`), up to
   the end of the log, which may be above the high watermark. Records at or after the position that
   have a dead letter are left out of the copy, so the function never gets them again.

No sequences are needed, because by rule 2 no two requests with the same record can arrive. So all
partitions of a flow share one log, in which the order of batches does not matter. Sequences would
not even help: a dead letter has the timestamp of its record, so a broker may forget the producer ID
after an old one.

A dead letter belongs to one copy: one source topic and one target topic, both by ID. If one of them
is created again, a new copy begins, which ignores the earlier dead letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from twinlog.errors import CorruptData
from twinlog.mirror.copy.intake import OutBatch
from twinlog.mirror.copy.partition import CopyState, PartitionCopy
from twinlog.mirror.copy.range_intake import Stretch, checked
from twinlog.mirror.copy.ranges import RangeAnswer, RangeFailure
from twinlog.mirror.map.map_tail import MapTail
from twinlog.mirror.start_point import KnownDeadLetters, StartPoint
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, decode_batch, encode_batch

_CONNECT: Final = "__connect.errors."
_OWN: Final = "twinlog."
_ORIGIN: Final = (
    f"{_CONNECT}connector.name",
    f"{_OWN}topic.id",
    f"{_OWN}target.topic.id",
    f"{_CONNECT}partition",
)
_OFFSET: Final = f"{_CONNECT}offset"
_CLASS: Final = re.compile(r"[\w.$]+")
MOST_CHARACTERS: Final = 1_000
"""Maximum length of the error text, which comes from the process that runs user code."""


class LetterOrigin(NamedTuple):
    """The identity of a partition's copy, as in the headers of dead letters."""

    flow: str
    source_topic_id: str
    target_topic_id: str
    partition: str


class DeadLetterTarget(NamedTuple):
    """The partition to which dead letters of a flow are written."""

    home: TopicPartition
    topic_id: TopicId
    flow: str


def origin_of_copy(
    flow: str, source: TopicPartition, source_id: TopicId, target_id: TopicId
) -> LetterOrigin:
    return LetterOrigin(flow, str(source_id), str(target_id), str(source.partition))


def dead_letter(
    record: Record, failure: RangeFailure, origin: LetterOrigin, source: TopicPartition
) -> Record:
    """Return the record with headers that contain its origin and the error, like those of Kafka
    Connect's dead letter queue.
    """
    text = failure.text[:MOST_CHARACTERS]
    raised = _CLASS.match(text)
    said = {
        "topic": source.topic,
        "partition": origin.partition,
        "offset": str(record.offset),
        "connector.name": origin.flow,
        "stage": "TRANSFORMATION",
        "class.name": failure.transform,
        "exception.class.name": "" if raised is None else raised[0],
        "exception.message": text,
    }
    ours = {
        **{_CONNECT + name: value for name, value in said.items()},
        f"{_OWN}topic.id": origin.source_topic_id,
        f"{_OWN}target.topic.id": origin.target_topic_id,
    }
    headers = tuple((name, value.encode()) for name, value in ours.items())
    return record._replace(offset=0, headers=(*record.headers, *headers))


def origin_of_letter(record: Record) -> tuple[LetterOrigin, int] | None:
    """Return the partition copy that wrote a dead letter, and the failed record's source offset.
    Return None if the record is no dead letter.
    """
    # if headers have equal names, the last one counts, because Twinlog appends its headers
    said: Mapping[str, bytes | None] = dict(record.headers)
    try:
        parts = [(said[name] or b"").decode() for name in _ORIGIN]
        return LetterOrigin(*parts), int(said[_OFFSET] or b"")
    except (KeyError, ValueError):
        return None


class DeadLetters(PartitionCopy):
    """The dead letters of one source partition that are being written to the target.

    To the lane's writing side (`lane.sides.target_side`), this is a copy whose batches have one
    record and need no rows in the offset map.
    """

    def __init__(self, to: DeadLetterTarget, copy: PartitionCopy, **given: Any) -> None:
        """`copy`: the copy of the source partition. `given`: the arguments with which `copy` was
        created. `given["start"]` has the dead letters that are already on the target.
        """
        there: KnownDeadLetters | None = given["start"].dead_letters
        epoch = there.epoch if there is not None and there.topic_id == to.topic_id else -1
        super().__init__(
            source=copy.source,
            target=to.home,
            source_topic_id=copy.source_topic_id,
            target_topic_id=to.topic_id,
            rules=replace(given["rules"], producer_id=-1, is_ours_alone=False),
            start=StartPoint(
                ordinal=0,
                upstream=0,
                k=0,
                last_fetched_epoch=-1,
                is_protected=False,
                last_timestamp=-1,
                target_epoch=epoch,
            ),
            tail=MapTail(key=copy.tail.key, topic=copy.source.topic, term=copy.tail.term),
            end=copy.end,
            limit_bytes=given["limit_bytes"],
            last_run=None,
            now_ms=given["now_ms"],
            has_log_append_time=True,  # so that no response counts as a repeat
        )
        self.origin = origin_of_copy(
            to.flow, copy.source, copy.source_topic_id, copy.target_topic_id
        )
        self.on_target = set(() if there is None else there.offsets)
        """Source offsets of the dead letters on the target, except those below the position that
        was passed last to `are_on_target`.
        """

    def are_on_target(
        self, stretch: Stretch, answer: RangeAnswer, position: int, now_ms: int
    ) -> bool:
        """Return True if the dead letters of `answer` are on the target. The first call for
        `stretch`, the source records that `answer` is for, sends them. `position`: dead letters
        below this source offset are forgotten, because no start needs them any more.
        """
        if not stretch.is_quarantined:
            self.on_target = {at for at in self.on_target if at >= position}
            checked(stretch, answer)
            (batches,) = stretch.batches
            # all failed records are found before a dead letter is sent
            records = [*failed_records(batches, answer.quarantined)]
            for record, failure in zip(records, answer.quarantined, strict=True):
                self.queue(self._batch(record, failure), now_ms)
            stretch.is_quarantined = True
        return self.is_idle

    def known_from(self, position: int) -> KnownDeadLetters:
        """Return the dead letters at or after `position`, the source offset at which the next lane
        continues.
        """
        left = sorted(at for at in self.on_target if at >= position)
        return KnownDeadLetters(self.target_topic_id, self.leader.checked_epoch, tuple(left))

    def _batch(self, record: Record, failure: RangeFailure) -> OutBatch:
        letter = dead_letter(record, failure, self.origin, self.source)
        batch = OutBatch(
            ordinal=self.intake.ordinal,
            count=1,
            data=memoryview(encode_batch([letter], codec=Codec.LZ4)),
            upstream=record.offset,
            upstream_next=record.offset + 1,
            runs=(),
            fingerprint=None,
            max_timestamp=record.timestamp,
            oldest_timestamp=record.timestamp,
            leader_epoch=-1,
        )
        self.intake.ordinal += 1
        return batch

    def _off_by(self, batch: OutBatch, distance: int, now_ms: int) -> None:
        # any offset is valid, because other partitions write to the dead-letter topic, too
        self._clean(batch, self._k + batch.ordinal + distance, now_ms)

    def _clean(self, batch: OutBatch, base_offset: int, now_ms: int) -> None:
        super()._clean(batch, base_offset, now_ms)
        self.on_target.add(batch.upstream)

    def stop_sending(self) -> None:
        """Drain, so that no dead letter is sent after those in flight."""
        if self.state is CopyState.COPYING:
            self.drain()


def failed_records(batches: memoryview, failures: Iterable[RangeFailure]) -> Iterator[Record]:
    """Yield the records of a range for which a transform fails. Raises CorruptData if the range
    lacks one of these records.
    """
    wanted = iter([failure.offset for failure in failures])
    at = next(wanted, None)
    for header, begin in read_headers(batches):
        if at is None or at >= header.next_offset:
            continue
        for record in decode_batch(batches[begin : begin + header.length]):
            if record.offset == at:
                yield record
                at = next(wanted, None)
    if at is not None:
        raise CorruptData(
            f"the result reports a failed record at offset {at}, but its range has no record there"
        )
