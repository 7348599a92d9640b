"""Partitions without a leader, because one of three brokers is dead or frozen and the replication
factor is 1. Only they stop. All other partitions start, are copied and are reported as usual. The
stopped ones resume when the broker is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Assigned

from tests.support.client import Outgoing, consumer, eventually, produce
from tests.support.eventually import PATIENCE_S
from tests.support.mirror import Mirror
from tests.support.rig import MAP_PARTITIONS, Rig
from tests.support.settings import settings_for
from tests.support.topics import (
    add_partitions,
    create_topic,
    end_offsets,
    leader,
    offset_map_topic,
    partition_count,
)
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, list_offsets, log_ends
from twinlog.cluster.logs.producers import describe_producers
from twinlog.cluster.net.metadata import decode_metadata
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.control.doctor.observing import leaderless, under_min_isr
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.errors import TwinlogError
from twinlog.mirror.map.offset_map import map_partition
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

PARTITIONS: Final = 6
ALL: Final = set(range(PARTITIONS))
LOST: Final = 3
"""Number of the broker that is lost."""

KEYS: Final = {"replication.factor": "1", "twinlog.state.topic.replication.factor": "3"}
BIG: Final = bytes(range(256)) * 1000
CALLS_WAIT_S: Final = 2 * PATIENCE_S
"""Time limit in seconds of a call that waits for a partition without a leader. Tests fail if such a
call is made, because they wait for less.
"""

CALLS_WAIT: Final = f"""
from twinlog.cluster.client import ClusterClient
ClusterClient.__init__.__kwdefaults__["api_timeout_s"] = {CALLS_WAIT_S}
"""
"""Prelude of a lane whose calls to a cluster have the time limit `CALLS_WAIT_S`."""

MOSTLY_TARGET: Final = [pytest.param("source", marks=pytest.mark.long), "target"]
"""Parameters of tests in which either cluster loses a broker. The gate runs only the target,
because its test_what_waits_for_a_leader covers the source.
"""


@pytest.fixture(params=["source", "target"])
def side(request: pytest.FixtureRequest) -> str:
    """The cluster that loses a broker: source or target."""
    return str(request.param)


@pytest.fixture
def patient(lasting_lead: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the long time limit of calls. The flow's lead does not depend on the lost broker, which
    may be the group's coordinator; other tests cover that.
    """
    defaults = ClusterClient.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "api_timeout_s", CALLS_WAIT_S)


@pytest.fixture
def flow(
    source3: LocalCluster, target3: LocalCluster, tmp_path: Path, patient: None
) -> Iterator[Rig]:
    with Rig(source3, target3, tmp_path) as rig:
        create(rig)
        yield rig


@pytest.fixture
def flow_into_three(
    fault_source: LocalCluster, target3: LocalCluster, tmp_path: Path, patient: None
) -> Iterator[Rig]:
    """A flow from one broker into three. The gate starts no other cluster of three brokers for
    it.
    """
    with Rig(fault_source, target3, tmp_path) as rig:
        create(rig)
        yield rig


def create(rig: Rig) -> None:
    create_topic(rig.source, rig.topic, PARTITIONS)
    create_topic(rig.target, rig.remote, PARTITIONS)


class Loss:
    """The loss of one broker of a cluster. Some partitions have no leader during it."""

    def __init__(self, rig: Rig, side: str) -> None:
        on_source = side == "source"
        self._cluster = rig.source if on_source else rig.target
        self._topic = rig.topic if on_source else rig.remote
        self._is_frozen = self._is_gone = False
        everyone = set(range(PARTITIONS))
        self.gone = {p for p in everyone if leader(self._cluster, self._topic, p) == LOST}
        self.live = everyone - self.gone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self, *, frozen: bool = False) -> None:
        self._is_gone, self._is_frozen = True, frozen
        if frozen:
            self._cluster.freeze(LOST)
        else:
            self._cluster.kill(LOST)

    def is_told(self) -> None:
        """Wait until the cluster's metadata shows partitions without a leader."""
        one = min(self.gone)
        eventually(lambda: leader(self._cluster, self._topic, one) == -1, what="no leader")

    def end(self) -> None:
        if self._is_gone and self._is_frozen:
            self._cluster.thaw(LOST)
        elif self._is_gone:
            self._cluster.restart(LOST)
        self._is_gone = False


