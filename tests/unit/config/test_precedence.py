"""The prefixes of keys and their precedence, as in MirrorMaker 2's dedicated mode."""

from __future__ import annotations

import pytest

from tests.support.properties import BASE, Loader, flow_of
from twinlog.config.flow.schema import PolicyKind
from twinlog.config.keys.client_keys import Role
from twinlog.model import Isolation

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], 2),
        (["replication.factor = 3"], 3),
        (["replication.factor = 3", "A->B.replication.factor = 1"], 1),
        (["A->B.replication.factor = 1", "replication.factor = 3"], 1),
        (["B->A.replication.factor = 3"], 2),
        # settings of clusters do not apply to flows
        (["A.replication.factor = 3", "B.replication.factor = 4"], 2),
    ],
)
def test_a_flows_own_line_wins_over_the_general_one(
    read: Loader, lines: list[str], expected: int
) -> None:
    assert flow_of(read(*lines)).new_topics.replication_factor == expected


def test_connection_settings_reach_every_client_of_a_cluster(read: Loader) -> None:
    flow = flow_of(
        read("A.security.protocol = SSL", "A.ssl.truststore.location = /t", "A.retries = 3")
    )
    expected = {
        "bootstrap.servers": "a:9092",
        "security.protocol": "SSL",
        "ssl.truststore.location": "/t",
    }
    assert dict(flow.clients.source_consumer) == expected
    assert dict(flow.clients.source_admin) == expected
    assert dict(flow.clients.target_producer) == {"bootstrap.servers": "b:9092"}


def test_general_connection_settings_fill_the_gaps_of_a_cluster(read: Loader) -> None:
    flow = flow_of(
        read("security.protocol = SASL_SSL", "sasl.mechanism = PLAIN", "B.security.protocol = SSL")
    )
    assert flow.clients.source_admin["security.protocol"] == "SASL_SSL"
    assert flow.clients.target_admin["security.protocol"] == "SSL"
    assert flow.clients.target_admin["sasl.mechanism"] == "PLAIN"
    assert flow.clients.target_producer["security.protocol"] == "SSL"


def test_a_roles_own_setting_wins_over_the_clusters(read: Loader) -> None:
    config = read("A.ssl.truststore.location = /all", "A.consumer.ssl.truststore.location = /own")
    flow = flow_of(config)
    assert flow.clients.source_consumer["ssl.truststore.location"] == "/own"
    assert flow.clients.source_admin["ssl.truststore.location"] == "/all"
    cluster = config.cluster("A")
    assert cluster.client_properties(Role.CONSUMER)["ssl.truststore.location"] == "/own"
    assert cluster.client_properties(Role.PRODUCER)["ssl.truststore.location"] == "/all"


def test_the_clusters_consumer_wins_over_the_flows(read: Loader) -> None:
    lines = ["A->B.consumer.fetch.max.bytes = 1"]
    assert flow_of(read(*lines)).clients.source_consumer["fetch.max.bytes"] == "1"
    lines += ["A.consumer.fetch.max.bytes = 2"]
    assert flow_of(read(*lines)).clients.source_consumer["fetch.max.bytes"] == "2"
    lines += ["A->B.source.consumer.fetch.max.bytes = 3"]
    assert flow_of(read(*lines)).clients.source_consumer["fetch.max.bytes"] == "3"


def test_the_flows_producer_setting_does_not_reach_the_copied_records(read: Loader) -> None:
    lines = ["A->B.producer.linger.ms = 1", "A.producer.linger.ms = 2"]
    assert "linger.ms" not in flow_of(read(*lines)).clients.target_producer
    lines += ["B.producer.linger.ms = 3"]
    assert flow_of(read(*lines)).clients.target_producer["linger.ms"] == "3"
    lines += ["A->B.producer.override.linger.ms = 4"]
    assert flow_of(read(*lines)).clients.target_producer["linger.ms"] == "4"


def test_a_flow_may_override_the_address_of_its_clusters(read: Loader) -> None:
    # has no effect, because each role already has the cluster's address, and the role's address
    # takes precedence
    flow = flow_of(read("A->B.source.cluster.bootstrap.servers = near:1"))
    assert flow.clients.source_admin["bootstrap.servers"] == "a:9092"
    flow = flow_of(read("A->B.source.admin.bootstrap.servers = near:1"))
    assert flow.clients.source_admin["bootstrap.servers"] == "near:1"


def test_settings_of_a_cluster_that_are_no_connection_settings_reach_no_client(
    read: Loader,
) -> None:
    flow = flow_of(read("A.metadata.max.age.ms = 1", "A.admin.metadata.max.age.ms = 2"))
    assert "metadata.max.age.ms" not in flow.clients.source_consumer
    assert flow.clients.source_admin["metadata.max.age.ms"] == "2"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "earliest"),
        (["A.consumer.auto.offset.reset = latest"], "latest"),
        (["B.consumer.auto.offset.reset = latest"], "earliest"),
    ],
)
def test_the_source_consumers_reset_decides(read: Loader, lines: list[str], expected: str) -> None:
    flow = flow_of(read(*lines))
    assert str(flow.start) == expected


