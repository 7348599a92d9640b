"""A failback of many partitions queries them together, so the number of requests does not grow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.client import Outgoing, produce
from tests.support.cutover import Commands
from tests.support.groups import Pair
from tests.support.mirror import Mirror
from tests.support.settings import settings_for
from tests.support.topics import create_topic
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.failback.failback import Reverse, ReverseStart
from twinlog.mirror.map.offset_map import MAP_PARTITIONS, Mark, PartitionKey
from twinlog.mirror.map.runs import Run
from twinlog.mirror.names.naming import map_topic_of
from twinlog.model import Flow, TopicId, TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.survey.map_reader import MapReader

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("failover")]

FORGOTTEN = "twinlog.survey.picture.known_producers"


def failed_over(pair: Pair, partitions: int) -> None:
    """Fail over a flow whose partitions have batches of two sizes on both clusters. The first
    partition has a tail.
    """
    create_topic(pair.a, pair.topic, partitions)
    for size in (10, 20_000):
        some = [Outgoing(value=bytes(size), partition=one) for one in range(partitions)]
        produce(pair.a, pair.topic, some)
    with Mirror(pair.config, once=True, lanes=1) as mirror:
        assert {part.code for flow in mirror.wait() for part in flow.partitions} == {""}
    assert run(["failover", "run", str(pair.config), "--yes"]) == 0
    produce(pair.a, pair.topic, [Outgoing(value=b"tail", partition=0)])
    some = [Outgoing(value=b"new", partition=one) for one in range(partitions)]
    produce(pair.b, pair.remote, some)


def asked(
    pair: Pair, partitions: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Counter[str]:
    """Return the number of requests that `failback plan` sends, by kind."""
    kinds, attempt = Counter[str](), ClusterClient.attempt

    def counted(self: ClusterClient, node: Any, request: Any, **named: Any) -> Any:
        kinds[type(request).__name__] += 1
        return attempt(self, node, request, **named)

    with monkeypatch.context() as patched:
        patched.setattr(ClusterClient, "attempt", counted)
        code, shown = Commands("failback", pair.config, capsys).show("plan")
    assert (code, shown["plan"]["records"]) == (0, 1), shown
    found = shown["plan"]["partitions"]
    assert [one["tail"] for one in found] == [[2, 3], *[[2, 2]] * (partitions - 1)]
    assert {one["is_compared"] for one in found} == {True}
    return kinds


@pytest.mark.witness("a failback batches its requests for all partitions", case="default")
@pytest.mark.parametrize("identity", [False, True], ids=["default", "identity"])
def test_requests_of_a_plan_do_not_grow_with_the_partitions(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    identity: bool,
) -> None:
    by_size = []
    for partitions in (3, 40):
        folder = tmp_path / f"{partitions}"
        folder.mkdir()
        pair = Pair(
            folder, source_cluster, target_cluster, both_ways=False, sync=False, identity=identity
        )
        failed_over(pair, partitions)
        by_size.append(asked(pair, partitions, capsys, monkeypatch))
        if not identity:  # without map rows, the end of the copy is found by bisection
            with monkeypatch.context() as forgotten:
                forgotten.setattr(FORGOTTEN, lambda *_: {})
                asked(pair, partitions, capsys, monkeypatch)
    few, many = by_size
    # many partitions have map rows in more partitions of the map topic, which cost a few more
    # requests
    assert many.total() <= few.total() + 3 * MAP_PARTITIONS, (few, many)


def test_the_rows_of_a_map_larger_than_a_batch_are_written(
    source_cluster: LocalCluster, fresh_topic: str
) -> None:
    """The reversed map of a partition may have more bytes than the cluster accepts in one batch."""
    key = PartitionKey(TopicId("b" * 32), TopicId("a" * 32), 0)
    runs = tuple(Run(3 * at, 10_000 + 3 * at, 20_000 + 4 * at) for at in range(200_000))
    tp, mark = TopicPartition("orders", 0), Mark(600_000, 1_000_000)
    start = ReverseStart(tp=tp, key=key, runs=runs, mark=mark)
    flow = Flow("A", fresh_topic)
    with ClusterClient(settings_for(source_cluster.bootstrap)) as client:
        config = SimpleNamespace(flow=flow, state_topic_replication_factor=1)
        scope = SimpleNamespace(config=config, source=client)
        Reverse(cast("CutoverScope", scope), print)._write([start])
        maps = MapReader(client, map_topic_of(flow.reverse), MAP_PARTITIONS).read()
    assert (list(maps), maps[key].mark) == ([key], mark)
    assert tuple(maps[key].runs) == runs
