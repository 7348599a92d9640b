"""A mirror between two secured clusters, under ordinary users with no right too many."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.mirror import Mirror
from tests.support.topics import allow, create_topic
from twinlog.sandbox import QUICK_JVM, LocalCluster, SandboxSecurity

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("secured-mirror")]

READER, WRITER = "reader", "writer"
ROLES = (
    ("SASL_SSL", "SCRAM-SHA-512", "PKCS12"),
    ("SASL_SSL", "PLAIN", "PEM"),
    ("SASL_PLAINTEXT", "OAUTHBEARER", "PEM"),
    ("SSL", None, "JKS"),
)


def secured(name: str, user: str) -> LocalCluster:
    security = SandboxSecurity(
        listeners=("SASL_SSL", "SASL_PLAINTEXT", "SSL"),
        users={user: f"{user}-secret"},
        client_certificates=True,
        authorizer=True,
    )
    return LocalCluster(name, security=security, jvm_flags=QUICK_JVM)


@pytest.fixture(scope="module")
def source() -> Iterator[LocalCluster]:
    with secured("secured-source", READER) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def target() -> Iterator[LocalCluster]:
    """Its user has everything on topics and groups, and nothing on the cluster but Describe."""
    with secured("secured-target", WRITER) as cluster:
        allow(cluster, WRITER, ["all"], topic="*")
        allow(cluster, WRITER, ["all"], group="*")
        allow(cluster, WRITER, ["describe"])
        yield cluster


def a_config(
    path: Path,
    source: LocalCluster,
    target: LocalCluster,
    topics: str,
    listener: str,
    mechanism: str | None,
    stores: str,
) -> Path:
    lines = ["clusters = A, B", "A->B.enabled = true", "replication.factor = 1"]
    lines.append(f"A->B.topics = {topics}")
    for alias, cluster, user in (("A", source, READER), ("B", target, WRITER)):
        properties = cluster.client_properties(
            listener,
            user,
            mechanism=mechanism,
            stores=stores,  # type: ignore[arg-type]
        )
        for key, value in properties.items():
            escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
            lines.append(f"{alias}.{key} = {escaped}")
    path.write_text("\n".join(lines) + "\n")
    return path


def records(count: int) -> list[Outgoing]:
    return [Outgoing(key=b"%d" % n, value=b"v%d" % n, headers=(("h", None),)) for n in range(count)]


@pytest.mark.parametrize(("listener", "mechanism", "stores"), ROLES)
def test_copies_over_every_kind_of_connection(
    source: LocalCluster,
    target: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    listener: str,
    mechanism: str | None,
    stores: str,
) -> None:
    create_topic(source, fresh_topic)
    allow(source, READER, ["read", "describe_configs"], topic=fresh_topic)
    produce(source, fresh_topic, records(500), codec="zstd")
    config = a_config(
        tmp_path / "mm2.properties", source, target, fresh_topic, listener, mechanism, stores
    )
    with Mirror(config, once=True) as mirror:
        (flow,) = mirror.wait(60)
    assert [(p.state, p.code) for p in flow.partitions] == [("DONE", "")]
    here, there = read_all(source, fresh_topic), read_all(target, f"A.{fresh_topic}")
    assert there == here
    assert len(there) == 500


def test_topic_without_read_fails_alone_and_says_which_acl_is_missing(
    source: LocalCluster,
    target: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = f"{fresh_topic}-closed"
    for topic in (fresh_topic, closed):
        create_topic(source, topic)
        produce(source, topic, records(50))
    allow(source, READER, ["read", "describe_configs"], topic=fresh_topic)
    allow(source, READER, ["describe", "describe_configs"], topic=closed)
    config = a_config(
        tmp_path / "mm2.properties",
        source,
        target,
        f"{fresh_topic}, {closed}",
        "SASL_SSL",
        "SCRAM-SHA-512",
        "PEM",
    )
    with caplog.at_level(logging.WARNING), Mirror(config, once=True) as mirror:
        (flow,) = mirror.wait(60)
    states = {p.topic: (p.state, p.code) for p in flow.partitions}
    assert states == {fresh_topic: ("DONE", ""), closed: ("FAILED", "TOPIC_UNAUTHORIZED")}
    (bad,) = [p for p in flow.partitions if p.topic == closed]
    assert "READ" in bad.message
    assert closed in bad.message
    assert len(read_all(target, f"A.{fresh_topic}")) == 50
    # this user may not read the brokers' settings: said once, with the key that helps
    told = [r.getMessage() for r in caplog.records]
    assert len([t for t in told if "twinlog.target.producer.id.expiration.ms" in t]) == 1
    assert not [t for t in told if "secret" in t.replace("-secret", "secret") and READER in t]
