"""Appends skipped records to the quarantine topic of their source, each exactly once.

The record is written before the intent to skip it, and searched for before it is written:

- If the command dies before writing, nothing has happened, and the partition is still stopped.
- If the command dies after writing, or the response is lost, the next run finds the record by its
  upstream offset, and continues.
- A request of a command that died may arrive late, or two commands may write at the same time. All
  write with the flow's producer ID, and commands that read the same log send the same sequence. The
  broker appends the first batch, and acknowledges the second as a duplicate or rejects it. Then the
  log is read again, and a command that does not find its record writes it with the next sequence.
  The broker's producer state is queried before the log is read, so every known sequence belongs to
  a record that is seen. Records have the current time as timestamp, so that the broker remembers
  the producer ID for as long as a request can be late.
- If the topic is deleted, its records are lost. They are still on the source, for as long as it
  retains them.

The quarantine topic has no part in the copy: lanes write to other topics and never read this one.
"""

from __future__ import annotations

import time
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, offset_at
from twinlog.cluster.logs.producers import describe_producers
from twinlog.cluster.logs.raw_log import fetch_partition, produce_batch
from twinlog.cluster.topics.internal_log import ends_of_logs
from twinlog.cluster.topics.topic_admin import create_topic, wait_for_topic
from twinlog.errors import BrokerRefused, FlowError, TwinlogError
from twinlog.mirror.state.quarantined import RecordOrigin, origin_in, origin_of, quarantined
from twinlog.mirror.state.skipping import WantedSkip
from twinlog.model import SEQUENCE_MODULUS, TopicPartition, sequences_ahead
from twinlog.wire.error_codes import (
    DUPLICATE_SEQUENCE_NUMBER,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from twinlog.wire.record_batch import Codec, read_headers, verify_crc
from twinlog.wire.records import Record, decode_batch, decode_legacy, encode_batch

READ_BYTES: Final = 4 << 20
TRIES: Final = 5
"""After each attempt the record is in the log, or another command's record is."""

CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(100 << 20),  # Kafka's socket.request.max.bytes
}
NOT_NEXT: Final = frozenset({OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER})


class Quarantine:
    """The quarantine topic of one flow."""

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

    def put(self, wanted: WantedSkip) -> list[int]:
        """Append all skipped records that are missing, and return the offsets of all of them in the
        quarantine topic.
        """
        records = self.read(wanted)
        self._ensure_topic()
        return [self._put(wanted, record) for record in records]

    def read(self, wanted: WantedSkip) -> list[Record]:
        """Read the skipped records from the source, or the bytes of a skipped batch."""
        tp, skip = TopicPartition(wanted.topic, wanted.partition), wanted.skip
        out: list[Record] = []
        position = skip.first
        while position < skip.next:
            answer = fetch_partition(self._source, tp, position, READ_BYTES)
            before = position
            for header, at in read_headers(answer.records):
                batch = answer.records[at : at + header.length]
                if max(header.base_offset, position) >= skip.next:
                    break
                if header.next_offset <= position:
                    continue
                if skip.is_batch:  # several batches of the source may have been sent as one
                    begin = max(header.base_offset, skip.first)
                    out.append(Record(begin, header.max_timestamp, None, bytes(batch)))
                    position = header.next_offset
                    continue
                verify_crc(answer.records, at, header)
                known = decode_legacy(batch) if header.magic < 2 else decode_batch(batch)
                out += (one for one in known if skip.covers(one.offset))
                position = header.next_offset
            if position == before:
                break
        if not out:
            raise FlowError(
                f"{tp}: the source has no record at {skip} any more, so nothing can be put into "
                "quarantine, and nothing was changed; skip it without --quarantine",
                code="SKIP_REFUSED",
            )
        return out

    def _ensure_topic(self) -> None:
        topic = self.home.topic
        if self._target.metadata([topic]).topics[topic].error == UNKNOWN_TOPIC_OR_PARTITION:
            create_topic(
                self._target,
                topic,
                partitions=1,
                replication_factor=self._replication_factor,
                configs=CONFIGS,
            )
        wait_for_topic(self._target, topic)

    def _put(self, wanted: WantedSkip, record: Record) -> int:
        origin = origin_in(wanted, record.offset)
        for _ in range(TRIES):
            at, sequence = self._search(origin)
            if at is not None:
                return at
            written = quarantined(
                wanted,
                record,
                is_batch=wanted.skip.is_batch,
                now_ms=int(time.time() * 1000),
            )
            self._append(written, sequence)
        at, _ = self._search(origin)
        if at is None:
            raise FlowError(
                f"{self.home}: could not append the record of {origin.topic}-{origin.partition} at "
                f"{origin.offset}, because other clients write to it all the time; nothing is "
                "skipped: try again",
                code="SKIP_REFUSED",
            )
        return at

    def _append(self, record: Record, sequence: int) -> None:
        batch = encode_batch(
            [record],
            codec=Codec.NONE,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        try:
            # a repeated batch with the same sequence is appended once
            self._target.retrying(lambda: produce_batch(self._target, self.home, batch))
        except BrokerRefused as refusal:
            if refusal.kafka_error not in NOT_NEXT:
                raise

    def _search(self, origin: RecordOrigin) -> tuple[int | None, int]:
        """Return the record's offset, or None, and the flow's next sequence in this log."""
        found: int | None = None
        sequence = self._remembered()
        (end,) = ends_of_logs(self._target, [self.home]).values()
        position = offset_at(self._target, self.home, EARLIEST)
        while position < end:
            answer = fetch_partition(self._target, self.home, position, READ_BYTES)
            before = position
            for header, at in read_headers(answer.records):
                if header.next_offset <= position:
                    continue
                verify_crc(answer.records, at, header)
                if header.producer_id == self._producer_id:
                    behind = (header.base_sequence + header.count) % SEQUENCE_MODULUS
                    if sequence is None or sequences_ahead(behind, sequence) > 0:
                        sequence = behind
                if found is None and not header.is_control:
                    records = decode_batch(answer.records[at : at + header.length])
                    found = next((r.offset for r in records if origin_of(r) == origin), None)
                position = header.next_offset
            if position == before:
                break
        return found, sequence or 0

    def _remembered(self) -> int | None:
        """Return the next sequence that the broker remembers, which is needed if records were
        deleted. Older brokers do not respond.
        """
        try:
            known = describe_producers(self._target, [self.home])[self.home]
        except TwinlogError:
            return None
        if isinstance(known, TwinlogError) or self._producer_id not in known:
            return None
        return (known[self._producer_id].last_sequence + 1) % SEQUENCE_MODULUS
