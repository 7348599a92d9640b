"""Options of writing, and the records that are made from columns, without brokers or Spark."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.transactions import NO_PRODUCER
from twinlog.config.keys.client_keys import CLIENT_KEYS, Role
from twinlog.errors import ConfigError, TwinlogError
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.model import TopicPartition
from twinlog.records.given import OPTIONS
from twinlog.records.write import transaction
from twinlog.records.write.options import REFUSED_KEYS, WriteOptions, parse_write_options
from twinlog.records.write.packing import UNTIMED_MS, Gatherer, packed
from twinlog.records.write.partitioning import max_batch_bytes, partitioned
from twinlog.records.write.rows import (
    RowPartitioner,
    check_schema,
    strings_of,
    table_of_columns,
    warn_of_others,
)
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, Rows, rows_of

pytestmark = pytest.mark.usefixtures("each_kernels")

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


def test_an_unknown_retention_fails_no_commit() -> None:
    options = stream(**{"kafka.bootstrap.servers": "127.0.0.1:1"})
    result = transaction.TaskResult(
        identity=NO_PRODUCER, query="", rows={}, oldest_ms={"t": 1}, placed_among=0
    )
    with ClusterClient(options.cluster(), refused_s=0.0) as client:
        transaction._warn_of_old(client, [result])


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
        ({"writeId": "x"}, "writeId: only batches have it"),
        ({"missingMark": "skip"}, "missingMark: 'skip' is not a valid value; write fail or write"),
        (
            {"kafka.enable.idempotence": "no"},
            "kafka.enable.idempotence: 'no' is not a valid value; write true",
        ),
        ({"kafka.acks": "2"}, "kafka.acks: '2' is not a valid value; write all"),
        *(({f"kafka.{key}": "x"}, f"kafka.{key}: it cannot be set; ") for key in REFUSED_KEYS),
        ({"kafka.transaction.timeout.ms": "0"}, "'0' is not a positive number"),
        ({"kafka.group.idd": "x"}, "did you mean kafka.group.id?"),
        ({"topik": "x"}, "did you mean topic"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers: missing"),
    ],
)
def test_invalid_options_of_writing(more: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        stream(**more)


@pytest.mark.parametrize(
    ("key", "value", "always"),
    [("acks", "1", "all"), ("acks", "0", "all"), ("enable.idempotence", "false", "true")],
)
def test_a_weaker_setting_is_accepted_and_reported(
    key: str, value: str, always: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream(**{f"kafka.{key}": value})
    assert f"option kafka.{key} has no effect: a transaction always has {always}" in caplog.text
    caplog.clear()
    stream(**{f"kafka.{key}": always})
    assert caplog.text == ""


def test_keys_and_options_of_readers_are_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = CLIENT_KEYS[Role.CONSUMER] - CLIENT_KEYS[Role.PRODUCER]
    names = {*OPTIONS[Role.CONSUMER]} - {*OPTIONS[Role.PRODUCER]}
    given = {f"kafka.{key}" for key in keys} | names
    assert {"kafka.group.id", "kafka.auto.offset.reset", "maxOffsetsPerTrigger"} <= given
    stream(**dict.fromkeys(given, "1"))
    missing = [one for one in given if f"option {one} has no effect: " not in caplog.text]
    assert missing == []


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
    # a batch may be a slice of another one, so its columns do not begin at 0
    part = {name: one.slice(1, 2) for name, one in columns.items()}
    assert [one.key for one in records_of(part)] == [None, b""]
    assert [one.timestamp for one in records_of(part)] == [NOW_MS, 0]


HEADER_LISTS: Final[list[Any]] = [
    [{"key": "a", "value": b"1"}, {"key": "", "value": None}],
    None,
    [],
    [{"key": "\u20ac" * 40, "value": b""}] * 70,
]


@pytest.mark.parametrize("begin", range(4))
def test_headers_of_a_slice(begin: int) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array(HEADER_LISTS * 3, kind).slice(begin, 7)
    records = records_of({"value": pa.array(["v"] * 7), "headers": headers})
    assert [one.headers for one in records] == [
        tuple((header["key"], header["value"]) for header in one or ())
        for one in (HEADER_LISTS * 3)[begin : begin + 7]
    ]


def test_headers_under_a_null_are_not_written() -> None:
    """Arrow can store values below a null list, which are not visible. They must not be written as
    headers.
    """
    kind = pa.struct([("key", pa.string()), ("value", pa.binary())])
    entries = pa.array([{"key": "a", "value": b"1"}, {"key": None, "value": b"2"}], kind)
    null = pa.py_buffer(b"\x01")
    ends = pa.py_buffer(array("i", [0, 1, 2]))
    headers = pa.Array.from_buffers(pa.list_(kind), 2, [null, ends], children=[entries])
    records = records_of({"value": pa.array(["v", "w"]), "headers": headers})
    assert [one.headers for one in records] == [(("a", b"1"),), ()]


@pytest.mark.parametrize("wrong", [None, {"key": None, "value": b"1"}])
def test_headers_without_a_key(wrong: dict[str, Any] | None) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([None, [{"key": "a", "value": b"1"}, wrong]], kind)
    with pytest.raises(TwinlogError, match="headers without a key") as error:
        records_of({"value": pa.array(["v", "w"]), "headers": headers})
    assert error.value.code == "ROW_INVALID"


def test_rows_of_each_topic_are_in_order() -> None:
    partitioner = RowPartitioner("", lambda _: 2, now_ms=NOW_MS, turn=1)
    columns = {
        "value": pa.array(["v"] * 6),
        "topic": pa.array(["b", "a", "b", "", "a", "b"]),
        "partition": pa.array([0, None, 1, None, 0, 0], pa.int32()),
    }
    found = {
        (tp.topic, tp.partition): list(rows.offsets())
        for tp, rows in partitioner.rows_by_partition(columns, 6)
    }
    assert found == {("b", 0): [0, 5], ("b", 1): [2], ("a", 0): [4], ("a", 1): [1], ("", 1): [3]}
    # the dictionary's order is not the order in which the topics occur
    numbers = pa.array([2, 1, 2, 0, 1, 2], pa.int32())
    columns["topic"] = pa.DictionaryArray.from_arrays(numbers, pa.array(["", "a", "b"]))
    again = RowPartitioner("", lambda _: 2, now_ms=NOW_MS, turn=1).rows_by_partition(columns, 6)
    assert {(tp.topic, tp.partition): list(rows.offsets()) for tp, rows in again} == found
    columns["topic"] = pa.array(["b", None, "b", "", None, "b"])
    with pytest.raises(TwinlogError, match="2 rows have no topic"):
        list(partitioner.rows_by_partition(columns, 6))


def test_rows_that_cannot_be_records() -> None:
    value = pa.array(["v"])
    with pytest.raises(TwinlogError, match="before 1970") as error:
        records_of({"value": value, "timestamp": pa.array([-1], pa.timestamp("us", tz="UTC"))})
    assert error.value.code == "ROW_INVALID"


def test_a_slice_of_a_column() -> None:
    found = strings_of(pa.array(["ab", None, "", "cdef"]).slice(1, 3))
    assert list(found.sizes) == [-1, 0, 4]
    assert found.data[found.starts[2] : found.starts[2] + 4] == b"cdef"


def partitioned_rows(columns: dict[str, Any], *, turn: int | None) -> dict[int, list[int]]:
    """Return the row numbers in each of the three partitions."""
    partitioner = RowPartitioner("t", lambda _: 3, now_ms=NOW_MS, turn=turn)
    found = partitioner.rows_by_partition(columns, len(columns["value"]))
    return {tp.partition: list(rows.offsets()) for tp, rows in found}


def test_rows_are_placed_by_key_or_in_one_partition() -> None:
    value = pa.array([str(row) for row in range(6)])
    keys = pa.array([b"a", None, b"b", None, b"c", None], pa.binary())
    given = pa.array([None, None, 2, None, None, None], pa.int32())
    expected: dict[int, list[int]] = {}
    a, c = (partition_for_key(key, 3) for key in (b"a", b"c"))
    for row, partition in enumerate([a, 1, 2, 1, c, 1]):
        expected.setdefault(partition, []).append(row)
    assert partitioned_rows({"key": keys, "value": value, "partition": given}, turn=4) == expected
    assert partitioned_rows({"value": value}, turn=1) == {1: list(range(6))}


def test_rows_without_a_key_are_placed_the_same_in_any_order() -> None:
    """A task that runs again after a shuffle gets its rows without keys in another order. Each row
    must still get the same partition.
    """
    values = [str(row) for row in range(90)]
    key, times = pa.array([None] * 90, pa.binary()), pa.array(range(90), pa.timestamp("ms", "UTC"))
    columns = {"key": key, "value": pa.array(values), "timestamp": times}
    found = partitioned_rows(columns, turn=None)
    again = partitioned_rows({**columns, "value": pa.array(values[::-1])}, turn=None)
    assert {p: sorted(89 - row for row in rows) for p, rows in again.items()} == found
    assert sorted(found) == [0, 1, 2]
    assert all(len(rows) > 15 for rows in found.values())


TIMES = [[1001, 1002], [None, None], [1001, None]]


@pytest.mark.parametrize("times", TIMES, ids=["all", "none", "some"])
@pytest.mark.parametrize("binary", [pa.binary(), pa.large_binary()], ids=str)
def test_packed_rows_are_the_same_records(times: list[int | None], binary: pa.DataType) -> None:
    columns = {
        "key": pa.array([b"k", b"k"], pa.binary()),
        "value": pa.array(["v", None], pa.string()),
        "timestamp": pa.array([one and one * 1000 for one in times], pa.timestamp("us", tz="UTC")),
    }
    packs = RowPartitioner("t", lambda _: 3, now_ms=UNTIMED_MS, turn=0)
    cuts = {tp: [rows] for tp, rows in packs.rows_by_partition(columns, 2)}
    batch = packed(cuts, Codec.LZ4, binary)
    partitioner = RowPartitioner("t", lambda _: 3, now_ms=NOW_MS, turn=0)
    ((tp, found),) = partitioner.by_partition(batch)
    assert tp == TopicPartition("t", partition_for_key(b"k", 3))
    rows = found if isinstance(found, Rows) else found.rows()
    assert len(found) == len(rows) == 2
    assert [(one.timestamp, one.key, one.value) for one in rows.records()] == [
        (one or NOW_MS, b"k", value) for one, value in zip(times, (b"v", None), strict=True)
    ]
    assert partitioner.oldest_ms == ({} if times[0] is None else {"t": 1001})


@pytest.mark.parametrize("binary", [pa.binary(), pa.large_binary()], ids=str)
def test_packed_rows_of_several_topics(binary: pa.DataType) -> None:
    """`partitioned` has packed rows of several topics, which have different partition counts. Each
    row gets the partition that its key has in its own topic.
    """
    counts = {"one": 1, "five": 5}.__getitem__
    columns = {
        "topic": pa.array(["five", "one", "five"]),
        "key": pa.array([b"a", b"a", b"b"], pa.binary()),
        "value": pa.array(["1", "2", "3"]),
    }
    packs = RowPartitioner("", counts, now_ms=UNTIMED_MS, turn=None)
    cuts = {tp: [rows] for tp, rows in packs.rows_by_partition(columns, 3)}
    batch = packed(cuts, Codec.NONE, binary, has_topic=False)
    found: dict[TopicPartition, list[bytes | None]] = {}
    for tp, some in RowPartitioner("", counts, now_ms=NOW_MS, turn=0).by_partition(batch):
        rows = some if isinstance(some, Rows) else some.rows()
        found.setdefault(tp, []).extend(one.value for one in rows.records())
    expected = {TopicPartition("one", 0): [b"2"]}
    for key, value in ((b"a", b"1"), (b"b", b"3")):
        tp = TopicPartition("five", partition_for_key(key, 5))
        expected.setdefault(tp, []).append(value)
    assert found == expected


def test_a_packed_batch_for_a_partition_that_is_not_there() -> None:
    batch = packed(
        {TopicPartition("t", 7): [rows_of([Record(0, 1, b"", b"", ())])]}, Codec.NONE, pa.binary()
    )
    partitioner = RowPartitioner("t", lambda _: 3, now_ms=NOW_MS, turn=0)
    with pytest.raises(TwinlogError, match="rows have partition 7, but t has 3 p") as error:
        list(partitioner.by_partition(batch))
    assert error.value.code == "ROW_INVALID"


def test_a_write_has_the_topic_that_its_packed_rows_have() -> None:
    schema = StructType().add("partition", "integer").add("record_batch", "binary")
    schema = schema.add("least_timestamp", "long").add("offset", "long")
    assert check_schema(schema, has_topic=True) == ()
    with pytest.raises(ConfigError, match=r"has no option topic.*; give both the same options"):
        check_schema(schema, has_topic=False)
    routed = StructType([*schema.fields]).add("topic", "string")
    assert check_schema(routed, has_topic=False) == ()
    with pytest.raises(ConfigError, match=r"has the option topic.*; give both the same options"):
        check_schema(routed, has_topic=True)
    for changed in (
        StructType(schema.fields[:2]),
        StructType([*schema.fields]).add("value", "string"),
        StructType([*schema.fields]).add("headers", "string"),
        StructType([*schema.fields]).add("timestamp", "timestamp"),
    ):
        with pytest.raises(ConfigError, match="change rows before `partitioned`, which must be"):
            check_schema(changed, has_topic=True)


def test_rows_are_partitioned_once() -> None:
    packed_already: Any = SimpleNamespace(columns=["partition", "record_batch", "least_timestamp"])
    with pytest.raises(ConfigError, match="is called twice; call it once, as the last step"):
        partitioned(packed_already, {**BROKERS, "topic": "t"})


def test_columns_that_are_not_written_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    schema = StructType().add("value", "string").add("offset", "long").add("price", "double")
    warn_of_others(check_schema(schema.add("timestampType", "integer"), has_topic=True))
    assert caplog.messages == ["columns that Kafka records do not have are ignored: price"]


def test_rows_of_large_tables_do_not_wait_forever() -> None:
    """A partition that gets only one row of each large table must not keep all of these tables in
    memory. Its rows must be written after every eighth table.
    """
    gatherer, tp = Gatherer(1 << 20), TopicPartition("t", 0)
    for at in range(20):
        large = rows_of([Record(0, 1, b"k", b"x" * (8 << 20), ()), Record(1, 1, b"k", b"y", ())])
        due = gatherer.add(tp, large.slice(1, 2))
        assert [len(one) for one in due.get(tp, [])] == ([8] if at % 8 == 7 else [])


def test_waiting_rows_are_bounded() -> None:
    gatherer = Gatherer(1000)
    rows = rows_of([Record(0, 1, None, b"x" * 320, ())])
    one, other = TopicPartition("t", 0), TopicPartition("t", 1)
    assert gatherer.add(one, rows) == gatherer.add(other, rows) == gatherer.add(one, rows) == {}
    assert [len(cut) for cut in gatherer.add(one, rows)[one]] == [1, 2]
    assert list(gatherer.pop_all()) == [other]
    assert gatherer.pop_all() == gatherer.pop(one) == {}
    many = rows_of([Record(at, 1, None, b"x" * 300, ()) for at in range(10)])
    assert [len(cut) for cut in gatherer.add(one, many)[one]] == [2, 3, 2, 3]


@pytest.mark.parametrize(
    ("limit", "rows", "most"),
    [
        ("64MB", "10000", 1 << 20),  # the default of Spark 4.3
        ("256MB", "0", 1 << 20),  # the default of Spark 4.0
        ("268435456b", "0", 1 << 20),
        ("2147483647", "10000", (512 << 20) // 10000),  # only the number of rows is limited
        ("2g", "1000000", 16 << 10),
        ("", "0", 16 << 10),
        ("-1", "100", 1 << 20),
    ],
)
def test_batches_are_small_where_spark_only_counts_them(limit: str, rows: str, most: int) -> None:
    assert max_batch_bytes(stream(), limit, rows) == most
