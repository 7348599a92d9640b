"""A mirror between two secured clusters whose users have only the necessary rights."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.mirror import Mirror
from tests.support.sandbox_security import SandboxSecurity
from tests.support.topics import allow, create_topic, end_offsets, forbid
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.sandbox import QUICK_JVM, LocalCluster

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
    """A target whose user has all rights on topics and groups, and only DESCRIBE on the cluster."""
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


@pytest.mark.witness("a mirror copies over every protocol and mechanism")
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
        (flow,) = mirror.wait()
    assert [(p.state, p.code) for p in flow.partitions] == [("DONE", "")]
    here, there = read_all(source, fresh_topic), read_all(target, f"A.{fresh_topic}")
    assert there == here
    assert len(there) == 500


def a_resource(
    folder: Path, source: LocalCluster, target: LocalCluster, topics: str
) -> tuple[Path, Path]:
    """Write a Strimzi resource for both clusters, and the folder of secrets that Kubernetes would
    mount. Return both paths.
    """
    secrets = folder / "secrets"
    reader = source.client_properties("SSL", READER, stores="PEM")
    writer = target.client_properties("SASL_SSL", WRITER, stores="PEM")
    identity = Path(reader["ssl.keystore.location"]).read_text()
    end_of_key = identity.index("-----BEGIN CERTIFICATE")
    for name, key, text in (
        ("source-ca", "ca.crt", Path(reader["ssl.truststore.location"]).read_text()),
        ("target-ca", "ca.crt", Path(writer["ssl.truststore.location"]).read_text()),
        ("reader", "user.key", identity[:end_of_key]),
        ("reader", "user.crt", identity[end_of_key:]),
        ("writer", "password", f"{WRITER}-secret"),
    ):
        (secrets / name).mkdir(parents=True, exist_ok=True)
        (secrets / name / key).write_text(text)
    resource = folder / "mirror.yaml"
    resource.write_text(
        RESOURCE.format(
            source=reader["bootstrap.servers"], target=writer["bootstrap.servers"], topics=topics
        )
    )
    return resource, secrets


RESOURCE = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {{name: mirror}}
spec:
  version: 4.1.0
  replicas: 1
  connectCluster: B
  clusters:
    - alias: A
      bootstrapServers: {source}
      tls:
        trustedCertificates:
          - secretName: source-ca
            certificate: ca.crt
      authentication:
        type: tls
        certificateAndKey: {{secretName: reader, certificate: user.crt, key: user.key}}
    - alias: B
      bootstrapServers: {target}
      tls:
        trustedCertificates:
          - secretName: target-ca
            pattern: "*.crt"
      authentication:
        type: scram-sha-512
        username: writer
        passwordSecret: {{secretName: writer, password: password}}
  mirrors:
    - sourceCluster: A
      targetCluster: B
      topicsPattern: {topics}
      sourceConnector:
        tasksMax: 1
        config: {{replication.factor: 1, sync.topic.acls.enabled: false}}
"""


