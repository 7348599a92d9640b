"""Reports of a `format("twinlog")` task about offsets without rows, without a Spark session. Each
cause has its code and its range. A complete log causes no report.
"""

from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import surgery
from tests.support.client import Outgoing, eventually, produce, produce_transaction, read_all
from tests.support.groups import CLEAN_SOON
from tests.support.topics import apply_topic_configs, create_topic, delete_records, delete_topic
from twinlog.errors import RecordsLost
from twinlog.model import TopicPartition
from twinlog.records import tasks
from twinlog.records.batch_reader import BatchReader
from twinlog.records.gaps import OffsetRange
from twinlog.records.options import parse_options
from twinlog.records.tasks import RangesPartition
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

CODES = ("RETENTION", "TRUNCATED", "LOG_GAP", "COMPACTION", "TRANSACTIONS")


@pytest.fixture
def topic(source_cluster: LocalCluster, fresh_topic: str) -> Iterator[str]:
    create_topic(source_cluster, fresh_topic)
    yield fresh_topic
    delete_topic(source_cluster, fresh_topic)


class Table:
    """A topic of one partition that a query reads: the test plans the query and runs the reader of
    its tasks.
    """

    def __init__(self, cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture) -> None:
        self.cluster, self.topic, self._caplog = cluster, topic, caplog

    def _reader(self, **options: object) -> BatchReader:
        given = {"kafka.bootstrap.servers": self.cluster.bootstrap, "subscribe": self.topic}
        given |= {name: str(value).lower() for name, value in options.items()}
        return BatchReader(parse_options(given, is_stream=False), ["offset", "value"])

    def task(self, first: int, end: int, **options: object) -> list[int]:
        """Read as one task, and return the values of the rows in [first, end)."""
        reader = self._reader(**options)
        wanted = OffsetRange(tp=TopicPartition(self.topic, 0), first=first, end=end)
        return self._rows(reader, [RangesPartition([wanted])])

    def all(self, **options: object) -> list[int]:
        reader = self._reader(**options)
        return self._rows(reader, reader.partitions())

    def _rows(self, reader: BatchReader, parts: Any) -> list[int]:
        self._caplog.clear()
        task = pickle.loads(pickle.dumps(reader))  # noqa: S301 (our own)
        with self._caplog.at_level(logging.INFO, "twinlog"):
            found = [rows for part in parts for rows in task.read(part)]
        return [int(value) for rows in found for value in rows.column("value").to_pylist()]

    def said(self) -> list[str]:
        """Return the log lines about gaps of the last read, without the name of the partition."""
        lines = [one.getMessage() for one in self._caplog.records if one.name.endswith(".gaps")]
        assert all(line.startswith(f"{self.topic}-0: ") for line in lines)
        assert all(any(line.endswith(f"[{code}]") for code in CODES) for line in lines)
        return [line.removeprefix(f"{self.topic}-0: ") for line in lines]


@pytest.fixture
def table(source_cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture) -> Table:
    return Table(source_cluster, topic, caplog)


def put(table: Table, first: int, end: int, **more: Any) -> None:
    """Write records with the values [first, end) as one batch."""
    records = [Outgoing(b"k", b"%d" % at) for at in range(first, end)]
    produce(table.cluster, table.topic, records, linger_ms=200, **more)


@pytest.fixture
def hole(table: Table) -> Table:
    """Write offsets [0, 30), and remove [10, 20) from the broker's file. They are the end of a
    segment, so the broker skips them.
    """
    put(table, 0, 10)
    put(table, 10, 20)
    apply_topic_configs(table.cluster, table.topic, {"segment.ms": "500"})
    put(table, 20, 30)  # begins a new segment
    surgery.swell_length(table.cluster, TopicPartition(table.topic, 0), 10)
    return table


