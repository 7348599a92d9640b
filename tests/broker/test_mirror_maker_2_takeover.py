"""The command takes over from a real MirrorMaker 2 under load, and hands back. It takes over once
more after MirrorMaker 2 was killed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, producer, read_all
from tests.support.clusters import private_cluster
from tests.support.command import Command
from tests.support.connect_chains import KAFKAS
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.mirror_maker import mirror_maker, one_cluster_file
from tests.support.settings import settings_for
from tests.support.topics import create_topic, end_offsets, topic_names
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_members import connect_group
from twinlog.config.flow.offset_storage import offset_storage
from twinlog.config.load import load
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import AdoptionRefused
from twinlog.mirror.names.naming import DefaultReplicationPolicy
from twinlog.model import Flow, TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.survey.exact_map import ExactMap
from twinlog.wire.mm2_records import PositionKey, decode_position

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.compat,
    pytest.mark.xdist_group("mirror-maker-jvm"),
]

PARTITIONS = 2
POSITIONS = "mm2-offsets.A.internal"
QUIET, LATER = 25, 5
"""Number of records of the topic `quiet`, and how many of them are written after the takeover."""
WITHOUT_TRACE = {
    "A->B.transforms": "noTrace",
    "A->B.transforms.noTrace.type": f"{KAFKAS}DropHeaders",
    "A->B.transforms.noTrace.headers": "trace",
    "A->B.transforms.noTrace.predicate": "isQuiet",
    "A->B.predicates": "isQuiet",
    "A->B.predicates.isQuiet.type": f"{KAFKAS}predicates.TopicNameMatches",
    "A->B.predicates.isQuiet.pattern": r"A\\.quiet",
}
"""Transforms of both mirrors that remove a header of the records of `quiet`."""
FILTERED_AND_ROUTED = WITHOUT_TRACE | {
    "A->B.transforms": "noTrace, noTombstones, route",
    "A->B.transforms.noTombstones.type": f"{KAFKAS}Filter",
    "A->B.transforms.noTombstones.predicate": "isTombstone",
    "A->B.transforms.route.type": f"{KAFKAS}RegexRouter",
    "A->B.transforms.route.regex": r"A\\.(quiet)",
    "A->B.transforms.route.replacement": "routed-$1",
    "A->B.predicates": "isQuiet, isTombstone",
    "A->B.predicates.isTombstone.type": f"{KAFKAS}predicates.RecordIsTombstone",
}
"""Transforms of both mirrors that also filter out all tombstones, and copy `quiet` to
`routed-quiet`.
"""


@pytest.fixture(params=[WITHOUT_TRACE, FILTERED_AND_ROUTED], ids=["a header", "filtered, routed"])
def chain(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster with the aliases A and B. It is separate because of MirrorMaker 2's own topics."""
    with private_cluster("takeover", 1) as running:
        yield running


@pytest.fixture
def properties(tmp_path: Path, cluster: LocalCluster, chain: dict[str, str]) -> Path:
    return one_cluster_file(
        tmp_path / "mm2.properties",
        cluster,
        topics="orders, quiet",
        emit_heartbeats_enabled="false",
        heartbeats_replication_enabled="false",
        offset_lag_max="10",
        B_offset_flush_interval_ms="4000",
        B_session_timeout_ms="6000",
        B_heartbeat_interval_ms="1000",
        twinlog_state_topic_replication_factor="1",
        **chain,
    )


