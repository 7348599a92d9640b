"""Remote topics that are not named `alias.topic`. Checkpoints, heartbeats and groups use their
names in both directions, and nothing is copied back.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.clusters import private_cluster
from tests.support.eventually import eventually
from tests.support.groups import commit, committed, resume
from tests.support.mirror import EmittingMirror
from tests.support.topics import create_topic, topic_names
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

MODULE = '''
from twinlog.mirror.names.naming import DefaultReplicationPolicy


class Behind(DefaultReplicationPolicy):
    """Names the copy of a topic orders of west orders-of-west."""

    def format_remote_topic(self, source_alias, topic):
        return f"{self.renamed(topic)}-of-{source_alias}"

    def topic_source(self, topic):
        return topic.rpartition("-of-")[2] if "-of-" in topic else None

    def upstream_topic(self, topic):
        return topic.rpartition("-of-")[0] or None
'''


@pytest.fixture
def clusters() -> Iterator[tuple[LocalCluster, LocalCluster]]:
    """Separate clusters, because on shared ones the heartbeats of all tests would be mirrored."""
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        made = (private_cluster("west", 1), private_cluster("east", 1))
        west, east = pool.map(stack.enter_context, made)
        yield west, east


@pytest.mark.parametrize(
    ("line", "remote", "checkpoints"),
    [
        ("replication.policy.separator = _", "{1}_{0}", "{}_checkpoints_internal"),
        (
            "replication.policy.class = names_behind:Behind",
            "{0}-of-{1}",
            "{}.checkpoints.internal",
        ),
    ],
    ids=["separator", "class"],
)
def test_all_that_is_written_follows_the_names_of_remote_topics(
    clusters: tuple[LocalCluster, LocalCluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    remote: str,
    checkpoints: str,
) -> None:
    (tmp_path / "names_behind.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "mm2.properties"
    west, east = clusters
    file.write_text(
        "clusters = west, east\nwest->east.enabled = true\neast->west.enabled = true\n"
        f"west.bootstrap.servers = {west.bootstrap}\neast.bootstrap.servers = {east.bootstrap}\n"
        f"replication.factor = 1\ngroups = app-.*\n{line}\nsync.group.offsets.enabled = true\n"
        "sync.group.offsets.interval.seconds = 1\nemit.checkpoints.interval.seconds = 1\n"
        "refresh.groups.interval.seconds = 1\nrefresh.topics.interval.seconds = 1\n"
    )
    for cluster, topic, group in ((west, "orders", "app-west"), (east, "ships", "app-east")):
        create_topic(cluster, topic)
        produce(cluster, topic, [Outgoing(value=b"%d" % n) for n in range(9)])
        commit(cluster, group, topic, 4)
    orders, ships = remote.format("orders", "west"), remote.format("ships", "east")
    for _ in range(2):  # the second run must recognize by names where each topic came from
        with EmittingMirror(file, lanes=1) as mirror:
            eventually(lambda: holds(east, remote.format("heartbeats", "west"), 3))
            eventually(lambda: holds(west, remote.format("heartbeats", "east"), 3))
            eventually(lambda: committed(east, "app-west", orders) == 4)
            eventually(lambda: committed(west, "app-east", ships) == 4)
            mirror.stop()
    for cluster, there, own, copy in (
        (west, "east", "orders", ships),
        (east, "west", "ships", orders),
    ):
        names = {name for name in topic_names(cluster) if not name.startswith(("__", "mm2-"))}
        beats = {"heartbeats", remote.format("heartbeats", there)}
        assert names == {own, copy, *beats, checkpoints.format(there)}
        assert [one.value for one in read_all(cluster, copy)] == [b"%d" % n for n in range(9)]
    assert resume(east, "app-west", orders) == [b"4", b"5", b"6", b"7", b"8"]


def holds(cluster: LocalCluster, topic: str, count: int) -> bool:
    return topic in topic_names(cluster) and len(read_all(cluster, topic)) >= count