def put(rig: Rig, partitions: set[int], value: bytes, count: int = 1) -> None:
    wanted = [Outgoing(value=value, partition=p) for p in sorted(partitions)]
    produce(rig.source, rig.topic, wanted * count)


def arrived(rig: Rig) -> int:
    return sum(end_offsets(rig.target, rig.remote).values())


def of(
    partitions: set[int], check: Callable[[PartitionSnapshot], bool]
) -> Callable[[list[PartitionSnapshot]], bool]:
    """Return a function that returns True if the condition is true of all these partitions."""
    return lambda parts: all(check(p) for p in parts if p.partition in partitions)


def is_leaderless(part: PartitionSnapshot) -> bool:
    return part.code == "NO_LEADER" and part.state != "AT_END"


def finish(rig: Rig, mirror: Mirror, count: int) -> None:
    """Check that every record arrives once after the broker is back, without intervention, and that
    the codes disappear.
    """
    eventually(lambda: arrived(rig) >= count, what=f"{count} records")
    mirror.eventually(of(ALL, lambda p: p.state == "AT_END" and not p.code))
    mirror.stop()
    rig.same()


@pytest.mark.parametrize("side", MOSTLY_TARGET, indirect=True)
def test_start_beside_partitions_without_a_leader(flow: Rig, side: str) -> None:
    with flow.mirror(keys=KEYS, prelude=CALLS_WAIT) as mirror:
        put(flow, ALL, b"first")
        eventually(lambda: arrived(flow) == PARTITIONS)
        mirror.stop()
    put(flow, ALL, b"second")
    with Loss(flow, side) as loss:
        loss.begin()
        loss.is_told()
        with flow.mirror(keys=KEYS, prelude=CALLS_WAIT) as mirror:
            mirror.eventually(of(loss.live, lambda p: p.records >= 1))
            mirror.eventually(of(loss.gone, is_leaderless))
            loss.end()
            finish(flow, mirror, 2 * PARTITIONS)


def test_topic_grows_when_all_its_partitions_have_a_leader_again(flow: Rig) -> None:
    """The source topic gets more partitions while some target partitions have no leader. No lane
    then knows that all records of the remote topic are this flow's, so the remote topic grows only
    when the leaders are back. Partitions with a leader are copied in the meantime.
    """
    new = {PARTITIONS, PARTITIONS + 1}
    keys = KEYS | {"refresh.topics.interval.seconds": "1"}
    with flow.mirror(keys=keys, prelude=CALLS_WAIT) as mirror, Loss(flow, "target") as loss:
        put(flow, ALL, b"first")
        mirror.eventually(of(ALL, lambda p: p.records == 1 and p.state == "AT_END"))
        loss.begin()
        loss.is_told()
        put(flow, loss.gone, b"second")
        mirror.eventually(of(loss.gone, is_leaderless))
        add_partitions(flow.source, flow.topic, PARTITIONS + len(new))
        put(flow, loss.live | new, b"second")
        mirror.eventually(
            lambda parts: (
                {p.code for p in parts if p.partition in new} == {"TARGET_TOPIC_TOO_SMALL"}
            )
        )
        mirror.eventually(of(loss.live, lambda p: p.records == 2 and not p.code))
        assert partition_count(flow.target, flow.remote) == PARTITIONS
        loss.end()
        mirror.eventually(of(new, lambda p: p.records == 1 and not p.code))
        finish(flow, mirror, 2 * PARTITIONS + len(new))
    assert partition_count(flow.target, flow.remote) == PARTITIONS + len(new)


