"""Kafka's own classes can read Twinlog's batches, and Twinlog can read theirs, in every format and
codec.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from py4j.protocol import Py4JError

from tests.support.records import NOW_MS, SAMPLE, flipped, with_bits
from twinlog.wire.record_batch import (
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    Codec,
    read_header,
    read_headers,
    rewrite_header,
    verify_crc,
)
from twinlog.wire.records import (
    Headers,
    Record,
    control_type,
    decode_batch,
    decode_legacy,
    encode_batch,
)

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
NO_DELETE_HORIZON = -1

# Java strings cannot represent the header key that is not UTF-8
TEXTUAL = [
    record._replace(
        headers=tuple((key.replace("\udcff", "\u00e9\U0001f600"), v) for key, v in record.headers)
    )
    for record in SAMPLE
]


def large_records() -> list[Record]:
    """Return compressible and incompressible records. They span several blocks of every codec."""
    dice = random.Random(4)
    return [
        Record(at, NOW_MS + at, b"%d" % at, dice.randbytes(9_000) if at % 2 else b"text " * 2_000)
        for at in range(40)
    ]


def random_records(seed: int) -> list[Record]:
    dice = random.Random(seed)

    def some_bytes() -> bytes | None:
        return dice.choice([None, b"", dice.randbytes(dice.choice([1, 63, 64, 127, 128, 8192]))])

    def some_headers() -> Headers:
        keys = ["", "a", "trace-id", "\u4e2d" * 30]
        return tuple((dice.choice(keys), some_bytes()) for _ in range(dice.choice([0, 0, 0, 1, 3])))

    def some_time() -> int:
        return dice.choice([-1, 0, NOW_MS, NOW_MS + dice.randrange(10**6), 2**63 - 1])

    return [
        Record(at, some_time(), some_bytes(), some_bytes(), some_headers())
        for at in range(dice.randrange(1, 80))
    ]


class JavaRecords:
    """Calls Kafka's MemoryRecords with bytes and tuples."""

    def __init__(self, jvm: Any) -> None:
        self.jvm = jvm
        self.records = jvm.org.apache.kafka.common.record
        self.internal = jvm.org.apache.kafka.common.record.internal
        self.utils = jvm.org.apache.kafka.common.utils
        self.wrap = jvm.java.nio.ByteBuffer.wrap

    def batches(self, data: bytes | bytearray | memoryview) -> list[Any]:
        readable = self.internal.MemoryRecords.readableRecords(self.wrap(bytes(data)))
        return list(_each(readable.batches()))

    def read(self, data: bytes | bytearray | memoryview) -> list[Record]:
        found = []
        for batch in self.batches(data):
            batch.ensureValid()
            for record in _each(batch):
                record.ensureValid()
                found.append(self._record(record))
        return found

    def _record(self, record: Any) -> Record:
        headers = tuple((header.key(), header.value()) for header in record.headers())
        key, value = (
            self.utils.Utils.toNullableArray(buffer) for buffer in (record.key(), record.value())
        )
        return Record(record.offset(), record.timestamp(), key, value, headers)

    def builder(
        self,
        magic: int,
        codec: Codec,
        *,
        base_offset: int = 0,
        log_append_time: int | None = None,
        transactional: bool = False,
        delete_horizon: int = NO_DELETE_HORIZON,
    ) -> Any:
        kind = self.records.TimestampType
        return self.internal.MemoryRecordsBuilder(
            self.utils.ByteBufferOutputStream(1024),
            magic,
            self.jvm.org.apache.kafka.common.compress.Compression.of(codec.name.lower()).build(),
            kind.CREATE_TIME if log_append_time is None else kind.LOG_APPEND_TIME,
            base_offset,
            -1 if log_append_time is None else log_append_time,
            5 if transactional else -1,  # producer id
            1 if transactional else -1,  # producer epoch
            7 if transactional else -1,  # base sequence
            transactional,
            False,  # control
            3,  # leader epoch
            1 << 30,
            delete_horizon,
        )

    def append(self, builder: Any, records: Sequence[Record]) -> None:
        header_type = self.jvm.org.apache.kafka.common.header.internals.RecordHeader
        for offset, timestamp, key, value, headers in records:
            made = [header_type(name, content) for name, content in headers]
            array = _java_array(self.jvm, made)
            builder.appendWithOffset(
                offset,
                timestamp,
                None if key is None else self.wrap(key),
                None if value is None else self.wrap(value),
                array,
            )

    def write(
        self, magic: int, codec: Codec, records: Sequence[Record], **options: Any
    ) -> memoryview:
        builder = self.builder(magic, codec, **options)
        self.append(builder, records)
        return self.built(builder)

    def built(self, builder: Any) -> memoryview:
        return memoryview(bytearray(self.utils.Utils.toArray(builder.build().buffer())))


