"""The topologies of MirrorMaker 2's documentation: one way, fan-out, aggregation, a chain,
active/active, and three data centres with two clusters each.

Records are compared by content and offset. Every cluster must have exactly the expected topics, so
no record is copied back to the cluster where it was written.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.support.client import Outgoing, Seen, consumer, eventually, produce, read_all
from tests.support.clusters import private_cluster
from tests.support.eventually import PATIENCE_S
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.mirror_process import Driver
from tests.support.topics import admin, create_topic, end_offsets, topic_names
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("flow-shapes")]

COUNT: Final = 20
IDENTITY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
MORE: Final = 4
"""Number of clusters in addition to the two shared ones."""


@pytest.fixture(scope="module")
def clusters(
    source_cluster: LocalCluster, target_cluster: LocalCluster
) -> Iterator[list[LocalCluster]]:
    """Six clusters of one broker each, two of which are shared with other tests."""
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        more = [LocalCluster(f"shape{number}", jvm_flags=QUICK_JVM) for number in range(MORE)]
        for cluster in more:
            stack.callback(cluster.stop)
        list(pool.map(lambda cluster: cluster.start(), more))
        yield [source_cluster, target_cluster, *more]


class Shape:
    """Flows between clusters that have aliases of this test. They copy the topics with this test's
    prefix.
    """

    def __init__(self, folder: Path, clusters: list[LocalCluster], *names: str) -> None:
        self.mark = f"s{uuid.uuid4().hex[:6]}"
        self.clusters = dict(zip(names, clusters, strict=False))
        self._path = folder / "mm2.properties"

    def alias(self, name: str) -> str:
        return f"{self.mark}{name}"

    def topic(self, name: str, *hops: str) -> str:
        """Return a topic's name after it was copied by these hops. `topic("orders", "B", "A")` was
        copied from A to B, and from there to this cluster.
        """
        return ".".join([*map(self.alias, hops), f"{self.mark}-{name}"])

    def pattern(self, name: str) -> str:
        """Return a pattern that matches the topic and all its remote names."""
        return f"(.*\\\\.)?{self.mark}-{name}"

    def config(self, flows: Iterable[str], lines: Mapping[str, str]) -> Path:
        """Write the configuration. Cluster names in keys such as `A->B.topics` are replaced by this
        test's aliases.
        """
        text = [f"clusters = {', '.join(map(self.alias, self.clusters))}"]
        text += [
            f"{self.alias(name)}.bootstrap.servers = {cluster.bootstrap}"
            for name, cluster in self.clusters.items()
        ]
        text += [f"{self._flow(flow)}.enabled = true" for flow in flows]
        keys = {
            "replication.factor": "1",
            "refresh.topics.interval.seconds": "1",
            # heartbeats and checkpoints have their own tests, and would add topics to the clusters
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            "topics": self.pattern(".*"),
            **lines,
        }
        for key, value in keys.items():
            flow, _, rest = key.partition(".")
            name = f"{self._flow(flow)}.{rest}" if "->" in flow else key
            text.append(f"{name} = {value}")
        self._path.write_text("\n".join(text) + "\n")
        return self._path

    def _flow(self, flow: str) -> str:
        return "->".join(self.alias(name) for name in flow.split("->"))

    def mirror(self, flows: Iterable[str], *, once: bool = False, **lines: str) -> Mirror:
        given = {key.replace("_", ".").replace(".to.", "->"): value for key, value in lines.items()}
        return Mirror(self.config(flows, given), once=once, lanes=1)

    def put(self, cluster: str, name: str, start: int = 0) -> None:
        """Write records whose values contain the name of the cluster."""
        if start == 0:
            create_topic(self.clusters[cluster], self.topic(name))
        records = [Outgoing(value=f"{cluster} {n}".encode()) for n in range(start, start + COUNT)]
        produce(self.clusters[cluster], self.topic(name), records)

    def arrives(self, cluster: str, topic: str, count: int = COUNT) -> None:
        there = self.clusters[cluster]

        def has_arrived() -> bool:
            return topic in topic_names(there) and end_offsets(there, topic) == {0: count}

        eventually(has_arrived, what=f"{count} records of {topic} in {cluster}")

    def marked(self, cluster: str) -> set[str]:
        """Return all of this test's topics on the cluster."""
        end = f"{self.mark}-"
        return {name for name in topic_names(self.clusters[cluster]) if end in name}

    def is_copy(self, cluster: str, topic: str, of: str, name: str) -> None:
        assert self.read(cluster, topic) == self.read(of, self.topic(name))

    def read(self, cluster: str, topic: str) -> list[Seen]:
        return read_all(self.clusters[cluster], topic)