def test_questions_about_many_partitions_wait_for_none(flow: Rig) -> None:
    """Groups, checkpoints, `check`, `status` and `doctor` query many partitions in one call. For a
    partition without a leader the call returns an error, and it does not delay the others.
    """
    kept = TopicPartition(f"{flow.remote}-kept", 0)
    create_topic(flow.target, kept.topic, 1, 3, {"min.insync.replicas": "3"})
    tps = [TopicPartition(flow.remote, p) for p in sorted(ALL)]
    put(flow, ALL, b"first")
    with Loss(flow, "target") as loss, ClusterClient(settings_for(flow.target.bootstrap)) as client:
        loss.begin()
        loss.is_told()
        began = time.monotonic()
        for _ in range(3):
            starts = list_offsets(client, tps, EARLIEST)
            ends = log_ends(client, tps)
            producers = describe_producers(client, tps)
            for answers in (starts, ends, producers):
                failed = {tp.partition for tp, a in answers.items() if isinstance(a, TwinlogError)}
                assert failed == loss.gone
        assert time.monotonic() - began < PATIENCE_S
        seen = client.metadata([flow.remote])
        assert {tp.partition for tp in leaderless(seen, tps)} == loss.gone
        eventually(
            lambda: [*under_min_isr(client, client.metadata([kept.topic]), [kept])] == [kept]
        )
        assert [*under_min_isr(client, seen, tps)] == []
        loss.end()
        eventually(
            lambda: not any(isinstance(a, TwinlogError) for a in log_ends(client, tps).values()),
        )


@pytest.mark.parametrize(
    "frozen", [False, pytest.param(True, marks=pytest.mark.long)], ids=["killed", "frozen"]
)
def test_partitions_without_a_leader_do_not_delay_others(
    flow: Rig, side: str, frozen: bool
) -> None:
    keys = KEYS | {"twinlog.lane.memory.bytes": str(16 << 20)}
    with flow.mirror(keys=keys, prelude=CALLS_WAIT) as mirror, Loss(flow, side) as loss:
        put(flow, ALL, b"first")
        mirror.eventually(of(ALL, lambda p: p.records == 1 and p.state == "AT_END"))
        backlog = 0
        if side == "target":
            # fill the lane's memory with records that cannot be sent, before any client knows of
            # the loss
            loss.begin(frozen=frozen)
            backlog = 40 * len(loss.gone)
            put(flow, loss.gone, BIG, 40)
        else:
            loss.begin(frozen=frozen)
        loss.is_told()
        mirror.eventually(of(loss.gone, is_leaderless))
        put(flow, loss.live, b"second")
        mirror.eventually(of(loss.live, lambda p: p.records == 2))
        mirror.eventually(of(loss.live, lambda p: p.state == "AT_END" and not p.code))
        mirror.eventually(of(loss.gone, is_leaderless))
        loss.end()
        finish(flow, mirror, PARTITIONS + len(loss.live) + backlog)


def test_leader_vanishes_under_requests_in_flight(flow: Rig) -> None:
    with flow.mirror(keys=KEYS, prelude=CALLS_WAIT) as mirror, Loss(flow, "target") as loss:
        put(flow, ALL, b"first")
        eventually(lambda: arrived(flow) == PARTITIONS)
        for _ in range(20):
            put(flow, ALL, BIG, 10)
        mirror.eventually(of(loss.gone, lambda p: p.records > 5))
        loss.begin()
        # so that records wait in each partition, however far the copy was
        put(flow, loss.gone, BIG, 2)
        mirror.eventually(of(loss.live, lambda p: p.records == 201))
        mirror.eventually(of(loss.gone, is_leaderless))
        loss.end()
        finish(flow, mirror, 201 * PARTITIONS + 2 * len(loss.gone))


