"""Decoded columns equal the records. A damaged batch is corrupt exactly if the decoder for single
records says so, whichever columns are requested.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.support.records import CODECS, NOW_MS, RECORDS, SAMPLE, flipped, message, with_bits
from twinlog.errors import ConfigError, CorruptData
from twinlog.mirror.map.origins import Origin, Origins
from twinlog.mirror.map.runs import PackedChunk, Run
from twinlog.model import TopicPartition
from twinlog.records import decoding
from twinlog.records.columns import SPARK_TYPES, all_columns, check_columns
from twinlog.records.decoding import ColumnDecoder, arrow_schema
from twinlog.records.spark_api import HAS_LIMITS
from twinlog.wire.compression import compress
from twinlog.wire.record_batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    Codec,
    read_header,
    read_headers,
)
from twinlog.wire.records import Record, decode_batch, decode_legacy, encode_batch

pytestmark = pytest.mark.usefixtures("each_kernels")

TP = TopicPartition("orders", 3)
ALL = all_columns(headers=True)
LIMIT = 1 << 20
WHOLE = (0, 1 << 62)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = st.lists(st.sampled_from(ALL), min_size=1, unique=True)


def rows_of(
    data: bytes | bytearray | memoryview,
    columns: Sequence[str] = ALL,
    span: tuple[int, int] = WHOLE,
) -> list[dict[str, Any]]:
    """Return the decoded rows of a Fetch response as dictionaries."""
    buffer, decoder = memoryview(data), ColumnDecoder(TP, columns, LIMIT)
    chunks: list[Any] = []
    for header, at in read_headers(buffer):
        chunks += decoder.decode_batch(header, buffer[at : at + header.length], *span)
    chunks += decoder.last_chunk()
    for chunk in chunks:
        chunk.validate(full=True)
        assert chunk.schema.equals(arrow_schema(columns))
    return [row for chunk in chunks for row in _rows(chunk)]


def _rows(chunk: Any) -> list[dict[str, Any]]:
    # times as numbers, because Python's own times end in the year 9999
    columns = {
        name: (column.cast("int64") if name == "timestamp" else column).to_pylist()
        for name, column in zip(chunk.schema.names, chunk.columns, strict=True)
    }
    return [{n: values[at] for n, values in columns.items()} for at in range(chunk.num_rows)]


def expected(
    records: Sequence[Record], columns: Sequence[str] = ALL, kind: int = 0
) -> list[dict[str, Any]]:
    return [
        {
            name: value
            for name, value in {
                "key": record.key,
                "value": record.value,
                "topic": TP.topic,
                "partition": TP.partition,
                "offset": record.offset,
                "timestamp": micros(record.timestamp),
                "timestampType": kind,
                "headers": [{"key": text(k), "value": v} for k, v in record.headers] or None,
            }.items()
            if name in columns
        }
        for record in records
    ]


def micros(ms: int) -> int | None:
    return ms * 1000 if -(2**63) <= ms * 1000 < 2**63 else None


def text(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@given(RECORDS, CODECS, COLUMNS, st.integers(1, 12), st.sampled_from([0, 1 << 20]))
def test_columns_are_those_of_the_records(
    records: list[Record], codec: Codec, columns: list[str], size: int, few_rows: int
) -> None:
    """The columns equal the records for batches of any size. Small and large batches are tried,
    because values are gathered either by a kernel or one by one.
    """
    batches = [
        bytes(encode_batch(records[at : at + size], codec=codec))
        for at in range(0, len(records), size)
    ]
    whole = [one for batch in batches for one in decode_batch(memoryview(batch))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "FEW_ROWS", few_rows)
        assert rows_of(b"".join(batches), columns) == expected(whole, columns)


def test_every_kind_of_null_and_header_is_as_spark_has_it() -> None:
    rows = rows_of(encode_batch(SAMPLE, codec=Codec.ZSTD))
    assert [(row["key"], row["value"]) for row in rows[:3]] == [
        (b"key", b"value"),
        (None, b""),
        (b"", None),
    ]
    assert [row["headers"] for row in rows[:4]] == [None] * 4
    assert rows[4]["headers"] == [
        {"key": "trace", "value": b"1"},
        {"key": "trace", "value": None},
        {"key": "", "value": b""},
        {"key": "\ufffd", "value": b"x"},
    ]


def test_arrow_types_are_those_that_spark_wants() -> None:
    binary, number = BinaryType(), IntegerType()
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    kinds: list[DataType] = [binary, binary, StringType(), number, LongType(), TimestampType()]
    kinds += [number, ArrayType(header)]
    origin = {"cluster": StringType(), "topic": StringType(), "partition": number}
    fields = [StructField(name, kind) for name, kind in {**origin, "offset": LongType()}.items()]
    kinds.append(StructType(fields))
    names = all_columns(headers=True, upstream=True)
    wanted = StructType([StructField(name, kind) for name, kind in zip(names, kinds, strict=True)])
    # before Spark 4.2, the time zone is UTC unless another one is given
    zone: dict[str, Any] = {"timezone": "UTC"} if HAS_LIMITS else {}
    assert to_arrow_schema(wanted, **zone).equals(arrow_schema(names))
    given = [(field.name, field.dataType.simpleString()) for field in wanted]
    assert check_columns(given) == names == (*ALL, "_upstream") == tuple(SPARK_TYPES)


def test_of_which_record_each_is_the_copy() -> None:
    """`_upstream` has the source record of each row. The log has batches of two flows and of other
    clients, runs that end within a batch, and only parts of some batches are read.
    """
    runs = {"A": [(40, 100, 40), (42, 150, 42), (44, 160, 44)], "B": [(0, 9, 46)]}
    origins = [
        Origin(
            cluster=name,
            source=TopicPartition(f"of-{name}", 7),
            producers=frozenset([ord(name)]),
            runs=PackedChunk.of([Run(*one) for one in found]),
            has_earlier_runs=False,
        )
        for name, found in runs.items()
    ]
    decoder = ColumnDecoder(TP, ("_upstream", "offset"), LIMIT, origins=Origins(origins))
    chunks: list[Any] = []
    for name, first, sequence in (("A", 40, 40), ("C", 43, 43), ("B", 46, 0), ("A", 49, 43)):
        records = [Record(first + at, NOW_MS, b"", b"") for at in range(3)]
        made = encode_batch(
            records,
            codec=Codec.LZ4,
            producer_id=ord(name),
            base_sequence=sequence,
            base_offset=first,
        )
        batch = memoryview(bytes(made))
        chunks += decoder.decode_batch(read_header(batch), batch, 41, 51)
    chunks += decoder.last_chunk()
    rows = [row for chunk in chunks for row in chunk.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(41, 51))
    said = [row["_upstream"] and tuple(row["_upstream"].values()) for row in rows]
    assert said == [
        ("A", "of-A", 7, 101),
        ("A", "of-A", 7, 150),
        *[None] * 3,
        *[("B", "of-B", 7, 9 + at) for at in range(3)],
        ("A", "of-A", 7, 151),
        ("A", "of-A", 7, 160),
    ]
    for chunk in chunks:
        chunk.validate(full=True)
        assert chunk.schema.equals(arrow_schema(["_upstream", "offset"]))


def test_times_that_the_broker_gave() -> None:
    batch = with_bits(encode_batch(SAMPLE, codec=Codec.NONE), LOG_APPEND_TIME_BIT)
    rows = rows_of(batch)
    assert {row["timestampType"] for row in rows} == {1}
    assert {row["timestamp"] for row in rows} == {
        read_header(memoryview(batch)).max_timestamp * 1000
    }
    own = encode_batch(SAMPLE, codec=Codec.NONE)
    kinds = [row["timestampType"] for row in rows_of(bytes(own) + bytes(batch) + bytes(own))]
    assert kinds == [0] * len(SAMPLE) + [1] * len(SAMPLE) + [0] * len(SAMPLE)


def test_a_time_that_spark_has_no_value_for_is_null() -> None:
    records = [Record(0, NOW_MS, b"", b""), Record(1, 2**62, b"", b""), Record(2, -1, b"", b"")]
    rows = rows_of(encode_batch(records, codec=Codec.NONE))
    assert [row["timestamp"] for row in rows] == [NOW_MS * 1000, None, -1000]


@given(RECORDS, st.integers(0, 12), st.integers(0, 12))
def test_only_offsets_of_the_range(records: list[Record], first: int, end: int) -> None:
    rows = rows_of(encode_batch(records, codec=Codec.LZ4), span=(first, end))
    assert rows == expected([one for one in records if first <= one.offset < end])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_messages_of_format_v1(codec: Codec) -> None:
    def one(at: int) -> bytes:
        return message(magic=1, offset=at, key=b"k", value=b"%d" % at, timestamp=NOW_MS + at)

    inner = b"".join(one(at) for at in range(3))
    data = inner
    kind = 0
    if codec is not Codec.NONE:
        data = message(
            magic=1,
            offset=12,
            key=None,
            value=bytes(compress(codec, inner)),
            timestamp=NOW_MS,
            attributes=codec | LOG_APPEND_TIME_BIT,
        )
        kind = 1
    assert rows_of(data) == expected(decode_legacy(memoryview(data)), kind=kind)


def test_messages_of_format_v0_have_no_type_of_timestamp() -> None:
    data = message(magic=0, offset=7, key=None, value=b"v")
    assert rows_of(data) == expected([Record(7, -1, None, b"v")], kind=-1)


@given(RECORDS, CODECS, COLUMNS, st.data())
def test_damage_is_corrupt_if_the_other_decoder_finds_it(
    records: list[Record], codec: Codec, columns: list[str], data: st.DataObject
) -> None:
    # The CRC would detect the damage, but it is not checked here.
    batch = bytes(encode_batch(records, codec=codec))
    # all bytes but the length, by which the reader cuts, and the magic, by which it chooses a
    # decoder
    indexes = [*range(8), *range(17, len(batch))]
    damaged = batch
    for _ in range(data.draw(st.integers(1, 3))):
        mask = data.draw(st.integers(1, 255))
        damaged = flipped(damaged, data.draw(st.sampled_from(indexes)), mask)
    same_verdict(damaged, columns)


@given(RECORDS, CODECS, COLUMNS, st.data())
def test_damage_under_the_codec_is_found_as_well(
    records: list[Record], codec: Codec, columns: list[str], data: st.DataObject
) -> None:
    """The payload is damaged, but the batch has the right CRC and length, as from a faulty
    producer. The decoders for columns and for single records return the same rows, or both find
    corruption.
    """
    payload = bytearray(encode_batch(records, codec=Codec.NONE)[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(payload) - 1))
        size = data.draw(st.integers(0, 2))
        payload[at : at + size] = data.draw(st.binary(max_size=2))
        payload += b"\x00" * (not payload)
    same_verdict(rebuilt(encode_batch(records, codec=codec), codec, bytes(payload)), columns)


def rebuilt(batch: bytes | bytearray, codec: Codec, payload: bytes) -> bytes:
    """Return the batch with another payload, the same header fields, and the right length."""
    made = bytearray(batch[:HEADER_BYTES]) + compress(codec, payload)
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("row", "count", "said"),
    [
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", 1, "1 bytes are left after its 1 records"),
        (
            b"\x0e\x00\x00\x00\x01\x01\x00\x00",
            1,
            "fields end at byte 7, expected 8 according to its length",
        ),
        (
            b"\x0a\x00\x00\x00\x01\x01\x00",
            1,
            "fields end at byte 7, expected 6 according to its length",
        ),
        (b"\x0e\x00\x00\x00\x01\x01\x00", 1, "its length is 7, expected 0 to 6"),
        (b"\x01\x00\x00\x00\x01\x01\x00", 1, "its length is -1, expected 0 to 6"),
        (b"\x0c\x00\x00\x00\x01\x01\x02", 1, "the number of headers is 1, expected 0 to 0"),
        (b"\x0c\x00\x00\x02\x01\x01\x00", 1, "its offset delta is 1, expected 0 to 0"),
        (b"\x0c\x00\x00\x00\x02\x01\x00", 1, "the data ends inside the record"),
        (b"\x0c\x00\x00\x00\x01\x01\x00", 2, "record 1 of 2 is corrupt: the data ends"),
        (b"\x0c\x00" + b"\x80" * 11, 1, "longer than 10 bytes"),
    ],
    ids=[*"abcdefghij"],
)
def test_lengths_that_lead_nowhere(codec: Codec, row: bytes, count: int, said: str) -> None:
    batch = bytearray(encode_batch(SAMPLE[:1], codec=codec))
    batch[23:27] = (count - 1).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    with pytest.raises(CorruptData) as error:
        rows_of(rebuilt(batch, codec, row), ["offset"])
    assert said in error.value.message


def same_verdict(damaged: bytes, columns: Sequence[str]) -> None:
    """Check that both decoders find the same rows, or that both find the batch corrupt."""
    verdicts: list[object] = []
    for decode in (_by_records(columns), _by_columns(columns)):
        try:
            verdicts.append(decode(damaged))
        except CorruptData as error:
            assert error.code == "CORRUPT_BATCH"
            verdicts.append("corrupt")
    assert verdicts[0] == verdicts[1]


def _by_records(columns: Sequence[str]) -> Any:
    def decode(data: bytes) -> list[dict[str, Any]]:
        header = read_header(memoryview(data))
        kind = 1 if header.is_log_append_time else 0
        whole = decode_batch(memoryview(data), LIMIT)
        return expected([one for one in whole if one.offset < WHOLE[1]], columns, kind)

    return decode


def _by_columns(columns: Sequence[str]) -> Any:
    return lambda data: rows_of(data, columns)


@pytest.mark.parametrize("codec", Codec)
def test_every_prefix_of_a_payload_is_corrupt(codec: Codec) -> None:
    batch = bytes(encode_batch(SAMPLE, codec=codec))
    header = read_header(memoryview(batch))
    for length in range(HEADER_BYTES, len(batch), 7):
        with pytest.raises(CorruptData):
            list(
                ColumnDecoder(TP, ALL, LIMIT).decode_batch(
                    header, memoryview(batch)[:length], *WHOLE
                )
            )


def test_a_chunk_ends_within_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "CHUNK_ROWS", 4)
    records = [Record(at, NOW_MS + at, b"%d" % at, None) for at in range(11)]
    batch = memoryview(encode_batch(records, codec=Codec.NONE))
    decoder = ColumnDecoder(TP, ALL)
    chunks = list(decoder.decode_batch(read_header(batch), batch, *WHOLE))
    chunks += decoder.last_chunk()
    assert [chunk.num_rows for chunk in chunks] == [4, 4, 3]
    assert rows_of(batch) == expected(records)


@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_a_chunk_has_few_bytes(size: int) -> None:
    records = [Record(at, NOW_MS + at, None, b"v" * (at % 7 * size)) for at in range(40)]
    decoder = ColumnDecoder(TP, ALL, chunk_bytes=2500)
    chunks: list[Any] = []
    for some in (records[:25], records[25:]):
        batch = memoryview(encode_batch(some, codec=Codec.LZ4, base_offset=some[0].offset))
        chunks += decoder.decode_batch(read_header(batch), batch, 3, 37)
    chunks += decoder.last_chunk()
    offsets = [chunk.column("offset").to_pylist() for chunk in chunks]
    assert [at for some in offsets for at in some] == [*range(3, 37)]
    for some in offsets:
        assert len(some) == 1 or sum(at % 7 * size for at in some[:-1]) < 2500
    assert len(chunks) == 1 if size == 1 else len(chunks) > 1


def test_a_batch_that_claims_millions_of_records_holds_a_chunk_at_a_time() -> None:
    # Each row is the smallest possible record: length 6, then zeros. With this offset delta, it is
    # corrupt from the second row on.
    row = b"\x0c\x00\x00\x00\x01\x01\x00"
    payload = bytes(compress(Codec.GZIP, row * 100_000))
    batch = bytearray(encode_batch(SAMPLE[:1], codec=Codec.GZIP)[:HEADER_BYTES]) + payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = (2**31 - 2).to_bytes(4, "big")
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match="record 1 of 2147483647"):
            rows_of(batch)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_schema_says_which_columns_are_read() -> None:
    assert check_columns([("value", "binary"), ("offset", "bigint")]) == ("value", "offset")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("ofset", "bigint"), "did you mean offset?"),
        (("xyz", "string"), "the columns are key, value, topic"),
        (("value", "string"), "column value is binary, not string; cast it after reading"),
    ],
    ids=["misspelt", "other", "type"],
)
def test_a_schema_cannot_rename_or_convert(given: tuple[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_columns([given])
    assert said in error.value.message


def test_epoch_is_where_kafka_has_it() -> None:
    (row,) = rows_of(encode_batch([Record(0, 1, None, None)], codec=Codec.NONE), ["timestamp"])
    assert _EPOCH + timedelta(microseconds=row["timestamp"]) == datetime(
        1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC
    )