def test_one_way_with_topics_by_list(clusters: list[LocalCluster], tmp_path: Path) -> None:
    shape = Shape(tmp_path, clusters, "A", "B")
    for name in ("orders", "customers", "secret"):
        shape.put("A", name)
    shape.put("B", "orders")
    topics = f"{shape.topic('orders')}, {shape.topic('customers')}"
    with shape.mirror(["A->B"], once=True, topics=topics) as mirror:
        mirror.wait()
    for name in ("orders", "customers"):
        shape.is_copy("B", shape.topic(name, "A"), "A", name)
    copies = {shape.topic("orders", "A"), shape.topic("customers", "A")}
    assert shape.marked("B") == {shape.topic("orders"), *copies}
    assert len(shape.marked("A")) == 3, "nothing goes the other way"


def test_fan_out_with_overrides_per_flow(clusters: list[LocalCluster], tmp_path: Path) -> None:
    """One flow has its own `topics` and its own policy. The other flow uses the common settings.
    Each target must have exactly the topics that its flow's settings select.
    """
    shape = Shape(tmp_path, clusters, "A", "B", "C")
    for name in ("orders-eu", "orders-us", "logs"):
        shape.put("A", name)
    lines = {
        "topics": shape.pattern("orders-.*"),
        "topics_exclude": shape.pattern(".*-us"),
        "A_to_C_topics": shape.pattern("(logs|orders-us)"),
        "A_to_C_topics_exclude": "",
        "A_to_C_replication_policy_class": IDENTITY,
    }
    with shape.mirror(["A->B", "A->C"], once=True, **lines) as mirror:
        mirror.wait()
    assert shape.marked("B") == {shape.topic("orders-eu", "A")}
    assert shape.marked("C") == {shape.topic("logs"), shape.topic("orders-us")}
    shape.is_copy("B", shape.topic("orders-eu", "A"), "A", "orders-eu")
    shape.is_copy("C", shape.topic("logs"), "A", "logs")


def test_groups_by_list_and_by_pattern(clusters: list[LocalCluster], tmp_path: Path) -> None:
    shape = Shape(tmp_path, clusters, "A", "B", "C")
    shape.put("A", "orders")
    groups = {name: f"{shape.mark}-{name}" for name in ("app", "web", "batch", "test")}
    for at, group in enumerate(groups.values(), start=3):
        commit(shape.clusters["A"], group, shape.topic("orders"), at)
    lines = {
        "emit_checkpoints_enabled": "true",
        "sync_group_offsets_enabled": "true",
        "A_to_B_groups": f"{groups['app']}, {groups['batch']}",
        "A_to_C_groups": f"{shape.mark}-.*",
        "A_to_C_groups_exclude": ".*-(test|batch)",
    }
    with shape.mirror(["A->B", "A->C"], once=True, **lines) as mirror:
        mirror.wait()
    remote = shape.topic("orders", "A")
    found = {
        cluster: {
            name: committed(shape.clusters[cluster], group, remote)
            for name, group in groups.items()
        }
        for cluster in ("B", "C")
    }
    assert found["B"] == {"app": 3, "web": -1, "batch": 5, "test": -1}
    assert found["C"] == {"app": 3, "web": 4, "batch": -1, "test": -1}


