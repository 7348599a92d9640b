"""DataFrames without compiled kernels. An independent client reads what the kernels' Python twin
writes, and the twin reads the same rows as the compiled kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.client import Outgoing, Seen, produce_transaction, read_all
from tests.support.kernel_fuzz import use
from tests.support.topics import create_topic, delete_topic
from tests.support.write_loop import options_for
from twinlog.records.batch_reader import BatchReader
from twinlog.records.columns import all_columns
from twinlog.records.decoding import HEADER
from twinlog.records.options import parse_options
from twinlog.records.source import warn_of_slow_kernels
from twinlog.records.write import transaction
from twinlog.records.write.writers import write_rows
from twinlog.sandbox import LocalCluster
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.twin import TWIN
from twinlog.wire.record_batch import Codec

pytestmark = pytest.mark.broker

NOW_MS = 1_790_000_000_000
ROWS = 200


@pytest.fixture
def topic(source_cluster: LocalCluster, fresh_topic: str) -> Iterator[str]:
    create_topic(source_cluster, fresh_topic, 3)
    yield fresh_topic
    delete_topic(source_cluster, fresh_topic)


def columns() -> pa.RecordBatch:
    """Return columns with every kind of null, and rows with and without a key."""
    numbers = range(ROWS)
    times = [(NOW_MS + at) * 1000 for at in numbers]
    headers = [
        [("trace", b"%d" % at), ("trace", None), ("", b"")] if at % 3 == 0 else None
        for at in numbers
    ]
    return pa.record_batch(
        {
            "key": pa.array([None if at % 4 == 0 else b"%d" % (at % 7) for at in numbers]),
            "value": pa.array([None if at % 5 == 0 else "v" * at for at in numbers]),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "headers": pa.array(headers, pa.list_(HEADER)),
        }
    )


def write(cluster: LocalCluster, topic: str, codec: Codec) -> None:
    options = options_for(
        cluster.bootstrap, topic, f"w-{codec}", **{"kafka.compression.type": codec.name.lower()}
    )
    begun = transaction.begin(options, 0)
    transaction.commit(options, [write_rows(options, begun, iter([columns()]))], 0)


def read(cluster: LocalCluster, topic: str) -> list[dict[str, Any]]:
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": topic,
        "includeHeaders": "true",
    }
    reader = BatchReader(parse_options(given, is_stream=False), all_columns(headers=True))
    found = [rows for part in reader.partitions() for rows in reader.read(part)]
    return [row for rows in found for row in rows.to_pylist()]


def as_seen(rows: Sequence[dict[str, Any]]) -> list[Seen]:
    return [
        Seen(
            partition=row["partition"],
            offset=row["offset"],
            key=row["key"],
            value=row["value"],
            headers=tuple((one["key"], one["value"]) for one in row["headers"] or ()),
            timestamp=round(row["timestamp"].timestamp() * 1000),
            timestamp_type=row["timestampType"] + 1,
        )
        for row in rows
    ]


def test_rows_are_the_same_without_a_compiler(
    source_cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with use(TWIN):
        warn_of_slow_kernels()
        assert "[KERNELS_MISSING]" in caplog.text
        for codec in Codec:
            write(source_cluster, topic, codec)
        produce_transaction(source_cluster, topic, [Outgoing(b"k", b"gone")], commit=False)
        by_twin = read(source_cluster, topic)
    seen = read_all(source_cluster, topic, isolation="read_committed")
    assert len(seen) == ROWS * len(Codec)
    assert as_seen(by_twin) == seen
    if CHOSEN.is_compiled:
        assert read(source_cluster, topic) == by_twin


def test_rows_are_placed_the_same_without_a_compiler(
    source_cluster: LocalCluster, topic: str
) -> None:
    with use(TWIN):
        write(source_cluster, topic, Codec.NONE)
    with use(CHOSEN.kernels):
        write(source_cluster, topic, Codec.GZIP)
    seen = read_all(source_cluster, topic, isolation="read_committed")
    for partition in range(3):
        rows = [(one.key, one.value, one.headers) for one in seen if one.partition == partition]
        assert rows[: len(rows) // 2] == rows[len(rows) // 2 :]
