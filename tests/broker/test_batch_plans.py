"""The plan of a batch of `format("twinlog")` that begins and ends by time, tested without a Spark
session.

 `test_reader.py` tests the other options for the start and the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.client import Outgoing, produce
from tests.support.topics import create_topic, delete_topic
from twinlog.errors import ConfigError
from twinlog.records.batch_reader import BatchReader
from twinlog.records.options import parse_options
from twinlog.records.tasks import RangesPartition
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

NOW_MS = 1_790_000_000_000
LATER = NOW_MS + 60_000
Spans = list[tuple[int, int]]


@pytest.fixture
def topic(source_cluster: LocalCluster, fresh_topic: str) -> Iterator[str]:
    """A topic whose records are one second apart: ten in the first partition, five in the
    second.
    """
    create_topic(source_cluster, fresh_topic, 2)
    for partition, count in enumerate((10, 5)):
        records = [
            Outgoing(b"k", b"%d" % at, (), NOW_MS + 1000 * at, partition) for at in range(count)
        ]
        produce(source_cluster, fresh_topic, records)
    yield fresh_topic
    delete_topic(source_cluster, fresh_topic)


@pytest.fixture
def cluster(source_cluster: LocalCluster) -> LocalCluster:
    return source_cluster


def spans(cluster: LocalCluster, topic: str, **options: object) -> Spans:
    """Return the offsets [first, end) of each partition, in the order of the partitions."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}
    given |= {name: str(value) for name, value in options.items()}
    reader = BatchReader(parse_options(given, is_stream=False), ["value"])
    found = []
    for part in reader.partitions():
        assert isinstance(part, RangesPartition)
        found += [one for one, _ in part.parts()]
    return [(one.first, one.end) for one in sorted(found, key=lambda one: one.tp)]


def each(topic: str, *times: int) -> str:
    return json.dumps({topic: {str(partition): at for partition, at in enumerate(times)}})


def test_one_time_for_all_partitions(cluster: LocalCluster, topic: str) -> None:
    second = NOW_MS + 2000
    assert spans(cluster, topic, startingTimestamp=second) == [(2, 10), (2, 5)]
    # the plan begins at the first record that is not older than the time
    assert spans(cluster, topic, startingTimestamp=second + 1) == [(3, 10), (3, 5)]
    assert spans(cluster, topic, endingTimestamp=second) == [(0, 2), (0, 2)]
    assert spans(cluster, topic, endingTimestamp=NOW_MS + 7500) == [(0, 8), (0, 5)]
    assert spans(cluster, topic, endingTimestamp=LATER) == [(0, 10), (0, 5)]
    assert spans(cluster, topic, startingTimestamp=second, endingTimestamp=NOW_MS + 4000) == [
        (2, 4),
        (2, 4),
    ]
    # startingTimestamp takes precedence over the other options, as in Spark
    assert spans(
        cluster, topic, startingTimestamp=second, startingOffsetsByTimestamp=each(topic, 0, 0)
    ) == [(2, 10), (2, 5)]


def test_a_time_for_each_partition(cluster: LocalCluster, topic: str) -> None:
    begins, ends = each(topic, NOW_MS + 3000, NOW_MS + 1000), each(topic, NOW_MS + 6000, LATER)
    assert spans(cluster, topic, startingOffsetsByTimestamp=begins) == [(3, 10), (1, 5)]
    assert spans(cluster, topic, endingOffsetsByTimestamp=ends) == [(0, 6), (0, 5)]
    assert spans(
        cluster, topic, startingOffsetsByTimestamp=begins, endingOffsetsByTimestamp=ends
    ) == [(3, 6), (1, 5)]
    with pytest.raises(ConfigError, match=f"{topic}-1 is missing; name all partitions"):
        spans(cluster, topic, endingOffsetsByTimestamp=each(topic, NOW_MS))


def test_no_record_is_so_new(cluster: LocalCluster, topic: str) -> None:
    says = f"{topic}-1 has no record at or after {NOW_MS + 7000}"
    with pytest.raises(ConfigError, match=says):
        spans(cluster, topic, startingTimestamp=NOW_MS + 7000)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert spans(cluster, topic, startingTimestamp=NOW_MS + 7000, **latest) == [(7, 10)]