@contextmanager
def traffic(cluster: LocalCluster) -> Iterator[None]:
    """Write numbered records to both partitions of `orders`, some hundreds per second, until the
    block ends.
    """
    stop = threading.Event()

    def work() -> None:
        client, number = producer(cluster), 0
        while not stop.wait(0.02):
            for _ in range(5):
                for partition in range(PARTITIONS):
                    client.produce(
                        "orders",
                        key=b"k%d" % (number % 7),
                        value=b"%d-%d" % (partition, number),
                        headers=[("n", b"%d" % number)],
                        partition=partition,
                    )
                number += 1
            client.poll(0)
        client.flush(30)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_stopped_taken_over_handed_back_killed_and_taken_over_again(
    cluster: LocalCluster,
    properties: Path,
    chain: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    remote, expected = copy_of_quiet(chain)
    create_topics(cluster, remote)
    produce(cluster, "quiet", quiet_records(range(QUIET - LATER)))
    with traffic(cluster):
        with mirror_maker(properties) as running:
            eventually(lambda: len(positions(cluster)) == PARTITIONS + 1)
            with pytest.raises(AdoptionRefused, match="run MirrorSourceConnector; stop it first"):
                adopt(properties)
            assert run(["check", str(properties), "--adopt-mm2"]) == 1
            said = " ".join(capsys.readouterr().out.split())
            assert "[MM2_RUNNING]" in said
            assert "orders is taken over from MirrorMaker 2, by partition: 0 at" in said
            assert "[FOREIGN_DATA]" not in said, "it is MirrorMaker 2's"
            stop_in_order(running)
        eventually(lambda: not has_workers(properties))
        taken_over_at = copied(cluster)
        arguments = ("mirror", str(properties), "--adopt-mm2", "--listen", "off")
        produce(cluster, "quiet", quiet_records(range(QUIET - LATER, QUIET)))
        with Command(tmp_path / "ours", *arguments) as ours:
            eventually(lambda: copied(cluster) > taken_over_at + 200)
            eventually(lambda: end_offsets(cluster, remote) == {0: len(expected)})
            ours.terminate()
            assert ours.wait() == 0, ours.stderr
        assert_copy_is_the_beginning_of_the_source(cluster)
        assert positions(cluster) == last_copied(cluster), "a stop in order notes the last record"
        handed_back_at = copied(cluster)
        with mirror_maker(properties) as running:
            eventually(lambda: noted_of(cluster, "orders") > handed_back_at)
            eventually(lambda: is_killed_ahead_of_its_notes(cluster, running))
    eventually(lambda: not has_workers(properties))
    # including the records that MirrorMaker 2 copied after Twinlog
    assert_copy_is_the_beginning_of_the_source(cluster)
    names = set(topic_names(cluster))
    assert run(["check", str(properties), "--adopt-mm2"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "orders is taken over from MirrorMaker 2, by partition: 0 at" in said
    for partition in range(PARTITIONS):
        noted = positions(cluster)[TopicPartition("orders", partition)]
        end = end_offsets(cluster, "A.orders")[partition]
        assert f"A.orders-{partition}: holds [{noted + 1}, {end}) of orders-{partition}" in said
        assert f"copied these {end - noted - 1} offsets again, Twinlog does not" in said
    assert set(topic_names(cluster)) == names
    begins = end_offsets(cluster, "A.orders")
    with Command(tmp_path / "again", *arguments, "--once") as again:
        assert again.wait() == 0, again.stderr
    # each source record has one target record, because neither MirrorMaker 2 nor Twinlog wrote any
    # twice
    assert_copy_is_the_beginning_of_the_source(cluster)
    assert [(one.value, one.headers) for one in read_all(cluster, remote)] == expected
    assert copied(cluster) == sum(end_offsets(cluster, "orders").values())
    assert positions(cluster) == last_copied(cluster)
    groups_behind_the_takeover_skip_nothing_and_read_little_again(cluster, begins)


def create_topics(cluster: LocalCluster, remote: str) -> None:
    """Create the source's topics. Create `remote` as well if MirrorMaker 2 does not create it."""
    create_topic(cluster, "orders", PARTITIONS)
    create_topic(cluster, "quiet")
    if not remote.startswith("A."):
        create_topic(cluster, remote)


def copy_of_quiet(chain: dict[str, str]) -> tuple[str, list[tuple[bytes | None, object]]]:
    """Return the remote topic of `quiet`, and the records that it must have in the end."""
    filters = chain is FILTERED_AND_ROUTED
    values = [None if is_tombstone(n) else b"%d" % n for n in range(QUIET)]
    records: list[tuple[bytes | None, object]] = [
        (value, (("n", b"%d" % n),))
        for n, value in enumerate(values)
        if value is not None or not filters
    ]
    return ("routed-quiet" if filters else "A.quiet"), records


def is_tombstone(number: int) -> bool:
    """Return True if this record of `quiet` is a tombstone: every `LATER`th one is."""
    return number % LATER == LATER - 1


def quiet_records(numbers: Iterable[int]) -> list[Outgoing]:
    return [
        Outgoing(
            key=b"q",
            value=None if is_tombstone(n) else b"%d" % n,
            headers=(("trace", b"t"), ("n", b"%d" % n)),
        )
        for n in numbers
    ]


def groups_behind_the_takeover_skip_nothing_and_read_little_again(
    cluster: LocalCluster, begins: dict[int, int]
) -> None:
    """Check the translation of group offsets after the takeover, which relies on MirrorMaker 2's
    syncs before it. In this test each record has the same offset on both clusters.
    """
    with ClusterClient(settings_for(cluster.bootstrap)) as client:
        exact = ExactMap(client, DefaultReplicationPolicy(), Flow("A", "B"))
        for partition, begin in begins.items():
            here = TopicPartition("A.orders", partition)
            for offset in (0, 1, begin // 3, begin // 2, begin - 1, begin, begin + 1):
                (found,) = exact.downstream({here: offset}).values()
                (back,) = exact.upstream({here: offset}).values()
                assert found.is_exact == back.is_exact == (offset >= begin)
                assert (found.offset == back.offset == offset) or not found.is_exact
                # MirrorMaker 2 writes few syncs while it copies many records at once, so the
                # distance between syncs varies
                assert (offset > 1) <= found.offset <= offset
                assert (offset > 1) <= back.offset <= offset
            (last,) = exact.downstream({here: begin - 1}).values()
            assert last.offset > begin // 2


def stop_in_order(running: subprocess.Popen[bytes]) -> None:
    running.terminate()
    running.wait(PATIENCE_S)


def is_killed_ahead_of_its_notes(cluster: LocalCluster, running: subprocess.Popen[bytes]) -> bool:
    """Kill MirrorMaker 2 if it has copied further than its flushed positions, and return True.
    Otherwise return False: it flushes at any time.
    """
    running.send_signal(signal.SIGSTOP)
    noted, ends = positions(cluster), end_offsets(cluster, "A.orders")
    if any(end <= noted[TopicPartition("orders", part)] + 50 for part, end in ends.items()):
        running.send_signal(signal.SIGCONT)
        return False
    running.kill()
    running.wait(PATIENCE_S)
    return True


def adopt(properties: Path) -> None:
    """Run the first steps of a mirror with --adopt-mm2. Raises the error of a refused adoption."""
    config = load(properties, environment={})
    (flow,) = config.flows
    setup = flow_setup(flow, offset_storage(config, flow))
    try:
        setup.prepare(once=True)
    finally:
        setup.close(None)


def has_workers(properties: Path) -> bool:
    """Return True if the workers' group has members. A killed worker remains a member until its
    session ends.
    """
    config = load(properties, environment={})
    (flow,) = config.flows
    with ClusterClient(flow_setup(flow).target) as target:
        return connect_group(Coordinators(target), "A-mm2").members > 0


def copied(cluster: LocalCluster) -> int:
    if "A.orders" not in topic_names(cluster):
        return 0
    return sum(end_offsets(cluster, "A.orders").values())


def positions(cluster: LocalCluster) -> dict[TopicPartition, int]:
    """Return the positions as Connect reads them: the last value of each key, where keys are
    compared as bytes.
    """
    if POSITIONS not in topic_names(cluster):
        return {}
    latest: dict[bytes, int] = {}
    homes: dict[bytes, int] = {}
    for record in read_all(cluster, POSITIONS):
        assert record.key is not None
        if json.loads(record.key)[0] == "MirrorSourceConnector":
            offset = decode_position(record.value)
            assert offset is not None
            assert homes.setdefault(record.key, record.partition) == record.partition
            latest[record.key] = offset
    keys = {key: PositionKey.decode(key) for key in latest}
    found = {one.source: latest[key] for key, one in keys.items() if one is not None}
    assert len(found) == len(latest), "a partition has two keys: their bytes differ"
    return found


def noted_of(cluster: LocalCluster, topic: str) -> int:
    return sum(at + 1 for tp, at in positions(cluster).items() if tp.topic == topic)


def last_copied(cluster: LocalCluster) -> dict[TopicPartition, int]:
    out = {TopicPartition("quiet", 0): QUIET - 1}
    ends = end_offsets(cluster, "A.orders")
    # each source record has one target record, because none was written twice
    return out | {TopicPartition("orders", part): ends[part] - 1 for part in range(PARTITIONS)}


def assert_copy_is_the_beginning_of_the_source(cluster: LocalCluster) -> None:
    """Check that the copy equals the start of the source, record by record."""
    source, target = read_all(cluster, "orders"), read_all(cluster, "A.orders")
    for partition in range(PARTITIONS):
        here = [one[2:6] for one in source if one.partition == partition]
        there = [one[2:6] for one in target if one.partition == partition]
        assert there == here[: len(there)]