def commit(cluster: LocalCluster, group: str, topic: str, offset: int) -> None:
    """Set a group's offset without joining the group, as an operator does."""
    client = admin(cluster)

    def is_taken() -> bool:
        at = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
        (answer,) = client.alter_consumer_group_offsets([at]).values()
        # while a coordinator starts, only the partitions' results have an error
        return all(one.error is None for one in answer.result(PATIENCE_S).topic_partitions)

    eventually(is_taken)


def committed(cluster: LocalCluster, group: str, topic: str) -> int:
    """Return the group's offset, or -1 if the group has none or the cluster has no offsets
    topic.
    """
    client = consumer(cluster, config={"group.id": group})
    try:
        (found,) = client.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        return max(found.offset, -1)
    finally:
        client.close()


def is_at(cluster: LocalCluster, group: str, topic: str, offset: int) -> None:
    where = f"{group} at {offset} of {topic}"
    eventually(lambda: committed(cluster, group, topic) == offset, what=where)


def test_aggregation(clusters: list[LocalCluster], tmp_path: Path) -> None:
    shape = Shape(tmp_path, clusters, "A", "B", "C")
    for cluster in ("A", "B", "C"):
        shape.put(cluster, "orders")
    with shape.mirror(["A->C", "B->C"], once=True) as mirror:
        mirror.wait()
    assert shape.marked("C") == {
        shape.topic("orders"),
        shape.topic("orders", "A"),
        shape.topic("orders", "B"),
    }
    for cluster in ("A", "B"):
        shape.is_copy("C", shape.topic("orders", cluster), cluster, "orders")
        assert shape.marked(cluster) == {shape.topic("orders")}


def test_a_chain(clusters: list[LocalCluster], tmp_path: Path) -> None:
    shape = Shape(tmp_path, clusters, "A", "B", "C")
    shape.put("A", "orders")
    with shape.mirror(["A->B", "B->C"]) as mirror:
        end = shape.topic("orders", "B", "A")
        shape.arrives("C", end)
        shape.put("A", "orders", COUNT)
        shape.arrives("C", end, 2 * COUNT)
        mirror.stop()
    shape.is_copy("B", shape.topic("orders", "A"), "A", "orders")
    shape.is_copy("C", end, "A", "orders")
    assert shape.marked("C") == {end}


