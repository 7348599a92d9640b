"""Micro-batches of an in-memory cluster whose topics are deleted and re-created."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pytest

from twinlog.cluster.logs import start_offsets
from twinlog.cluster.logs.offsets import EARLIEST, OffsetResult
from twinlog.cluster.net.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from twinlog.errors import ClusterError, RecordsLost, TwinlogError
from twinlog.model import NO_TOPIC_ID, Isolation, TopicId, TopicPartition
from twinlog.records import gaps, planning
from twinlog.records.options import parse_options
from twinlog.records.spark_api import HAS_LIMITS, ReadAllAvailable, ReadLimit
from twinlog.records.stream_reader import StreamReader
from twinlog.records.tasks import RangesPartition
from twinlog.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION

ALL: Final = ReadAllAvailable()
KINDS: Final = {"subscribe": "a,b", "subscribePattern": "[ab]", "assign": '{"a": [0], "b": [0]}'}


class Cluster:
    """A cluster with topics of one partition: their IDs and log ends."""

    settings = parse_options(
        {"kafka.bootstrap.servers": "b:1", "subscribe": "a"}, is_stream=True
    ).cluster()

    def __init__(self, ends: Mapping[str, int], *, has_ids: bool = True) -> None:
        self._has_ids = has_ids
        self._made = 0
        self.topics: dict[str, tuple[TopicId, int]] = {}
        for name, end in ends.items():
            self.make(name, end)

    def make(self, name: str, end: int) -> None:
        """Create a topic, or re-create it with a new ID."""
        self._made += 1
        known = TopicId(f"{self._made:032}") if self._has_ids else NO_TOPIC_ID
        self.topics[name] = (known, end)

    def metadata(
        self, names: Sequence[str] | None = None, *, allow_missing: bool = True
    ) -> ClusterMetadata:
        found = {name: self._topic(name) for name in (self.topics if names is None else names)}
        missing = [one.name for one in found.values() if one.error]
        if missing and not allow_missing:
            raise _missing()
        return ClusterMetadata(cluster_id="c", controller=1, brokers={}, topics=found)

    def _topic(self, name: str) -> TopicMetadata:
        if name not in self.topics:
            gone = UNKNOWN_TOPIC_OR_PARTITION
            return TopicMetadata(
                name=name, topic_id=NO_TOPIC_ID, is_internal=False, error=gone, partitions=()
            )
        one = PartitionMetadata(
            number=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), error=0
        )
        known = self.topics[name][0]
        return TopicMetadata(
            name=name, topic_id=known, is_internal=False, error=0, partitions=(one,)
        )

    def list_offsets(
        self,
        _: object,
        tps: Iterable[TopicPartition],
        at: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetResult | TwinlogError]:
        assert isolation in Isolation
        out: dict[TopicPartition, OffsetResult | TwinlogError] = {}
        for tp in tps:
            if tp.topic in self.topics:
                end = 0 if at == EARLIEST else self.topics[tp.topic][1]
                out[tp] = OffsetResult(offset=end, timestamp=-1, leader_epoch=0)
            else:
                out[tp] = _missing()
        return out


def _missing() -> ClusterError:
    return ClusterError("no such topic", code="TOPIC_MISSING")


class Query:
    """A stream from the earliest offsets. It plans and reads micro-batches as Spark requests
    them.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, cluster: Cluster, *, at: Any = None, **more: str
    ) -> None:
        given = {"kafka.bootstrap.servers": "b:1", "startingOffsets": "earliest", **more}
        self.reader = StreamReader(parse_options(given, is_stream=True), ["value"])
        patch.setattr(self.reader, "_client", cluster)
        for module in (planning, gaps, start_offsets):
            patch.setattr(module, "list_offsets", cluster.list_offsets)
        self.at: dict[str, Any] = self.reader.initialOffset() if at is None else at

    def plan(self, limit: ReadLimit = ALL) -> dict[str, Any]:
        return self.reader.latestOffset(self.at, limit)

    def read(self, end: dict[str, Any]) -> list[tuple[str, int, int]]:
        """Return the ranges from the current offsets up to this end, as (topic, first, end)."""
        begin, self.at = self.at, end
        found: list[tuple[str, int, int]] = []
        for task in self.reader.partitions(begin, end):
            assert isinstance(task, RangesPartition)
            found += [(one.tp.topic, one.first, one.end) for one, _ in task.parts()]
        return found

    def run(self, limit: ReadLimit = ALL) -> list[tuple[str, int, int]]:
        """Run a micro-batch and return its ranges. If nothing is new, the list is empty."""
        return self.read(self.plan(limit))


def lenient(patch: pytest.MonkeyPatch, cluster: Cluster, kind: str = "subscribe") -> Query:
    return Query(patch, cluster, failOnDataLoss="false", **{kind: KINDS[kind]})


@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_topic_is_left_out_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    cluster = Cluster({"a": 5, "b": 5})
    query = lenient(monkeypatch, cluster, kind)
    assert query.run() == [("a", 0, 5), ("b", 0, 5)]
    del cluster.topics["a"]
    assert query.run() == []
    cluster.topics["b"] = (cluster.topics["b"][0], 7)
    assert query.run() == [("b", 5, 7)]
    assert query.at == {"a": {"0": 5}, "b": {"0": 7}}
    assert caplog.text.count("topic a is not read: it does not exist") == 1
    again = Query(monkeypatch, cluster, at=query.at, failOnDataLoss="false", **{kind: KINDS[kind]})
    assert again.run() == [], "a restart does not need it either"
    cluster.make("a", 3)
    query.run()
    assert query.run() == [("a", 0, 3)]