def test_strimzi_resource_with_tls_and_scram_mirrors_between_both(
    source: LocalCluster, target: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    create_topic(source, fresh_topic)
    allow(source, READER, ["read", "describe_configs"], topic=fresh_topic)
    produce(source, fresh_topic, records(300), codec="lz4")
    resource, secrets = a_resource(tmp_path, source, target, fresh_topic)
    report = check(load(resource, environment={}, secrets=secrets))
    assert [str(problem) for problem in report.problems] == []
    assert [topic.topic for topic in report.flows[0].topics] == [fresh_topic]
    with Mirror(resource, once=True, secrets=secrets) as mirror:
        (flow,) = mirror.wait()
    assert [(p.state, p.code) for p in flow.partitions] == [("DONE", "")]
    here, there = read_all(source, fresh_topic), read_all(target, f"A.{fresh_topic}")
    assert there == here
    assert len(there) == 300


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
        (flow,) = mirror.wait()
    states = {p.topic: (p.state, p.code) for p in flow.partitions}
    assert states == {fresh_topic: ("DONE", ""), closed: ("FAILED", "TOPIC_UNAUTHORIZED")}
    (bad,) = [p for p in flow.partitions if p.topic == closed]
    assert "READ" in bad.message
    assert closed in bad.message
    assert len(read_all(target, f"A.{fresh_topic}")) == 50
    # the user cannot read the brokers' settings, which is logged once with the key that replaces
    # them
    told = [r.getMessage() for r in caplog.records]
    assert len([t for t in told if "twinlog.target.producer.id.expiration.ms" in t]) == 1
    assert not [t for t in told if "secret" in t.replace("-secret", "secret") and READER in t]


def test_rights_that_are_taken_and_given_back_stop_one_topic_for_so_long(
    source: LocalCluster,
    target: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)
    monkeypatch.setattr("twinlog.control.flow.generation.RETRY_FAILED_S", 1.0)
    bad = f"{fresh_topic}-bad"
    for topic in (fresh_topic, bad):
        create_topic(source, topic)
        produce(source, topic, records(50))
        allow(source, READER, ["read", "describe", "describe_configs"], topic=topic)
    config = a_config(
        tmp_path / "mm2.properties",
        source,
        target,
        f"{fresh_topic}, {bad}",
        "SASL_PLAINTEXT",
        "PLAIN",
        "PEM",
    )

    def states(parts: list[PartitionSnapshot]) -> dict[str, tuple[str, str]]:
        return {part.topic: (part.state, part.code) for part in parts}

    healthy = ("AT_END", "")
    with Mirror(config, lanes=1) as mirror:
        mirror.eventually(lambda parts: states(parts) == {fresh_topic: healthy, bad: healthy})
        # READ is removed first and DESCRIBE later, because a topic without both rights looks
        # deleted
        for operations in (["read"], ["describe"]):
            forbid(source, READER, operations, topic=bad)
            produce(source, bad, records(10))
            told = {("FAILED", "TOPIC_UNAUTHORIZED"), ("SOURCE_DELETED", "")}
            # a lane that notices it first reports TOPIC_MISSING until the next discovery
            mirror.eventually(lambda parts: states(parts)[bad] in told)  # noqa: B023
            before = end_offsets(target, f"A.{fresh_topic}")[0]
            produce(source, fresh_topic, records(10))
            wanted = before + 10
            eventually(lambda: end_offsets(target, f"A.{fresh_topic}")[0] == wanted)  # noqa: B023
        mirror.eventually(lambda parts: states(parts)[bad] == ("SOURCE_DELETED", ""))
        allow(source, READER, ["read", "describe"], topic=bad)
        mirror.eventually(lambda parts: states(parts)[bad] == healthy)
        assert len(mirror.leases.jobs) == 1, "no new lease was needed"
        mirror.stop()
    assert read_all(target, f"A.{bad}") == read_all(source, bad)


@pytest.mark.witness("a wrong password is reported in one line without the password")
def test_wrong_password_is_one_line_that_does_not_show_it(
    source: LocalCluster,
    target: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_topic(source, fresh_topic)
    config = a_config(
        tmp_path / "mm2.properties", source, target, fresh_topic, "SASL_SSL", "PLAIN", "PEM"
    )
    config.write_text(config.read_text().replace(f"{READER}-secret", "not-the-password"))
    with caplog.at_level(logging.DEBUG), Mirror(config, once=True) as mirror:
        (flow,) = mirror.wait()  # ends immediately, because waiting cannot make the password valid
    assert (flow.state, flow.code) == ("FAILED", "AUTHENTICATION_FAILED")
    assert "cluster A" in flow.reason
    (error,) = mirror.supervisor.errors
    assert error.exit_code == 1
    said = " ".join([flow.reason, str(error), *(r.getMessage() for r in caplog.records)])
    assert "not-the-password" not in said
    assert f"{WRITER}-secret" not in said