def test_our_own_start_wins_over_the_reset(read: Loader) -> None:
    flow = flow_of(read("A.consumer.auto.offset.reset = latest", "twinlog.source.start = earliest"))
    assert str(flow.start) == "earliest"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], Isolation.READ_COMMITTED),
        (["A.consumer.isolation.level = read_uncommitted"], Isolation.READ_UNCOMMITTED),
        (["A->B.consumer.isolation.level = read_uncommitted"], Isolation.READ_UNCOMMITTED),
    ],
)
def test_the_source_consumers_isolation_decides(
    read: Loader, lines: list[str], expected: Isolation
) -> None:
    assert flow_of(read(*lines)).isolation_level is expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], None),
        (["twinlog.target.producer.id.expiration.ms = 1"], 1),
        (
            [
                "twinlog.target.producer.id.expiration.ms = 1",
                "B.twinlog.target.producer.id.expiration.ms = 2",
            ],
            2,
        ),
        (
            [
                "A->B.twinlog.target.producer.id.expiration.ms = 3",
                "B.twinlog.target.producer.id.expiration.ms = 2",
            ],
            3,
        ),
        (["A.twinlog.target.producer.id.expiration.ms = 4"], None),
    ],
)
def test_our_target_keys_are_read_of_flow_target_and_everything(
    read: Loader, lines: list[str], expected: int | None
) -> None:
    assert flow_of(read(*lines)).producer_id_expiration_ms == expected


def test_the_policy_of_a_flow(read: Loader) -> None:
    config = read(
        "replication.policy.separator = _",
        "B->A.enabled = true",
        f"B->A.replication.policy.class = {IDENTITY}",
    )
    there, back = flow_of(config).policy, flow_of(config, "B", "A").policy
    assert (there.kind, there.separator, there.internal_separator) == (PolicyKind.DEFAULT, "_", "_")
    assert (back.kind, back.separator) == (PolicyKind.IDENTITY, "_")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["replication.policy.separator = _"], "_"),
        (
            [
                "replication.policy.separator = _",
                "replication.policy.internal.topic.separator.enabled = false",
            ],
            ".",
        ),
        (["replication.policy.internal.topic.separator.enabled = true"], "."),
    ],
)
def test_internal_topics_keep_the_dot_on_request(
    read: Loader, lines: list[str], expected: str
) -> None:
    assert flow_of(read(*lines)).policy.internal_separator == expected


def test_old_names_count_where_the_new_one_is_absent(read: Loader) -> None:
    flow = flow_of(read("topics.blacklist = x", "A->B.topics.whitelist = a, b"))
    assert flow.topics_exclude.entries == ("x",)
    assert flow.topics.entries == ("a", "b")
    flow = flow_of(read("topics.exclude = y", "A->B.topics.blacklist = x"))
    assert flow.topics_exclude.entries == ("y",)


def test_aliases_may_contain_dots_and_each_other(read: Loader) -> None:
    base = [
        "clusters = eu, eu.west",
        "eu.bootstrap.servers = a:1",
        "eu.west.bootstrap.servers = b:2",
        "eu->eu.west.enabled = true",
        "eu->eu.west.topics = t",
    ]
    flow = flow_of(read(base=base), "eu", "eu.west")
    assert flow.topics.entries == ("t",)
    assert flow.clients.source_admin["bootstrap.servers"] == "a:1"
    assert flow.clients.target_admin["bootstrap.servers"] == "b:2"


def test_the_alias_in_topic_names_may_be_another(read: Loader) -> None:
    flow = flow_of(read("A->B.source.cluster.alias = primary"))
    assert (str(flow.flow), flow.source_alias, flow.target_alias) == ("A->B", "primary", "B")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ["A->B"]),
        (["B->A.enabled = TRUE"], ["A->B", "B->A"]),
        # parseBoolean does not accept the trailing blank, but the herder for heartbeats runs anyway
        (["B->A.enabled = true "], ["A->B", "B->A"]),
        (["B->A.enabled = true ", "emit.heartbeats.enabled = false"], ["A->B"]),
        (["B->A.enabled = true ", "B->A.emit.heartbeats.enabled = false"], ["A->B"]),
        (["enabled = true"], ["A->B", "B->A"]),
        (["enabled = true", "emit.heartbeats.enabled = false"], ["A->B"]),
        (["enabled = true", "B->A.enabled = false"], ["A->B"]),
        (["B->A.enabled = true  # x"], ["A->B"]),
        (["B->A.enabled = yes"], ["A->B"]),
    ],
)
def test_flows_that_are_on(read: Loader, lines: list[str], expected: list[str]) -> None:
    assert [str(flow.flow) for flow in read(*lines).flows] == expected


def test_three_clusters_make_the_flows_they_name(read: Loader) -> None:
    config = read(
        "A->C.enabled = true",
        "C->A.enabled = true",
        "C.bootstrap.servers = c:1",
        base=["clusters = A, B, C", *BASE[1:]],
    )
    assert [str(flow.flow) for flow in config.flows] == ["A->B", "A->C", "C->A"]


@pytest.mark.parametrize("clusters", [["B"], ["B,A"], ["B", "A"], ["A, B"]])
def test_nearby_clusters_keep_the_flows_into_them(read: Loader, clusters: list[str]) -> None:
    config = read("B->A.enabled = true", clusters=clusters)
    into = {alias for given in clusters for alias in given.replace(" ", "").split(",")}
    assert {flow.flow.target for flow in config.flows} == into
