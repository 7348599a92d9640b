"""A running mirror writes heartbeats and offset syncs in MirrorMaker 2's format. MirrorMaker 2's
own classes can read them.
"""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, Seen, produce, produce_transaction, read_all
from tests.support.clusters import private_cluster
from tests.support.eventually import eventually
from tests.support.java import kafka_jvm
from tests.support.mirror import EmittingMirror
from tests.support.rounds import Rounds
from tests.support.topics import create_topic, partition_count, topic_configs, topic_names
from twinlog.cli.main import run
from twinlog.control.duties.rounds import Duties
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.kafka_jars import mirror_maker_jars
from twinlog.wire.mm2_records import Heartbeat, OffsetSync

pytestmark = [pytest.mark.broker, pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]

NO_HEARTBEATS = "emit.heartbeats.enabled = false"


class Pair:
    """Two clusters with aliases of this test, and a topic to mirror."""

    def __init__(self, folder: Path, source: LocalCluster, target: LocalCluster) -> None:
        mark = uuid.uuid4().hex[:8]
        self.source, self.target = source, target
        self.a, self.b = f"a{mark}", f"b{mark}"
        self.topic = f"orders-{mark}"
        self.file = folder / "mm2.properties"

    def configure(self, *lines: str) -> Path:
        self.file.write_text(
            f"clusters = {self.a}, {self.b}\n"
            f"{self.a}.bootstrap.servers = {self.source.bootstrap}\n"
            f"{self.b}.bootstrap.servers = {self.target.bootstrap}\n"
            f"{self.a}->{self.b}.enabled = true\n"
            f"topics = {self.topic}\nreplication.factor = 1\n"
            + "".join(f"{line}\n" for line in lines)
        )
        return self.file

    @property
    def syncs_on_source(self) -> str:
        return f"mm2-offset-syncs.{self.b}.internal"

    @property
    def syncs_on_target(self) -> str:
        return f"mm2-offset-syncs.{self.a}.internal"


@pytest.fixture
def pair(tmp_path: Path, source_cluster: LocalCluster, target_cluster: LocalCluster) -> Pair:
    return Pair(tmp_path, source_cluster, target_cluster)


def records(numbers: Iterable[int]) -> list[Outgoing]:
    return [Outgoing(value=b"u%d" % number, partition=0) for number in numbers]


def syncs_in(cluster: LocalCluster, topic: str) -> list[OffsetSync]:
    if topic not in topic_names(cluster):
        return []
    found = read_all(cluster, topic)
    assert all(record.value is not None for record in found), "never a tombstone"
    return [OffsetSync.decode(record.key, record.value) for record in found]


def places(pair: Pair) -> dict[bytes, tuple[int, int]]:
    """Return (upstream, downstream) offsets by record value. An independent client has read both
    clusters.
    """
    there = {one.value: one.offset for one in read_all(pair.target, f"{pair.a}.{pair.topic}")}
    here = {one.value: one.offset for one in read_all(pair.source, pair.topic)}
    return {value: (here[value], there[value]) for value in there if value is not None}


def heartbeats_of(cluster: LocalCluster, pair: Pair) -> list[tuple[Seen, Heartbeat]]:
    if "heartbeats" not in topic_names(cluster):
        return []
    found = [(one, Heartbeat.decode(one.key, one.value)) for one in read_all(cluster, "heartbeats")]
    return [(one, beat) for one, beat in found if pair.a in (beat.source_alias, beat.target_alias)]


@pytest.fixture(scope="module")
def alone() -> Iterator[LocalCluster]:
    """A separate cluster, because on a shared one all tests' heartbeats would be mirrored."""
    with private_cluster("beats", 1) as cluster:
        yield cluster


