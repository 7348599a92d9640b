"""Skips the one record at which a partition has stopped. The skip is first checked, then written as
an intent to the state topic (`mirror.state.intents`).

A record is only skipped if the leader reports that its partition is stopped at exactly this offset.
Otherwise the error describes the state, and nothing is written. If this process dies:

- before writing the row, nothing has happened, except that the record may be in quarantine
  (`Quarantine`);
- after writing the row, or if its response is lost, the leader applies the row. If the command is
  repeated, it finds the row and writes nothing.

If the record was copied between the check and the row, because its topic accepts larger records
now, the position is already after the record, and nothing is skipped.

**Quarantine.** The skipped record is first written to the quarantine topic. Key, value and headers
are the record's own, as far as they can be read. For a batch that cannot be decoded, the value is
the batch's bytes. These headers follow after the record's own headers, as text:

    twinlog.topic       on the source        twinlog.code     why the partition had stopped
    twinlog.topic.id    of that topic        twinlog.reason   the value of --reason
    twinlog.partition                        twinlog.who      who requested the skip
    twinlog.offset      of the record        twinlog.at       when, ISO 8601
    twinlog.next        the next offset      twinlog.flow     the flow that skipped it
    twinlog.timestamp   of the record, ms    twinlog.content  `record` or `batch`
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from twinlog.client.steering import StoppedPartitions
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.producers import describe_producers
from twinlog.cluster.logs.raw_log import fetch_partition, produce_batch
from twinlog.cluster.topics.internal_log import readable_ends
from twinlog.cluster.topics.topic_admin import ensure_permanent_topic
from twinlog.codes import Trait, has, with_trait
from twinlog.config.values.times import in_iso
from twinlog.encoded import encoded_fields
from twinlog.errors import BrokerRefused, FlowError, TwinlogError
from twinlog.mirror.names.naming import quarantine_topic
from twinlog.mirror.skips import Skip
from twinlog.mirror.start.tail_check import decode
from twinlog.mirror.state.intents import WantedSkip
from twinlog.mirror.state.published import Unusual
from twinlog.model import NO_TOPIC_ID, SEQUENCE_MODULUS, TopicId, TopicPartition, sequences_ahead
from twinlog.survey.ends import log_starts
from twinlog.survey.state_reader import leader_status, state_rows
from twinlog.wire.error_codes import DUPLICATE_SEQUENCE_NUMBER, OUT_OF_ORDER_SEQUENCE_NUMBER
from twinlog.wire.record_batch import Codec, read_headers, verify_crc
from twinlog.wire.records import Record, decode_batch, encode_batch

_PREFIX: Final = "twinlog."
_ORIGIN: Final = ("topic.id", "topic", "partition", "offset")


RecordOrigin = tuple[bytes | None, ...]
"""Where a skipped record was: the values of its headers in _ORIGIN. None: the header is missing."""


def quarantined(wanted_skip: WantedSkip, record: Record, now_ms: int) -> Record:
    """Return the record to append to the quarantine topic, with headers about the skip. Its
    timestamp is the current time, so that brokers remember the producer ID.
    """
    is_batch = wanted_skip.skipped.is_batch
    origin = {
        "topic": wanted_skip.topic,
        "topic.id": str(wanted_skip.topic_id),
        "partition": str(wanted_skip.partition),
        "offset": str(record.offset),
        "next": str(wanted_skip.skipped.next if is_batch else record.offset + 1),
        "timestamp": str(record.timestamp),
        "code": wanted_skip.code,
        "reason": wanted_skip.reason,
        "who": wanted_skip.who,
        "at": in_iso(wanted_skip.at_ms),
        "flow": wanted_skip.flow,
        "content": "batch" if is_batch else "record",
    }
    headers = tuple((_PREFIX + name, value.encode()) for name, value in origin.items())
    return record._replace(offset=0, timestamp=now_ms, headers=(*record.headers, *headers))


def origin_of(record: Record) -> RecordOrigin:
    """Return the origin of a record in the quarantine topic."""
    # the record's own headers are first, so the last header of a name is the one that was added
    headers = dict(record.headers)
    return tuple(headers.get(_PREFIX + name) for name in _ORIGIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipChange:
    """The effect of a skip command: the intent that it writes, unless one exists already."""

    FIELDS = (
        "flow=wanted.flow topic=wanted.topic topic_id=wanted.topic_id "
        "partition=wanted.partition first=wanted.skipped.first next=wanted.skipped.next "
        "is_batch=wanted.skipped.is_batch code=wanted.code is_needed before=replaced"
    )

    wanted: WantedSkip
    before: WantedSkip | None
    """The existing intent if the record is already being skipped, else None."""

    @property
    def is_needed(self) -> bool:
        return self.before is None

    @property
    def replaced(self) -> Any:
        return encoded_fields(self.before, "who at_ms reason")


class RecordSkip(StoppedPartitions):
    """Checks and writes skips for one flow."""

    @property
    def quarantine_topic(self) -> str:
        return quarantine_topic(self._config.flow)

    def check(self, tp: TopicPartition, offset: int) -> SkipChange:
        """Return the planned skip. Raises FlowError (SKIP_REFUSED) if it is not permitted."""
        topic_id = self._topic_id(tp)
        for known in self._steering.intents().skips:
            if known.is_of(tp, topic_id) and known.skipped.covers(offset):
                return SkipChange(wanted=known, before=known)
        standing = self._stopped_partition(tp)
        skip = self._checked_skip(tp, offset, topic_id, standing)
        wanted_skip = WantedSkip(
            flow=self._steering.flow,
            topic=tp.topic,
            topic_id=topic_id,
            partition=tp.partition,
            first=skip.first,
            next=skip.next,
            is_batch=skip.is_batch,
            code=standing.code,
            who=self._steering.who,
            at_ms=int(time.time() * 1000),
            reason=self._reason,
        )
        return SkipChange(wanted=wanted_skip, before=None)

    def quarantine(self, change: SkipChange) -> list[int]:
        """Append the skipped records to the quarantine topic, and return their offsets there."""
        history = state_rows(self._steering.target).history(self._steering.flow)
        if history is None or history.latest is None:
            raise self._skip_refused("no process has ever led the flow")
        quarantine = Quarantine(
            self._source,
            self._steering.target,
            self.quarantine_topic,
            producer_id=history.latest.producer_id,
            replication_factor=self._config.state_topic_replication_factor,
        )
        return quarantine.put(change.wanted)

    def write(self, change: SkipChange) -> None:
        """Write the intent of the skip, unless it exists. It is durable when this method
        returns.
        """
        if change.before is None:
            self._steering.append([change.wanted.encode()])

    def _topic_id(self, tp: TopicPartition) -> TopicId:
        metadata = self._source.metadata([tp.topic])
        topic = metadata.topics.get(tp.topic)
        if topic is None or topic.error or metadata.partition(tp) is None:
            raise self._skip_refused(
                f"the source has no partition {tp}, or this user may not DESCRIBE its topic"
            )
        return topic.topic_id

    def _stopped_partition(self, tp: TopicPartition) -> Unusual:
        """Return what the flow's leader reports about the partition. Raises FlowError
        (SKIP_REFUSED) if it reports no problem of the partition.
        """
        status = leader_status(self._steering.target, self._steering.flow)
        if status is None:
            raise self._skip_refused(
                "no mirror has reported its state: start one, with twinlog.status.interval.seconds "
                "above 0"
            )
        if not status.is_current(int(time.time() * 1000)):
            raise self._skip_refused(
                f"the mirror on {status.where} has reported nothing since {in_iso(status.at_ms)}, "
                f"so it is unknown whether {tp} is still stopped: start a mirror, which checks this"
            )
        for partition in status.unusual:
            if (partition.topic, partition.partition) == tp:
                return partition
        if status.unusual_partitions > len(status.unusual):
            raise self._skip_refused(
                f"the mirror reports reasons for {len(status.unusual)} of the "
                f"{status.unusual_partitions} partitions that have problems, and {tp} is not one "
                "of these: fix the reported partitions first"
            )
        raise self._skip_refused(f"{tp} is not stopped")

    def _checked_skip(
        self, tp: TopicPartition, offset: int, topic_id: TopicId, standing: Unusual
    ) -> Skip:
        if not standing.code:
            raise self._skip_refused(f"{tp} is {standing.state}, and no record stops it")
        state = f"{tp} is {standing.state} with {standing.code}: {standing.message}"
        if not has(standing.code, Trait.CAN_BE_SKIPPED):
            codes = ", ".join(sorted(with_trait(Trait.CAN_BE_SKIPPED)))
            raise self._skip_refused(
                f"{state}; this code is not caused by a record. Skip records only for {codes}"
            )
        poison = standing.poison
        if poison is None:
            raise self._skip_refused(f"{state}; it is unknown which record causes this")
        if NO_TOPIC_ID not in (topic_id, poison.topic_id) and topic_id != poison.topic_id:
            raise self._skip_refused(f"{tp}: the topic was re-created since the mirror checked it")
        if poison.skip.first != offset:
            raise self._skip_refused(
                f"{tp} has stopped at offset {poison.skip.first}, not {offset}"
            )
        return poison.skip

    def _skip_refused(self, why: str) -> FlowError:
        return FlowError(
            f"{why}; nothing was changed", flow=self._steering.flow, code="SKIP_REFUSED"
        )


READ_BYTES: Final = 4 << 20
TRIES: Final = 5
"""Maximum attempts to append a record. After each attempt, the log has this record, or a record
that another command has written in the meantime.
"""

WRONG_SEQUENCE: Final = frozenset({OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER})


class Quarantine:
    """The quarantine topic of one flow: skipped records of its source, each appended exactly once.

    The record is written before the intent to skip it. Before writing, the topic is searched for
    the record:

    - If the command dies before writing, nothing has happened, and the partition is still stopped.
    - If the command dies after writing, or the response is lost, the next run finds the record by
      its upstream offset, and continues.
    - A request of a command that died may arrive late, or two commands may write at the same time.
      All write with the flow's producer ID, and commands that read the same log send the same
      sequence. The broker appends the first batch, and acknowledges the second as a duplicate or
      rejects it. Then the log is read again, and a command that does not find its record writes it
      with the next sequence. The broker's producer state is queried before the log is read, so
      every known sequence belongs to a record that is seen. Records have the current time as
      timestamp, so that the broker remembers the producer ID for as long as a request can be late.
    - If the topic is deleted, its records are lost. They are still on the source until its
      retention deletes them.

    The quarantine topic has no part in the copy: lanes write to other topics and never read this
    one.
    """

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        topic: str,
        *,
        producer_id: int,
        replication_factor: int,
    ) -> None:
        self._source = source
        self._target = target
        self.home = TopicPartition(topic, 0)
        self._producer_id = producer_id
        self._replication_factor = replication_factor

    def put(self, wanted_skip: WantedSkip) -> list[int]:
        """Append those skipped records that the quarantine topic does not have yet. Return the
        offsets that all skipped records have in that topic.
        """
        records = self.read(wanted_skip)
        ensure_permanent_topic(
            self._target, self.home.topic, replication_factor=self._replication_factor
        )
        return [self._write_skip(wanted_skip, record) for record in records]

    def read(self, wanted_skip: WantedSkip) -> list[Record]:
        """Return the skipped records from the source. If a batch is skipped as a whole, return a
        record whose value has its bytes.
        """
        tp, skip = TopicPartition(wanted_skip.topic, wanted_skip.partition), wanted_skip.skipped
        out: list[Record] = []
        position = skip.first
        while position < skip.next:
            answer = fetch_partition(self._source, tp, position, READ_BYTES)
            before = position
            for header, start in read_headers(answer.records):
                batch = answer.records[start : start + header.length]
                if max(header.base_offset, position) >= skip.next:
                    break
                if header.next_offset <= position:
                    continue
                # a lane may have joined several batches of the source, so the skipped range may
                # contain several
                if skip.is_batch:
                    begin = max(header.base_offset, skip.first)
                    out.append(Record(begin, header.max_timestamp, None, bytes(batch)))
                else:
                    verify_crc(answer.records, start, header)
                    out += (r for r in decode(header, batch) if skip.covers(r.offset))
                position = header.next_offset
            if position == before:
                break
        if not out:
            raise FlowError(
                f"{tp}: the source no longer has records at {skip}, so they cannot be written to "
                "the quarantine topic. Nothing was changed. Skip them without --quarantine",
                code="SKIP_REFUSED",
            )
        return out

    def _write_skip(self, wanted_skip: WantedSkip, record: Record) -> int:
        origin = origin_of(quarantined(wanted_skip, record, 0))
        for _ in range(TRIES):
            found_at, sequence = self._search(origin)
            if found_at is not None:
                return found_at
            self._append(quarantined(wanted_skip, record, int(time.time() * 1000)), sequence)
        found_at, _ = self._search(origin)
        if found_at is None:
            raise FlowError(
                f"{self.home}: could not append the record of {wanted_skip.topic}-"
                f"{wanted_skip.partition} at {record.offset}, because other clients write to it "
                "all the time; nothing is skipped: try again",
                code="SKIP_REFUSED",
            )
        return found_at

    def _append(self, record: Record, sequence: int) -> None:
        batch = encode_batch(
            [record],
            codec=Codec.NONE,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        try:
            # if the batch is repeated, the broker appends it only once, because the sequence is the
            # same
            self._target.retrying(lambda: produce_batch(self._target, self.home, batch))
        except BrokerRefused as refusal:
            if refusal.kafka_error not in WRONG_SEQUENCE:
                raise

    def _search(self, origin: RecordOrigin) -> tuple[int | None, int]:
        """Return (offset, sequence). `offset`: that of the record with this origin in the
        quarantine topic, or None if it is not there. `sequence`: the flow's next one in that topic.
        """
        offset: int | None = None
        sequence = self._brokers_sequence()
        (end,) = readable_ends(self._target, [self.home]).values()
        position = log_starts(self._target, [self.home])[self.home]
        while position < end:
            answer = fetch_partition(self._target, self.home, position, READ_BYTES)
            before = position
            for header, start in read_headers(answer.records):
                if header.next_offset <= position:
                    continue
                verify_crc(answer.records, start, header)
                if header.producer_id == self._producer_id:
                    next_sequence = (header.base_sequence + header.count) % SEQUENCE_MODULUS
                    if sequence is None or sequences_ahead(next_sequence, sequence) > 0:
                        sequence = next_sequence
                if offset is None and not header.is_control:
                    records = decode_batch(answer.records[start : start + header.length])
                    offset = next((r.offset for r in records if origin_of(r) == origin), None)
                position = header.next_offset
            if position == before:
                break
        return offset, sequence or 0

    def _brokers_sequence(self) -> int | None:
        """Return the flow's next sequence in the quarantine topic, by the broker's producer state,
        or None if it is unknown, as on older brokers. The log alone does not suffice, because its
        last records may be deleted.
        """
        try:
            known = describe_producers(self._target, [self.home])[self.home]
        except TwinlogError:
            return None
        if isinstance(known, TwinlogError) or self._producer_id not in known:
            return None
        return (known[self._producer_id].last_sequence + 1) % SEQUENCE_MODULUS