@pytest.mark.witness("two clusters mirror each other without a loop or a loss")
def test_active_active_without_loops(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    shape = Shape(tmp_path, [source_cluster, target_cluster], "A", "B")
    for cluster in ("A", "B"):
        shape.put(cluster, "orders")
    with shape.mirror(["A->B", "B->A"]) as mirror:
        for here, there in (("A", "B"), ("B", "A")):
            shape.arrives(there, shape.topic("orders", here))
            shape.put(here, "orders", COUNT)
            shape.arrives(there, shape.topic("orders", here), 2 * COUNT)
        shape.put("A", "late")
        shape.arrives("B", shape.topic("late", "A"))
        mirror.stop()
    for here, there in (("A", "B"), ("B", "A")):
        shape.is_copy(there, shape.topic("orders", here), here, "orders")
        assert len(shape.read(here, shape.topic("orders"))) == 2 * COUNT, "nothing came back"
    assert shape.marked("A") == {*map(shape.topic, ("orders", "late")), shape.topic("orders", "B")}
    assert shape.marked("B") == {
        shape.topic("orders"),
        shape.topic("orders", "A"),
        shape.topic("late", "A"),
    }


class Network(Shape):
    """Clusters that each have a topic `orders`. Flows copy every topic along all paths."""

    def __init__(
        self, folder: Path, clusters: list[LocalCluster], flows: list[tuple[str, str]], *names: str
    ) -> None:
        self.flows = [f"{here}->{there}" for here, there in flows]
        super().__init__(folder, clusters, *names)
        self.paths = {name: list(_paths(name, flows)) for name in self.clusters}
        self._first = names[0]

    def put_everywhere(self, start: int = 0) -> None:
        for name in self.clusters:
            self.put(name, "orders", start)

    def are_everywhere(self, count: int) -> None:
        """Check that every copy of each cluster's topic has `count` records."""
        for name, paths in self.paths.items():
            for path in paths:
                self.arrives(name, self.topic("orders", *path), count)

    def are_copies(self, count: int) -> None:
        """Check every record and its offset, and that no other topic exists."""
        for name, paths in self.paths.items():
            topics = [self.topic("orders", *path) for path in paths]
            assert self.marked(name) == {*topics}
            with ThreadPoolExecutor(len(paths)) as pool:
                found = [*pool.map(partial(self.read, name), topics)]
            for path, records in zip(paths, found, strict=True):
                origin = path[-1] if path else name
                values = [(n, f"{origin} {n}".encode()) for n in range(count)]
                assert [(record.offset, record.value) for record in records] == values, path

    def group_is_everywhere_at(self, group: str, offset: int) -> None:
        """Check that the group has this offset in all copies of the first cluster's topic."""
        for name, paths in self.paths.items():
            for path in paths:
                if path[-1:] == (self._first,):
                    is_at(self.clusters[name], group, self.topic("orders", *path), offset)

    def beats(self) -> dict[str, int]:
        """Return the number of heartbeats that arrived through each flow."""
        found = {}
        for flow in self.flows:
            here, there = flow.split("->")
            cluster, topic = self.clusters[there], f"{self.alias(here)}.heartbeats"
            ends = end_offsets(cluster, topic) if topic in topic_names(cluster) else {}
            found[flow] = sum(ends.values())
        return found


class DataCentres(Network):
    """Three data centres with two clusters each. Flows run in both directions within each data
    centre, and between the first clusters of the data centres.
    """

    def __init__(self, folder: Path, clusters: list[LocalCluster]) -> None:
        places = ("west", "east", "north")
        self.near = {place: (f"{place}-1", f"{place}-2") for place in places}
        pairs = [*self.near.values()]
        pairs += itertools.combinations([first for first, _ in self.near.values()], 2)
        flows = [*pairs, *((there, here) for here, there in pairs)]
        super().__init__(folder, clusters, flows, *itertools.chain(*self.near.values()))
        assert sum(map(len, self.paths.values())) == 60


def test_three_data_centres_with_two_clusters_each(
    clusters: list[LocalCluster], tmp_path: Path
) -> None:
    sites = DataCentres(tmp_path, clusters)
    sites.put_everywhere()
    with sites.mirror(sites.flows) as mirror:
        mirror.eventually(
            lambda parts: sum(p.records for p in parts if p.state == "AT_END") == 54 * COUNT, 90
        )
        mirror.stop()
    sites.are_copies(COUNT)


@pytest.fixture
def own_clusters(clusters: list[LocalCluster]) -> Iterator[list[LocalCluster]]:
    """Six clusters that other tests do not use, because their heartbeats would be copied
    everywhere.
    """
    with ExitStack() as stack:
        more = [LocalCluster(f"own{number}", jvm_flags=QUICK_JVM) for number in range(2)]
        for cluster in more:
            stack.callback(cluster.stop)
            cluster.start()
        yield [*clusters[-MORE:], *more]


EMITTING: Final = {
    "emit.heartbeats.enabled": "true",
    "emit.checkpoints.enabled": "true",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
}


def leads_all(driver: Driver) -> bool:
    """Return True if the process leads all flows of its data centre: three into the first cluster,
    and one into the second.
    """
    states = driver.states.values()
    return len(states) == 4 and all(one.state == "RUNNING" for one in states)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_process_in_each_data_centre_fails_over_to_another_one(
    own_clusters: list[LocalCluster], tmp_path: Path
) -> None:
    """Each data centre has a process that runs with `--clusters` and the data centre's clusters,
    and writes everything that MirrorMaker 2 writes. If it is killed, a second process of the same
    data centre takes over its flows.
    """
    sites = DataCentres(tmp_path, own_clusters)
    group, orders = f"{sites.mark}-app", sites.topic("orders")
    file = sites.config(sites.flows, {**EMITTING, "groups": f"{sites.mark}-.*"})
    sites.put_everywhere()
    commit(sites.clusters["west-1"], group, orders, 7)

    with ExitStack() as stack:

        def started(place: str) -> Driver:
            near = [sites.alias(name) for name in sites.near[place]]
            return stack.enter_context(Driver(file, lanes=1, clusters=near, emits=True))

        leaders = {place: started(place) for place in sites.near}
        sites.are_everywhere(COUNT)
        sites.group_is_everywhere_at(group, 7)
        assert all(leads_all(one) for one in leaders.values())
        for turn, place in enumerate(sites.near, start=1):
            other = started(place)
            eventually(partial(getattr, other, "states"), what="its flows")
            leaders[place].kill()
            sites.put_everywhere(turn * COUNT)
            eventually(partial(leads_all, other), what=f"{place} fails over")
            assert all(one.generation >= 1 for one in other.states.values())
            sites.are_everywhere((turn + 1) * COUNT)
        before = sites.beats()
        commit(sites.clusters["west-1"], group, orders, 4 * COUNT - 3)
        sites.group_is_everywhere_at(group, 4 * COUNT - 3)
        eventually(lambda: all(now > before[flow] for flow, now in sites.beats().items()))
    sites.are_copies(4 * COUNT)
    for flow in sites.flows:
        here, there = flow.split("->")
        topics = topic_names(sites.clusters[there])
        assert f"{sites.alias(here)}.checkpoints.internal" in topics, flow


SHAPES: Final = {
    "one way": [("A", "B")],
    "fan-out": [("A", "B"), ("A", "C")],
    "aggregation": [("A", "C"), ("B", "C")],
    "a chain": [("A", "B"), ("B", "C")],
    "both ways": [("A", "B"), ("B", "A")],
}


@pytest.mark.long
@pytest.mark.parametrize("what", SHAPES)
def test_every_other_shape_with_all_that_is_emitted(what: str, tmp_path: Path) -> None:
    """In each topology of `SHAPES`, records, group offsets and heartbeats reach exactly the
    clusters to which the flows lead.
    """
    flows = SHAPES[what]
    names = sorted({name for flow in flows for name in flow})
    with ExitStack() as stack, ThreadPoolExecutor(len(names)) as pool:
        # Separate clusters: the shared ones already have copies of heartbeats, so new aliases for
        # them would be refused.
        made = [private_cluster(f"shape-{name}".lower(), 1) for name in names]
        clusters = list(pool.map(stack.enter_context, made))
        shape = Network(tmp_path, clusters, flows, *names)
        group = f"{shape.mark}-app"
        file = shape.config(shape.flows, {**EMITTING, "groups": f"{shape.mark}-.*"})
        shape.put_everywhere()
        commit(shape.clusters["A"], group, shape.topic("orders"), 7)
        with EmittingMirror(file, lanes=1) as mirror:
            shape.are_everywhere(COUNT)
            shape.group_is_everywhere_at(group, 7)
            before = shape.beats()
            shape.put_everywhere(COUNT)
            commit(shape.clusters["A"], group, shape.topic("orders"), 2 * COUNT - 3)
            shape.are_everywhere(2 * COUNT)
            shape.group_is_everywhere_at(group, 2 * COUNT - 3)
            eventually(lambda: all(now > before[flow] for flow, now in shape.beats().items()))
            mirror.stop()
        shape.are_copies(2 * COUNT)


def _paths(end: str, flows: list[tuple[str, str]], *after: str) -> Iterator[tuple[str, ...]]:
    """Return the paths by which records reach the cluster `end`, the last hop first. The empty path
    stands for the cluster's own records.
    """
    yield ()
    for here, there in flows:
        if there == end and here not in after:
            for path in _paths(here, flows, *after, end):
                yield (here, *path)