@pytest.mark.witness("topology is derived from the heartbeats of both directions")
def test_heartbeats_of_both_directions_arrive_and_tell_the_topology(
    tmp_path: Path, alone: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only A->B is enabled, but heartbeats arrive in both directions: like MirrorMaker 2, the
    mirror runs B->A only to write heartbeats to A. Here A and B are one cluster.
    """
    began_ms = int(time.time() * 1000)
    pair = Pair(tmp_path, alone, alone)
    create_topic(alone, pair.topic)
    remote = f"{pair.a}.heartbeats"
    path = pair.configure(
        "heartbeats.replication.enabled = true", "refresh.topics.interval.seconds = 1"
    )
    with EmittingMirror(path, lanes=1) as mirror:
        eventually(lambda: len(heartbeats_of(alone, pair)) >= 4)
        eventually(lambda: remote in topic_names(alone) and bool(read_all(alone, remote)))
        assert run(["topology", str(path), "--format", "json"]) == 0
        mirror.stop()
    for seen, beat in heartbeats_of(alone, pair):
        assert (seen.partition, seen.timestamp) == (0, beat.timestamp_ms)
        assert began_ms <= beat.timestamp_ms <= time.time() * 1000
    pairs = {(beat.source_alias, beat.target_alias) for _, beat in heartbeats_of(alone, pair)}
    assert pairs == {(pair.a, pair.b), (pair.b, pair.a)}
    assert partition_count(alone, "heartbeats") == 1
    assert topic_configs(alone, "heartbeats") == {"cleanup.policy": "compact"}
    (flow,) = [one for one in json.loads(capsys.readouterr().out)["flows"] if one["copies"]]
    assert (flow["flow"], flow["hops"]) == (f"{pair.a}->{pair.b}", 1)
    assert flow["last_heartbeat_ms"] >= began_ms


@pytest.mark.witness("heartbeats and offset syncs can be turned off")
def test_heartbeats_and_offset_syncs_can_be_turned_off(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(monkeypatch, Duties, "_round", lambda _self, duty, *_: duty.name)
    create_topic(pair.source, pair.topic)
    produce(pair.source, pair.topic, records(range(5)))
    path = pair.configure(NO_HEARTBEATS, "emit.offset-syncs.enabled = false")
    with EmittingMirror(path, lanes=1) as mirror:
        mirror.eventually(lambda parts: all(part.records == 5 for part in parts))
        rounds.pass_by("checkpoints")
        mirror.stop()
    assert not [name for name in rounds.ended if name.startswith(("heartbeats", "offset syncs"))]
    for cluster in (pair.source, pair.target):
        assert heartbeats_of(cluster, pair) == []
        assert {pair.syncs_on_source, pair.syncs_on_target} & topic_names(cluster) == set()


@pytest.mark.witness("offset syncs match copied records, also after a restart", case="source")
@pytest.mark.parametrize("location", ["source", "target"])
def test_offset_syncs_are_of_copied_records_and_continue_after_a_restart(
    pair: Pair, location: str
) -> None:
    create_topic(pair.source, pair.topic)
    cluster, topic = (
        (pair.source, pair.syncs_on_source)
        if location == "source"
        else (pair.target, pair.syncs_on_target)
    )
    other = pair.target if location == "source" else pair.source
    path = pair.configure(
        f"offset-syncs.topic.location = {location}", "offset.lag.max = 10", NO_HEARTBEATS
    )
    produce(pair.source, pair.topic, records(range(40)))
    with EmittingMirror(path, once=True, lanes=1) as mirror:
        mirror.wait()
    first = syncs_in(cluster, topic)
    assert first, "--once ends with a round of it"
    assert (first[-1].upstream_offset, first[-1].downstream_offset) == (39, 39)

    produce_transaction(pair.source, pair.topic, records(range(40, 45)), commit=False)
    produce_transaction(pair.source, pair.topic, records(range(45, 50)), commit=True)
    produce(pair.source, pair.topic, records(range(50, 90)))
    with EmittingMirror(path, lanes=1) as mirror:
        eventually(lambda: places(pair).get(b"u89") is not None)
        last = places(pair)[b"u89"]
        eventually(lambda: _newest(syncs_in(cluster, topic)) == last)
        mirror.stop()
    syncs = syncs_in(cluster, topic)
    where = places(pair)
    found = [(sync.upstream_offset, sync.downstream_offset) for sync in syncs]
    assert found[: len(first)] == [(s.upstream_offset, s.downstream_offset) for s in first]
    assert found == sorted(set(found)), "rising, also over the restart"
    assert set(found) <= set(where.values())
    assert {where[b"u45"], where[b"u50"], where[b"u89"]} <= set(found), "behind every gap"
    apart = [after[1] - before[1] for before, after in itertools.pairwise(found)]
    assert max(apart) <= 2 * 11, "a history begins far apart; after it offset.lag.max holds"
    assert {sync.topic_partition for sync in syncs} == {TopicPartition(pair.topic, 0)}
    assert topic_configs(cluster, topic) == {"cleanup.policy": "compact"}
    assert partition_count(cluster, topic) == 1
    assert {pair.syncs_on_source, pair.syncs_on_target} & topic_names(other) == set()


def _newest(syncs: list[OffsetSync]) -> tuple[int, int] | None:
    return (syncs[-1].upstream_offset, syncs[-1].downstream_offset) if syncs else None


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with kafka_jvm(mirror_maker_jars()) as started:
        yield started


def test_java_translates_by_our_offset_syncs_and_never_too_far(jvm: Any, pair: Pair) -> None:
    create_topic(pair.source, pair.topic)
    for at in range(0, 200, 20):
        produce_transaction(pair.source, pair.topic, records(range(at, at + 10)), commit=True)
        produce(pair.source, pair.topic, records(range(at + 10, at + 20)))
    path = pair.configure("offset.lag.max = 3", NO_HEARTBEATS)
    with EmittingMirror(path, once=True, lanes=1) as mirror:
        mirror.wait()
    where = sorted(places(pair).values())
    store = _OffsetSyncStore(jvm, pair)
    try:
        answers = {offset: store.translate(offset) for offset in range(where[-1][0] + 3)}
    finally:
        store.close()
    exact = {
        offset: min((there for here, there in where if here >= offset), default=where[-1][1] + 1)
        for offset in answers
    }
    assert all(answers[offset] <= exact[offset] for offset in answers)
    assert answers[0] == 0, "the first record has one"
    assert answers[where[-1][0] + 1] == where[-1][1] + 1, "who has read all continues at the end"
    assert all(answer >= 0 for answer in answers.values())
    late = [offset for offset in answers if offset > where[-5][0]]
    assert all(exact[offset] - answers[offset] <= 4 for offset in late), (
        "close to the end it is close"
    )


class _OffsetSyncStore:
    """Calls Java's package-private class of this name."""

    def __init__(self, jvm: Any, pair: Pair) -> None:
        self._jvm = jvm
        mm2 = jvm.org.apache.kafka.connect.mirror
        config = mm2.MirrorCheckpointConfig(
            {
                "name": "MirrorCheckpointConnector",
                "connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
                "source.cluster.alias": pair.a,
                "target.cluster.alias": pair.b,
                "source.cluster.bootstrap.servers": pair.source.bootstrap,
                "target.cluster.bootstrap.servers": pair.target.bootstrap,
            }
        )
        self._class = jvm.java.lang.Class.forName("org.apache.kafka.connect.mirror.OffsetSyncStore")
        constructor = next(
            one for one in self._class.getDeclaredConstructors() if one.getParameterCount() == 1
        )
        constructor.setAccessible(True)
        self._store = constructor.newInstance(self._array(config))
        self._call("start", False)
        self._tp = jvm.org.apache.kafka.common.TopicPartition(pair.topic, 0)

    def translate(self, offset: int) -> int:
        """Return the translated offset, or -1 if there is no translation or the offset is too
        old.
        """
        long = self._jvm.java.lang.Long.valueOf(str(offset))
        found = self._call("translateDownstream", "g", self._tp, long)
        return int(found.getAsLong()) if found.isPresent() else -1

    def close(self) -> None:
        self._call("close")

    def _call(self, name: str, *arguments: Any) -> Any:
        method = next(
            one
            for one in self._class.getDeclaredMethods()
            if one.getName() == name and one.getParameterCount() == len(arguments)
        )
        method.setAccessible(True)
        return method.invoke(self._store, self._array(*arguments))

    def _array(self, *values: Any) -> Any:
        made = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("java.lang.Object"), len(values)
        )
        for at, value in enumerate(values):
            made[at] = value
        return made