def _each(iterable: Any) -> Iterator[Any]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _java_array(jvm: Any, items: Sequence[Any]) -> Any:
    array = jvm.java.lang.reflect.Array.newInstance(
        jvm.java.lang.Class.forName("org.apache.kafka.common.header.Header"), len(items)
    )
    for index, item in enumerate(items):
        array[index] = item
    return array


@pytest.fixture(scope="module")
def kafka(java: Any) -> JavaRecords:
    return JavaRecords(java)


def at_offset(records: Sequence[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + at) for at, record in enumerate(records)]


# ---- Twinlog's batches, read by Java


@pytest.mark.parametrize("codec", Codec)
def test_java_reads_twinlogs_batches(kafka: JavaRecords, codec: Codec) -> None:
    ours = encode_batch(
        TEXTUAL, codec=codec, base_offset=50, producer_id=8, producer_epoch=2, base_sequence=99
    )
    assert kafka.read(ours) == at_offset(TEXTUAL, 50)
    (batch,) = kafka.batches(ours)
    assert (batch.baseOffset(), batch.lastOffset(), batch.countOrNull()) == (50, 54, 5)
    assert (batch.producerId(), batch.producerEpoch(), batch.baseSequence()) == (8, 2, 99)
    assert batch.compressionType().toString() == codec.name.lower()
    assert batch.maxTimestamp() == NOW_MS + 90_000


@pytest.mark.parametrize("codec", Codec)
def test_java_reads_our_large_batches(kafka: JavaRecords, codec: Codec) -> None:
    records = large_records()
    assert kafka.read(encode_batch(records, codec=codec)) == records


@pytest.mark.parametrize("seed", range(5))
def test_java_reads_our_random_records(kafka: JavaRecords, seed: int) -> None:
    records = random_records(seed)
    assert kafka.read(encode_batch(records, codec=Codec(seed))) == records


def test_java_reads_our_log_append_time(kafka: JavaRecords) -> None:
    ours = with_bits(encode_batch(TEXTUAL, codec=Codec.ZSTD), LOG_APPEND_TIME_BIT)
    assert kafka.read(ours) == decode_batch(memoryview(ours))
    assert {record.timestamp for record in kafka.read(ours)} == {NOW_MS + 90_000}


def test_java_refuses_the_same_batches(kafka: JavaRecords) -> None:
    with pytest.raises(Py4JError, match="CorruptRecordException"):
        kafka.read(flipped(bytes(encode_batch(TEXTUAL, codec=Codec.NONE)), 300, 1))


# ---- Java's batches, read by Twinlog


@pytest.mark.parametrize("codec", Codec)
def test_twinlog_reads_javas_batches(kafka: JavaRecords, codec: Codec) -> None:
    theirs = kafka.write(2, codec, at_offset(TEXTUAL, 50), base_offset=50)
    header = read_header(theirs)
    verify_crc(theirs, 0, header)
    assert (header.base_offset, header.leader_epoch, header.codec) == (50, 3, codec)
    assert decode_batch(theirs) == at_offset(TEXTUAL, 50)


@pytest.mark.parametrize("codec", Codec)
def test_twinlog_reads_javas_large_batches(kafka: JavaRecords, codec: Codec) -> None:
    records = large_records()
    assert decode_batch(kafka.write(2, codec, records)) == records


def test_uncompressed_bytes_are_the_same(kafka: JavaRecords) -> None:
    theirs = kafka.write(2, Codec.NONE, TEXTUAL)
    ours = encode_batch(TEXTUAL, codec=Codec.NONE)
    ours[12:16] = theirs[12:16]  # copies the leader epoch, which the CRC does not cover
    assert bytes(ours) == bytes(theirs)