@pytest.mark.parametrize("kind", ["subscribe", "assign"])
def test_a_deleted_topic_ends_a_query_that_fails_on_data_loss(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    cluster = Cluster({"a": 5, "b": 5})
    query = Query(monkeypatch, cluster, **{kind: KINDS[kind]})
    query.run()
    del cluster.topics["a"]
    with pytest.raises(ClusterError, match="has no topic a"):
        query.run()


def test_a_new_query_needs_each_topic_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new query fails if a topic that it names does not exist, even with failOnDataLoss=false. A
    misspelled name is not data loss.
    """
    with pytest.raises(ClusterError, match="has no topic a"):
        lenient(monkeypatch, Cluster({"b": 5}))


def test_a_topic_is_deleted_between_two_questions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster({"a": 5, "b": 5})
    query = lenient(monkeypatch, cluster)
    whole = dict(cluster.topics)

    def list_offsets(*args: Any, **more: Any) -> Any:
        cluster.topics = {name: one for name, one in whole.items() if name != "a"}
        return cluster.list_offsets(*args, **more)

    monkeypatch.setattr(planning, "list_offsets", list_offsets)
    end = query.plan()
    assert end["a"] == {"0": 0}, "it keeps its place"
    cluster.topics = dict(whole)
    monkeypatch.setattr(planning, "list_offsets", cluster.list_offsets)
    end = query.plan()
    monkeypatch.setattr(gaps, "list_offsets", list_offsets)
    assert query.read(end) == [("b", 0, 5)]
    assert "a-0: offsets [0, 5) were deleted with the topic" in caplog.text


@pytest.mark.parametrize("records", [3, 50], ids=["shorter", "longer"])
def test_a_topic_that_is_recreated_is_read_from_its_begin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, records: int
) -> None:
    cluster = Cluster({"a": 20, "b": 5})
    query = lenient(monkeypatch, cluster)
    query.run()
    cluster.make("a", records)
    assert query.run() == []
    assert query.at == {"a": {"0": 0}, "b": {"0": 5}}
    assert "a-0: the topic was re-created, so offsets [20, 20) and later ones are" in caplog.text
    assert "the new topic is read from offset 0 [TRUNCATED]" in caplog.text
    assert "do not exist" not in caplog.text
    assert "are not read" not in caplog.text
    assert query.run() == [("a", 0, records)]
    assert query.run() == []


@pytest.mark.skipif(not HAS_LIMITS, reason="Spark ends AvailableNow by itself before 4.2")
def test_available_now_reads_a_topic_that_is_recreated_in_the_meantime(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster({"a": 1000})
    query = Query(
        monkeypatch, cluster, subscribe="a", failOnDataLoss="false", maxOffsetsPerTrigger="100"
    )
    query.reader.prepareForTriggerAvailableNow()
    limit = query.reader.getDefaultReadLimit()
    assert [query.run(limit) for _ in range(2)] == [[("a", 0, 100)], [("a", 100, 200)]]
    cluster.make("a", 50)
    assert [query.run(limit) for _ in range(2)] == [[], [("a", 0, 50)]]
    assert "a-0: the topic was re-created, so offsets [200, 1000) and later ones" in caplog.text
    cluster.topics["a"] = (cluster.topics["a"][0], 60)
    assert query.plan(limit) == query.at, "it ends where the new log ended"


def test_a_planned_micro_batch_of_a_topic_that_was_recreated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster({"a": 20, "b": 5})
    query = lenient(monkeypatch, cluster)
    end = query.plan()
    cluster.make("a", 30)
    assert query.read(end) == [("b", 0, 5)]
    assert "a-0: offsets [0, 20) were deleted with the topic" in caplog.text
    query.run()
    assert query.run() == [("a", 0, 30)]


def test_a_topic_that_was_recreated_ends_a_query_that_fails_on_data_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With failOnDataLoss, a re-created topic ends the query. This applies even if the new log is
    longer than what was read.
    """
    cluster = Cluster({"a": 20})
    query = Query(monkeypatch, cluster, subscribe="a")
    query.run()
    cluster.make("a", 50)
    with pytest.raises(RecordsLost, match=r"was re-created, .*; compare the") as error:
        query.run()
    assert error.value.code == "TRUNCATED"


@pytest.mark.parametrize("has_ids", [True, False], ids=["stopped", "old brokers"])
def test_offsets_of_a_new_topic_that_are_passed_over_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, has_ids: bool
) -> None:
    """The reader skips the first offsets of a re-created topic and logs them. Without topic IDs, it
    cannot distinguish a re-created topic from a truncated log, but must log the same lines.
    """
    cluster = Cluster({"a": 20}, has_ids=has_ids)
    query = Query(monkeypatch, cluster, subscribe="a", failOnDataLoss="false")
    query.run()
    cluster.make("a", 5)
    if has_ids:
        query = Query(monkeypatch, cluster, at=query.at, subscribe="a", failOnDataLoss="false")
    assert query.run() == []
    assert query.at == {"a": {"0": 5}}
    assert "a-0: offsets [5, 20) do not exist" in caplog.text
    assert (
        "a-0: if the topic was re-created, offsets [0, 5) of the new topic are skipped"
        in caplog.text
    )
