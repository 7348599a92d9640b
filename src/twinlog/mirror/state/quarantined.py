"""A record of the quarantine topic: a skipped record, and its origin.

Key, value and headers are the record's own, as far as they can be read. For a batch that cannot be
decoded, the value is the batch's bytes. After its own headers come these, as text:

    twinlog.topic       on the source        twinlog.code     why the partition had stopped
    twinlog.topic.id    of that topic        twinlog.reason   the value of --reason
    twinlog.partition                        twinlog.who      who requested the skip
    twinlog.offset      of the record        twinlog.at       when, ISO 8601
    twinlog.next        the next offset      twinlog.flow     the flow that skipped it
    twinlog.timestamp   of the record, ms    twinlog.content  `record` or `batch`
"""

from __future__ import annotations

from typing import Final, NamedTuple

from twinlog.config.values.times import in_iso
from twinlog.mirror.state.skipping import WantedSkip
from twinlog.wire.records import Record

_PREFIX: Final = "twinlog."
_ORIGIN: Final = ("topic.id", "topic", "partition", "offset")


class RecordOrigin(NamedTuple):
    """Where a skipped record was: topic, partition and offset on the source."""

    topic_id: str
    topic: str
    partition: str
    offset: str


def quarantined(wanted: WantedSkip, record: Record, *, is_batch: bool, now_ms: int) -> Record:
    """Return the record to write. Its timestamp is the current time, so that brokers remember its
    producer.
    """
    origin = {
        "topic": wanted.topic,
        "topic.id": str(wanted.topic_id),
        "partition": str(wanted.partition),
        "offset": str(record.offset),
        "next": str(wanted.skip.next if is_batch else record.offset + 1),
        "timestamp": str(record.timestamp),
        "code": wanted.code,
        "reason": wanted.reason,
        "who": wanted.who,
        "at": in_iso(wanted.at_ms),
        "flow": wanted.flow,
        "content": "batch" if is_batch else "record",
    }
    headers = tuple((_PREFIX + name, value.encode()) for name, value in origin.items())
    return record._replace(offset=0, timestamp=now_ms, headers=(*record.headers, *headers))


def origin_in(wanted: WantedSkip, offset: int) -> RecordOrigin:
    return RecordOrigin(str(wanted.topic_id), wanted.topic, str(wanted.partition), str(offset))


def origin_of(record: Record) -> RecordOrigin | None:
    """Return the origin of a record of the quarantine topic; None if it is not Twinlog's."""
    headers = dict(record.headers)  # the last of a name: the record's own headers come first
    fields = [headers.get(_PREFIX + name) for name in _ORIGIN]
    if any(value is None for value in fields):
        return None
    return RecordOrigin(*((value or b"").decode("utf-8", "replace") for value in fields))