@pytest.mark.parametrize("side", MOSTLY_TARGET, indirect=True)
def test_once_ends_beside_partitions_without_a_leader(
    flow: Rig, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(flow, ALL, b"first")
    # the flow does not begin to copy a new topic while another topic cannot be read
    with flow.mirror(once=True, keys=KEYS) as mirror:
        mirror.wait()
    put(flow, ALL, b"second")
    with Loss(flow, side) as loss:
        loss.begin()
        loss.is_told()
        with (
            monkeypatch.context() as soon,
            flow.mirror(once=True, keys=KEYS, prelude=CALLS_WAIT) as mirror,
        ):
            soon.setattr("twinlog.control.running.flow_run.ONCE_GIVES_UP_S", 6.0)
            (ended,) = mirror.wait()
        found = {p.partition: (p.state, p.code) for p in ended.partitions}
        assert {p for p, (state, code) in found.items() if (state, code) == ("DONE", "")} == (
            loss.live
        )
        assert {p for p, (_, code) in found.items() if code == "NO_LEADER"} == loss.gone
        loss.end()
    with flow.mirror(once=True, keys=KEYS, prelude=CALLS_WAIT) as mirror:
        (ended,) = mirror.wait()
    states = [(p.state, p.code) for p in ended.partitions]
    assert states == [("DONE", "")] * PARTITIONS, (ended.state, ended.code, ended.reason)
    flow.same()


ADVERTISE: Final = """
import dataclasses
import twinlog.cluster.client as asked
def wrong(answer, real=asked.decode_metadata):
    found = real(answer)
    brokers = {{
        node: dataclasses.replace(one, host={host!r}) if one.port == {port} else one
        for node, one in found.brokers.items()
    }}
    return dataclasses.replace(found, brokers=brokers)
asked.decode_metadata = wrong
"""


@pytest.mark.long
def test_broker_that_advertises_an_impossible_name(
    flow: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broker advertises an invalid address. The partitions that it leads wait with NO_LEADER,
    in a running mirror and with `--once`. The others are copied.
    """
    put(flow, ALL, b"first")
    with flow.mirror(once=True, keys=KEYS) as mirror:
        mirror.wait()
    put(flow, ALL, b"second")
    # A set-up waits for the leader of the source's state topic, because this topic could show a
    # loop. So another broker must get the invalid address.
    away = next(node for node in (LOST, 1) if node != leader(flow.source, STATE_TOPIC))
    with ClusterClient(settings_for(flow.source.bootstrap)) as client:
        broker = client.metadata([flow.topic]).brokers[away]
    gone = {p for p in ALL if leader(flow.source, flow.topic, p) == away}
    advertised = ADVERTISE.format(host="kafka-2..svc", port=broker.port)
    monkeypatch.setattr("twinlog.cluster.client.decode_metadata", decode_metadata)
    exec(advertised, {})  # noqa: S102 (for the driver what the prelude is for lanes)
    config = load(flow.config(KEYS), environment={})
    assert "not a valid address" in " ".join(one.message for one in check(config).problems)
    # the broker is alive, so the cluster elects no other leader and some calls wait for it
    defaults = ClusterClient.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "api_timeout_s", 10.0)
    with (
        monkeypatch.context() as soon,
        flow.mirror(once=True, keys=KEYS, prelude=advertised) as mirror,
    ):
        soon.setattr("twinlog.control.running.flow_run.ONCE_GIVES_UP_S", 6.0)
        (ended,) = mirror.wait()
    found = {p.partition: (p.state, p.code) for p in ended.partitions}
    assert {p for p, one in found.items() if one == ("DONE", "")} == ALL - gone
    assert {p for p, (_, code) in found.items() if code == "NO_LEADER"} == gone
    with flow.mirror(keys=KEYS, prelude=advertised) as mirror:
        put(flow, ALL, b"third")
        mirror.eventually(of(ALL - gone, lambda p: p.state == "AT_END" and not p.code))
        mirror.eventually(of(gone, is_leaderless))
        mirror.stop()


def test_once_ends_when_the_leader_came_back_in_the_meantime(flow: Rig) -> None:
    """A run with `--once` queries the source partition's end while the partition has no leader.
    When the leader is back, the run ends and all partitions are DONE.
    """
    put(flow, ALL, b"first")
    with Loss(flow, "source") as loss:
        loss.begin()
        loss.is_told()
        with flow.mirror(once=True, keys=KEYS, prelude=CALLS_WAIT) as mirror:
            mirror.eventually(of(loss.live, lambda p: p.state == "DONE"))
            loss.end()
            (ended,) = mirror.wait()
        assert [(p.state, p.code) for p in ended.partitions] == [("DONE", "")] * PARTITIONS
    flow.same()


GROUPS: Final = {
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
}


def commit(cluster: LocalCluster, group: str, topic: str, offset: int) -> None:
    """Commit this offset for the group in all partitions of the topic."""
    client = consumer(cluster, config={"group.id": group})
    places = [Assigned(topic, p, offset) for p in sorted(ALL)]

    def is_taken() -> bool:
        try:
            client.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            raise AssertionError("its coordinator is only coming up") from error
        return True

    try:
        eventually(is_taken)
    finally:
        client.close()


def committed(cluster: LocalCluster, group: str, topic: str, partition: int) -> int:
    client = consumer(cluster, config={"group.id": group})
    try:
        (found,) = client.committed([Assigned(topic, partition)], timeout=PATIENCE_S)
    except KafkaException as error:
        raise AssertionError("its coordinator is only coming up") from error
    finally:
        client.close()
    return max(found.offset, -1)


@pytest.mark.witness("a partition without a leader does not delay groups of other partitions")
def test_other_groups_stay_translated(flow_into_three: Rig) -> None:
    flow = flow_into_three
    group = f"app-{flow.topic}"
    keys = KEYS | GROUPS | {f"{flow.flow}.groups": group}
    with flow.mirror(keys=keys, prelude=CALLS_WAIT) as mirror, Loss(flow, "target") as loss:
        put(flow, ALL, b"first", 10)
        mirror.eventually(of(ALL, lambda p: p.records == 10))
        commit(flow.source, group, flow.topic, 1)
        loss.begin()
        loss.is_told()
        one = min(loss.live)
        for offset in (3, 7):
            commit(flow.source, group, flow.topic, offset)
            eventually(
                lambda: committed(flow.target, group, flow.remote, one) == offset,  # noqa: B023
                what="the group's offset of a partition that is led",
            )
        loss.end()
        eventually(lambda: committed(flow.target, group, flow.remote, min(loss.gone)) == 7)
        mirror.stop()


CUT_OFF: Final = """
import socket
from pathlib import Path
connect = socket.socket.connect
def cut(self, address):
    if address[1] == {port} and Path({flag!r}).exists():
        raise OSError("no route to the broker")
    return connect(self, address)
socket.socket.connect = cut
"""
"""Prelude of a lane that cannot reach one broker, although all other clients can."""


def with_a_map(rig: Rig) -> set[int]:
    """Return the partitions whose map rows are on a broker that the lane can reach."""
    topic = offset_map_topic(rig.alias)
    homes = {p: map_partition(TopicPartition(rig.topic, p), MAP_PARTITIONS) for p in ALL}
    return {p for p, home in homes.items() if leader(rig.target, topic, home) != LOST}


@pytest.mark.parametrize("side", MOSTLY_TARGET, indirect=True)
def test_broker_that_only_the_lane_cannot_reach(flow: Rig, side: str, tmp_path: Path) -> None:
    flag = tmp_path / "cut"
    flag.touch()
    cluster = flow.source if side == "source" else flow.target
    port = int(cluster.bootstrap.split(",")[LOST - 1].rpartition(":")[2])
    put(flow, ALL, b"first")
    with flow.mirror(keys=KEYS, prelude=CALLS_WAIT) as mirror:
        eventually(lambda: arrived(flow) == PARTITIONS)
        mirror.stop()
    put(flow, ALL, b"second")
    loss = Loss(flow, side)
    live = loss.live if side == "source" else loss.live & with_a_map(flow)
    with flow.mirror(
        keys=KEYS, prelude=CALLS_WAIT + CUT_OFF.format(port=port, flag=str(flag))
    ) as mirror:
        mirror.eventually(of(live, lambda p: p.records == 1))
        mirror.eventually(of(loss.gone, is_leaderless))
        flag.unlink()
        finish(flow, mirror, 2 * PARTITIONS)
