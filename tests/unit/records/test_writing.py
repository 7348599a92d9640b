"""Options of writing, and what columns become: without brokers, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from twinlog.errors import ConfigError, TwinlogError
from twinlog.mirror.copy.partitioner import partition_for_key
from twinlog.records.write.options import WriteOptions, parse_write_options
from twinlog.records.write.placing import distribute
from twinlog.records.write.rows import check_schema, strings_of, table_of_columns
from twinlog.wire.record import Record
from twinlog.wire.record_batch import Codec
from twinlog.wire.rows import Rows

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}
STREAM = {**BROKERS, "topic": "t", "checkpointLocation": "s3://a/b"}
NOW_MS = 1_790_000_000_000


def stream(**more: str) -> WriteOptions:
    return parse_write_options({**STREAM, **more}, is_stream=True)


def test_defaults() -> None:
    found = stream()
    assert (found.codec, found.timeout_ms, found.needs_mark) == (Codec.NONE, 900_000, True)
    assert found.write_id == ""
    batch = parse_write_options({**BROKERS, "topic": "t"}, is_stream=False)
    assert batch.write_id
    assert batch.transactional_id.startswith("twinlog-")
    assert batch.cluster().client_id == "twinlog-writer"


def test_runs_of_one_checkpoint_have_one_transactional_id() -> None:
    first = stream().transactional_id
    assert stream(checkpointLocation="s3://a/b/").transactional_id == first
    assert stream(checkpointLocation="s3://a/c").transactional_id != first
    assert stream(**{"kafka.transactional.id": "mine"}).transactional_id == "mine"
    writes = [parse_write_options({**BROKERS, "writeid": "day"}, is_stream=False) for _ in "ab"]
    assert len({one.transactional_id for one in writes}) == 1
    unnamed = [parse_write_options(BROKERS, is_stream=False) for _ in "ab"]
    assert len({one.transactional_id for one in unnamed}) == 2


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"checkpointLocation": ""}, "kafka.transactional.id: missing"),
        ({"writeId": "x"}, "writeId: it is of batches only"),
        ({"missingMark": "skip"}, "missingMark: 'skip' is none; write fail or write"),
        ({"kafka.enable.idempotence": "false"}, "a transaction needs another value; write true"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer: it cannot be set"),
        ({"kafka.transaction.timeout.ms": "0"}, "'0' is no positive number"),
        ({"kafka.group.id": "x"}, "Kafka's producers do not have this key"),
        ({"topik": "x"}, "did you mean topic"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers: missing"),
    ],
)
def test_what_is_wrong(more: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        stream(**more)


def test_a_password_is_not_shown() -> None:
    assert "hunter2" not in repr(stream(**{"kafka.sasl.jaas.config": 'password="hunter2"'}))


def test_columns_that_are_not_written_are_named() -> None:
    schema = StructType().add("value", "string").add("offset", "long").add("price", "long")
    assert check_schema(schema, has_topic=True) == ("price",)
    with pytest.raises(ConfigError, match="there is no topic"):
        check_schema(schema, has_topic=False)


def records_of(columns: dict[str, Any]) -> list[Record]:
    batch = pa.record_batch(columns)
    table = table_of_columns(dict(zip(columns, batch.columns, strict=True)), len(batch), NOW_MS)
    return Rows.of(table).records()


def test_columns_become_records() -> None:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "key": pa.array([b"k", None, b""], pa.binary()),
        "value": pa.array(["v", "", None], pa.large_string()),
        "headers": pa.array([[("a", b"1"), ("b", None)], None, []], header),
        "timestamp": pa.array([1_001_999, None, 0], pa.timestamp("us", tz="Europe/Paris")),
    }
    assert records_of(columns) == [
        Record(0, 1001, b"k", b"v", (("a", b"1"), ("b", None))),
        Record(1, NOW_MS, None, b"", ()),
        Record(2, 0, b"", None, ()),
    ]
    # a batch may be a slice of another one, its columns not beginning at 0
    part = {name: one.slice(1, 2) for name, one in columns.items()}
    assert [one.key for one in records_of(part)] == [None, b""]
    assert [one.timestamp for one in records_of(part)] == [NOW_MS, 0]


def test_rows_that_cannot_be_records() -> None:
    value = pa.array(["v"])
    with pytest.raises(TwinlogError, match="before 1970") as error:
        records_of({"value": value, "timestamp": pa.array([-1], pa.timestamp("us", tz="UTC"))})
    assert error.value.code == "ROW_INVALID"


def test_a_slice_of_a_column() -> None:
    found = strings_of(pa.array(["ab", None, "", "cdef"]).slice(1, 3))
    assert list(found.sizes) == [-1, 0, 4]
    assert found.data[found.starts[2] : found.starts[2] + 4] == b"cdef"


def test_rows_are_placed_by_key_or_in_turn() -> None:
    keys = pa.array([b"a", None, b"b", None, b"c", None], pa.binary())
    given = pa.array([None, None, 5, None, None, None], pa.int32())
    where, turn = distribute(keys, given, 3, 2)
    a, c = (partition_for_key(key, 3) for key in (b"a", b"c"))
    assert where.to_pylist() == [a, 2, 5, 0, c, 1]
    assert turn == 5
    assert distribute(None, pa.array([None, None], pa.int32()), 3, 1)[0].to_pylist() == [1, 2]
    whole = pa.array([1, 2], pa.int32())
    assert distribute(None, whole, 3, 0)[0] is whole