def test_twinlog_reads_javas_log_append_time(kafka: JavaRecords) -> None:
    theirs = kafka.write(2, Codec.LZ4, TEXTUAL, log_append_time=NOW_MS + 7)
    assert read_header(theirs).is_log_append_time
    assert decode_batch(theirs) == [record._replace(timestamp=NOW_MS + 7) for record in TEXTUAL]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_delete_horizon_is_the_base_of_the_timestamps(kafka: JavaRecords, codec: Codec) -> None:
    theirs = kafka.write(2, codec, TEXTUAL, delete_horizon=NOW_MS + 10**9)
    header = read_header(theirs)
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == NOW_MS + 10**9
    assert decode_batch(theirs) == TEXTUAL == kafka.read(theirs)

    rewrite_header(theirs, producer_id=1, producer_epoch=0, base_sequence=0)
    assert not read_header(theirs).attributes & DELETE_HORIZON_BIT
    assert decode_batch(theirs) == TEXTUAL == kafka.read(theirs)


def test_a_batch_thinned_by_the_cleaner(kafka: JavaRecords) -> None:
    builder = kafka.builder(2, Codec.GZIP, base_offset=100)
    kept = [TEXTUAL[0]._replace(offset=103), TEXTUAL[1]._replace(offset=107)]
    kafka.append(builder, kept)
    builder.overrideLastOffset(112)
    theirs = kafka.built(builder)
    header = read_header(theirs)
    assert (header.count, header.next_offset, header.is_dense) == (2, 113, False)
    assert decode_batch(theirs) == kept == kafka.read(theirs)


@pytest.mark.parametrize("kind", ["COMMIT", "ABORT"])
def test_transaction_markers(kafka: JavaRecords, kind: str) -> None:
    control = kafka.internal.ControlRecordType
    marker = kafka.internal.EndTransactionMarker(getattr(control, kind), 4)
    built = kafka.internal.MemoryRecords.withEndTransactionMarker(77, NOW_MS, 3, 5, 1, marker)
    theirs = memoryview(kafka.utils.Utils.toArray(built.buffer()))
    header = read_header(theirs)
    assert header.is_control
    assert header.is_transactional
    assert control_type(theirs) == kind.lower()
    assert [record.offset for record in decode_batch(theirs)] == [77]


# ---- headers rewritten by Twinlog


@pytest.mark.parametrize("codec", Codec)
def test_java_finds_rewritten_headers_valid(kafka: JavaRecords, codec: Codec) -> None:
    theirs = kafka.write(2, codec, at_offset(TEXTUAL, 50), base_offset=50, transactional=True)
    assert read_header(theirs).is_transactional
    rewrite_header(theirs, producer_id=2**40, producer_epoch=0, base_sequence=2**31 - 5)
    assert kafka.read(theirs) == TEXTUAL
    (batch,) = kafka.batches(theirs)
    assert not batch.isTransactional()
    assert (batch.producerId(), batch.producerEpoch()) == (2**40, 0)
    assert (batch.baseSequence(), batch.lastSequence()) == (2**31 - 5, 2**31 - 1)


# ---- old formats


def as_old(records: Sequence[Record], magic: int) -> list[Record]:
    """Return the records without the fields that the format lacks: headers, and before magic 1 also
    timestamps.
    """
    return [
        record._replace(headers=(), timestamp=record.timestamp if magic else -1)
        for record in records
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_old_formats(kafka: JavaRecords, magic: int, codec: Codec) -> None:
    records = as_old(at_offset(TEXTUAL, 50), magic)
    theirs = kafka.write(magic, codec, records, base_offset=50)
    headers = [header for header, _ in read_headers(theirs)]
    assert [header.magic for header in headers] == [magic] * (5 if codec is Codec.NONE else 1)
    assert headers[-1].next_offset == 55
    assert decode_legacy(theirs) == records == kafka.read(theirs)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_large_messages_of_old_formats(kafka: JavaRecords, magic: int, codec: Codec) -> None:
    records = as_old(large_records(), magic)
    assert decode_legacy(kafka.write(magic, codec, records)) == records


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_log_append_time_of_magic_1(kafka: JavaRecords, codec: Codec) -> None:
    theirs = kafka.write(1, codec, as_old(TEXTUAL, 1), log_append_time=NOW_MS + 7)
    assert decode_legacy(theirs) == kafka.read(theirs)
    assert {record.timestamp for record in decode_legacy(theirs)} == {NOW_MS + 7}


def test_an_old_topic_that_was_upgraded_twice(kafka: JavaRecords) -> None:
    parts = [
        kafka.write(magic, Codec.GZIP, as_old(at_offset(TEXTUAL, base), magic), base_offset=base)
        for magic, base in ((0, 0), (1, 5), (2, 10))
    ]
    log = memoryview(b"".join(parts))
    found = [(header.magic, header.next_offset) for header, _ in read_headers(log)]
    assert found == [(0, 5), (1, 10), (2, 15)]