@pytest.mark.witness("readers detect a gap in a log", case="in one answer")
@pytest.mark.parametrize("batches", ["in one answer", "in many"])
def test_a_hole_in_a_log(hole: Table, batches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if batches == "in many":
        monkeypatch.setattr(tasks, "FIRST_BYTES", 1)
    with pytest.raises(RecordsLost, match=r"offsets \[10, 20\) are missing inside") as caught:
        hole.all()
    assert (caught.value.code, caught.value.lost) == ("LOG_GAP", (10, 20))
    assert "failOnDataLoss=false" in caught.value.message
    assert hole.all(failOnDataLoss=False) == [*range(10), *range(20, 30)]
    (line,) = hole.said()
    assert line.startswith("offsets [10, 20) are missing inside the log")
    assert line.endswith("[LOG_GAP]")


@pytest.mark.parametrize(
    ("first", "end", "lost"),
    [(0, 15, (10, 15)), (12, 30, (12, 20)), (13, 17, (13, 17)), (10, 20, (10, 20))],
)
def test_a_hole_at_a_border_of_a_range(
    hole: Table, first: int, end: int, lost: tuple[int, int]
) -> None:
    """A gap begins or ends within a task's range. The task reports only the part of the gap that is
    in its range.
    """
    with pytest.raises(RecordsLost) as caught:
        hole.task(first, end)
    assert (caught.value.code, caught.value.lost) == ("LOG_GAP", lost)
    left = [at for at in range(first, end) if not 10 <= at < 20]
    assert hole.task(first, end, failOnDataLoss=False) == left
    assert f"offsets [{lost[0]}, {lost[1]}) are missing" in hole.said()[0]


def test_beside_a_hole_nothing_is_missing(hole: Table) -> None:
    assert hole.task(0, 10) == list(range(10))
    assert hole.task(20, 30) == list(range(20, 30))
    assert hole.said() == []


def test_a_hole_of_a_topic_that_became_compacted_in_the_meantime(hole: Table) -> None:
    """The topic becomes compacted after the gap was written, and its config is queried after the
    gap was found. So the gap is attributed to compaction.
    """
    apply_topic_configs(
        hole.cluster, hole.topic, {"cleanup.policy": "compact,delete", "segment.ms": "604800000"}
    )
    assert hole.all() == [*range(10), *range(20, 30)]
    assert hole.said() == [
        "no rows of 10 offsets in [10, 20): the topic was compacted [COMPACTION]"
    ]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_log_without_holes(table: Table, isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idempotent producers write batches of many records and of one record. Reads that begin in the
    middle of a batch must report no gap.
    """
    put(table, 0, 10, codec="zstd")
    put(table, 10, 11, config={"enable.idempotence": True})
    put(table, 11, 30, config={"enable.idempotence": True})
    monkeypatch.setattr(tasks, "FIRST_BYTES", 1)
    for first, end in ((0, 30), (5, 25), (10, 11), (9, 10), (29, 30), (12, 13)):
        assert table.task(first, end, isolation=isolation) == list(range(first, end))
        assert table.said() == []


def test_offsets_without_rows_because_of_transactions(table: Table) -> None:
    put(table, 0, 10)
    cluster, topic = table.cluster, table.topic
    of = [Outgoing(b"k", b"%d" % at) for at in range(40)]
    produce_transaction(cluster, topic, of[10:20], commit=False)  # the marker is at 20
    produce_transaction(cluster, topic, of[20:30], commit=True)  # the marker is at 31
    produce_transaction(cluster, topic, of[30:40], commit=False)  # the marker is at 42
    both = "transaction markers, and records of aborted transactions [TRANSACTIONS]"
    assert table.all() == [*range(10), *range(20, 30)]
    assert table.said() == [f"no rows of 23 offsets in [10, 43): {both}"]
    assert table.task(12, 35) == list(range(20, 30))
    assert table.said() == [f"no rows of 13 offsets in [12, 35): {both}"]
    assert table.all(isolation="read_uncommitted") == list(range(40))
    assert table.said() == [f"no rows of 3 offsets in [20, 43): {both}"]


def offsets(table: Table) -> list[int]:
    """Return the offsets of all records, according to an independent client."""
    return [one.offset for one in read_all(table.cluster, table.topic)]


def test_offsets_without_rows_because_of_compaction(table: Table) -> None:
    """Compaction removes whole batches and single records within batches. The offsets without rows
    are attributed to compaction.
    """
    apply_topic_configs(table.cluster, table.topic, CLEAN_SOON)
    batch = [Outgoing(b"%d" % (at % 7), b"%d" % at) for at in range(20)]
    produce(table.cluster, table.topic, batch, linger_ms=200)
    for at in range(20, 26):
        produce(table.cluster, table.topic, [Outgoing(b"%d" % (at % 3), b"%d" % at)])

    def is_cleaned() -> bool:
        produce(table.cluster, table.topic, [Outgoing(b"last", b"0")])
        return not {*offsets(table)} & {0, 20}

    eventually(is_cleaned, what="compaction")
    seen: list[int] = []

    def is_read_between_two_cleanings() -> bool:
        seen[:] = offsets(table)
        assert len(table.task(0, seen[-1] + 1)) <= len(seen)
        return seen == offsets(table)

    eventually(is_read_between_two_cleanings, what="rest")
    (line,) = table.said()
    missing = seen[-1] + 1 - len(seen)
    assert re.fullmatch(
        rf"no rows of {missing} offsets in \[0, \d+\): the topic was compacted \[COMPACTION\]", line
    )


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_are_deleted_before_a_task_begins(table: Table, fails: bool) -> None:
    put(table, 0, 10)
    put(table, 10, 20)
    reader = table._reader(failOnDataLoss=fails)
    parts = reader.partitions()
    delete_records(table.cluster, table.topic, before=13)
    if fails:
        with pytest.raises(RecordsLost, match="were deleted before") as caught:
            table._rows(reader, parts)
        assert (caught.value.code, caught.value.lost) == ("RETENTION", (0, 13))
    else:
        assert table._rows(reader, parts) == list(range(13, 20))
        (line,) = table.said()
        assert line.startswith("offsets [0, 13) were deleted")
        assert line.endswith("[RETENTION]")
