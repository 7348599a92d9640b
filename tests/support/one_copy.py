"""The copy of one partition without its environment: source batches go in, target batches come out,
and responses go back.
"""

from __future__ import annotations

from typing import Any

from crc32c import crc32c

from twinlog.mirror.copy.intake import OutBatch
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.map.map_tail import MapTail
from twinlog.mirror.map.offset_map import PartitionKey, Run, Term
from twinlog.mirror.skips import Skip
from twinlog.mirror.start_point import CopyRules, StartPoint
from twinlog.model import NO_TOPIC_ID, Isolation, TopicPartition
from twinlog.wire.produce import ProducedPartition
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

NOW = 1_800_000_000_000
DAY = 86_400_000
FOREVER = (1 << 63) - 1
K = 70


def with_epoch(encoded: bytes, epoch: int) -> bytes:
    """Return the batch as a leader with this epoch would have written it."""
    return encoded[:12] + epoch.to_bytes(4, "big", signed=True) + encoded[16:]


def batch(
    base: int, count: int, *, timestamp: int = NOW, value: bytes = b"v", epoch: int = -1
) -> bytes:
    """Return a batch of the source with `count` records from offset `base` on."""
    kept = [
        Record(offset=base + i, timestamp=timestamp, key=b"k%d" % (base + i), value=value)
        for i in range(count)
    ]
    return with_epoch(bytes(encode_batch(kept, codec=Codec.NONE, base_offset=base)), epoch)


def control(offset: int, producer_id: int, *, commit: bool = True) -> bytes:
    """Return a transaction marker as a broker writes it. The key has version and type, the value
    has version and epoch.
    """
    marker = Record(
        offset=offset,
        timestamp=NOW,
        key=bytes((0, 0, 0, 1 if commit else 0)),
        value=bytes((0, 0, 0, 0, 0, 0)),
    )
    return transactional(
        encode_batch([marker], codec=Codec.NONE, base_offset=offset, producer_id=producer_id), 0x30
    )


def transactional(raw: bytearray, bits: int = 0x10) -> bytes:
    """Return the batch with attribute bits set and a corrected CRC."""
    raw[22] |= bits
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


def of_producer(base: int, count: int, producer_id: int, *, value: bytes = b"v") -> bytes:
    """Return a batch that is part of a producer's transaction."""
    records = [Record(offset=base + i, timestamp=NOW, key=b"t", value=value) for i in range(count)]
    return transactional(
        encode_batch(records, codec=Codec.NONE, base_offset=base, producer_id=producer_id)
    )


def fetched(*parts: bytes) -> memoryview:
    return memoryview(bytearray(b"".join(parts)))


def a_copy(**given: Any) -> PartitionCopy:
    """Return a raw copy. `given`: the parameters of `arguments`."""
    return PartitionCopy(**arguments(**given))


def arguments(
    *,
    ordinal: int = 0,
    upstream: int = 0,
    listed: bool = True,
    last_timestamp: int = NOW,
    expiry: int | None = DAY,
    alone: bool = True,
    durable: bool = True,
    stamps: bool | None = False,
    end: int = FOREVER,
    late: bool = False,
    old_lane: bool = False,
    limit_bytes: int = 1 << 20,
    skips: tuple[Skip, ...] = (),
) -> dict[str, Any]:
    """Return the arguments of a `PartitionCopy`.

    `listed`: the target certainly remembers the producer ID. `alone`: no other client writes to the
    topic. `durable`: the copy's map row is written. `stamps`: the target sets its own timestamps.
    `late`: requests of an earlier lane may still arrive. `old_lane`: this lane may still run.
    """
    run = Run(ordinal, upstream, K + ordinal)
    tail = MapTail(
        key=PartitionKey(NO_TOPIC_ID, NO_TOPIC_ID, 0),
        topic="orders",
        term=Term(1, 0),
        chunk=0,
        runs=[run],
        producer_id=9,
        durable_ordinal=ordinal if durable else -1,
    )
    return {
        "source": TopicPartition("orders", 0),
        "target": TopicPartition("A.orders", 0),
        "source_topic_id": NO_TOPIC_ID,
        "target_topic_id": NO_TOPIC_ID,
        "rules": CopyRules(
            producer_id=9,
            isolation=Isolation.READ_COMMITTED,
            is_ours_alone=alone,
            producer_expiry_ms=expiry,
        ),
        "start": StartPoint(
            ordinal=ordinal,
            upstream=upstream,
            k=K,
            last_fetched_epoch=3,
            is_protected=listed,
            last_timestamp=last_timestamp,
        ),
        "tail": tail,
        "end": end,
        "limit_bytes": limit_bytes,
        "skips": skips,
        "last_run": run,
        "now_ms": NOW,
        "has_log_append_time": stamps,
        "late_requests": late,
        "old_lane": old_lane,
    }


def sent(copy: PartitionCopy, now: int = NOW) -> list[OutBatch]:
    out = []
    while (found := copy.next_batch(now)) is not None:
        out.append(found)
    return out


def answer(
    copy: PartitionCopy,
    base_offset: int,
    *,
    error: int = 0,
    append_time: int = -1,
    now: int = NOW,
) -> None:
    """Process a response of the target to the copy's oldest batch in flight."""
    produced = ProducedPartition(
        tp=copy.target,
        error=error,
        base_offset=base_offset,
        log_append_time_ms=append_time,
        message=None,
    )
    copy.on_produced(produced, now)
