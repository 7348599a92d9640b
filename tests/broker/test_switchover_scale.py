"""A switchover of many topics with many groups interrupts producers only for seconds."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned

from tests.support.client import connection_of, eventually, producer
from tests.support.cutover import Commands
from tests.support.eventually import PATIENCE_S
from tests.support.groups import commit_all
from tests.support.live import LiveProducer
from tests.support.mirror import Mirror
from tests.support.rights import SECRET, SecuredPair, secured_pair
from tests.support.topics import allow, create_topic, end_offsets, topic_names
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.protocol import Message
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.alone]

TOPICS = [f"orders-{number}" for number in range(100)]
PARTITIONS = 10
RECORDS = 20
"""Number of records in each partition."""
GROUPS = 50
TOPICS_OF_A_GROUP = 20
MOST_S = 10.0
FAR_S = 0.08
"""Delay in seconds of each request that the command sends to the source."""
MOST_FAR_S = 15.0


@pytest.fixture
def pair() -> Iterator[SecuredPair]:
    with secured_pair("switchover-scale") as clusters:
        yield clusters


def config(pair: SecuredPair, folder: Path) -> Path:
    text = ["clusters = A, B", "A->B.enabled = true", "topics = orders-.*", "groups = app-.*"]
    text += ["replication.factor = 1", "consumer.isolation.level = read_committed"]
    text += ["twinlog.status.interval.seconds = 1"]
    for alias, cluster in (("A", pair.source), ("B", pair.target)):
        found = connection_of(cluster)
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        user = f'username="{found["sasl.username"]}" password="{found["sasl.password"]}"'
        text += [
            f"{alias}.bootstrap.servers = {found['bootstrap.servers']}",
            f"{alias}.security.protocol = SASL_PLAINTEXT",
            f"{alias}.sasl.mechanism = PLAIN",
            f"{alias}.sasl.jaas.config = {login} {user};",
        ]
    path = folder / "mm2.properties"
    path.write_text("\n".join(text) + "\n")
    return path


def places(group: int) -> list[Assigned]:
    """Return the offsets of a group, which differ from those of the other groups."""
    first = group * 2
    topics = [TOPICS[number % len(TOPICS)] for number in range(first, first + TOPICS_OF_A_GROUP)]
    return [
        Assigned(topic, partition, (group + partition) % RECORDS)
        for topic, partition in itertools.product(topics, range(PARTITIONS))
    ]


def sent_by_this_thread(
    monkeypatch: pytest.MonkeyPatch, source: LocalCluster, far_s: float
) -> list[str]:
    """Return a list to which the kinds of requests of this thread are added in order. Delay
    requests to the source by `far_s`.
    """
    sent, ours, begin = list[str](), threading.get_ident(), Connection.begin
    ports = {
        int(one.rpartition(":")[2]) for one in source.bootstrap_for("SASL_PLAINTEXT").split(",")
    }

    def begun(connection: Connection, request: Message, **versions: int | None) -> None:
        if threading.get_ident() == ours:
            sent.append(type(request).__name__)
            if connection.port in ports:
                time.sleep(far_s)  # the delay of the link
        begin(connection, request, **versions)

    monkeypatch.setattr(Connection, "begin", begun)
    return sent


@pytest.mark.parametrize(
    ("is_transactional", "far_s", "most_s"),
    [(False, 0.0, MOST_S), (True, FAR_S, MOST_FAR_S)],
    ids=["near", "transactions-80-ms-away"],
)
def test_producers_are_interrupted_for_seconds(
    is_transactional: bool,
    far_s: float,
    most_s: float,
    pair: SecuredPair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for topic in TOPICS:
        create_topic(pair.source, topic, partitions=PARTITIONS)
    writer = producer(
        pair.source, config={"transactional.id": "many"} if is_transactional else None
    )
    if is_transactional:
        writer.init_transactions()
        writer.begin_transaction()
    for topic, partition, number in itertools.product(TOPICS, range(PARTITIONS), range(RECORDS)):
        writer.produce(topic, b"%d" % number, partition=partition)
        writer.poll(0)
    writer.flush()
    if is_transactional:
        writer.commit_transaction()  # so every log ends with a marker
    for group in range(GROUPS):
        commit_all(pair.source, f"app-{group}", places(group))
    user, more = "user1", ["write", "describe"]
    for cluster, prefix in ((pair.source, "orders-"), (pair.target, "A.orders-")):
        allow(cluster, user, more, topic=prefix, prefixed=True)
    keys = [
        {
            "bootstrap.servers": cluster.bootstrap_for("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": SECRET + user,
        }
        for cluster in (pair.source, pair.target)
    ]
    file, over, flag = config(pair, tmp_path), threading.Event(), tmp_path / "over"
    commands = Commands("switchover", file, capsys)
    hook = f'{sys.executable} -c "import pathlib,sys;pathlib.Path(sys.argv[1]).touch()" {flag}'

    def follow() -> None:
        eventually(flag.exists)
        over.set()

    def is_copied() -> bool:
        last = f"A.{TOPICS[-1]}"
        return {f"A.{topic}" for topic in TOPICS} <= topic_names(pair.target) and (
            sum(end_offsets(pair.target, last).values()) >= PARTITIONS * RECORDS
        )

    sent = sent_by_this_thread(monkeypatch, pair.source, far_s)
    shop = LiveProducer(over, (keys[0], TOPICS[0]), (keys[1], f"A.{TOPICS[0]}"))
    with Mirror(file) as mirror:
        eventually(is_copied)
        with shop:
            eventually(lambda: commands.do("plan")[0] == 0, what="open gates")
            threading.Thread(target=follow, daemon=True).start()
            sent.clear()
            code, out, err = commands.do("run", "--yes", "--hook", hook)
            assert code == 0, (out, err)
            behind_the_fence = Counter(sent[sent.index("CreateAclsRequest") :])
            eventually(lambda: shop.works() and shop.first_there_at)
            shop.end()
        mirror.stop()
    with capsys.disabled():
        sys.stdout.write(f"\n{out}\nfrom the fence to the first record there: {shop.gap_s:.1f} s\n")
    for group in range(GROUPS):
        client = Consumer({**connection_of(pair.target), "group.id": f"app-{group}"})
        wanted = {(f"A.{one.topic}", one.partition): one.offset for one in places(group)}
        asked = [Assigned(*place) for place in wanted]
        found = client.committed(asked, timeout=PATIENCE_S)
        assert {(one.topic, one.partition): one.offset for one in found} == wanted
        client.close()
    assert behind_the_fence["OffsetCommitRequest"] == GROUPS
    assert behind_the_fence.total() < len(TOPICS) * PARTITIONS, "not one for each partition"
    assert shop.gap_s < most_s
