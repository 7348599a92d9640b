"""Values of an enabled flow: their defaults, types, and errors."""

from __future__ import annotations

import pickle

import pytest

from tests.support.properties import BASE, Loader, flow_of, refusal
from twinlog.addresses import Address
from twinlog.config.flow.schema import PolicyKind
from twinlog.config.keys.key_table import DEFAULT_TOPICS_EXCLUDE

MIRROR = "org.apache.kafka.connect.mirror."


def test_the_defaults_are_those_of_mirrormaker_2(read: Loader) -> None:
    flow = flow_of(read())
    assert flow.topics.entries == (".*",)
    assert ", ".join(flow.topics_exclude.entries) == DEFAULT_TOPICS_EXCLUDE
    assert flow.config_sync.exclude.entries == (
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    )
    assert flow.config_sync.use_defaults_from == "target"
    assert flow.new_topics.replication_factor == 2
    assert flow.refresh.enabled
    assert flow.refresh.interval_seconds == 600
    assert flow.heartbeats_replication_enabled
    assert flow.policy.kind is PolicyKind.DEFAULT
    assert flow.policy.separator == "."
    # MirrorMaker 2's default is one task; here a missing value means as many lanes as fit
    assert flow.lanes.tasks_max is None


def test_the_defaults_of_our_own_keys(read: Loader) -> None:
    flow = flow_of(read())
    assert flow.lanes.lease_seconds == 300
    assert flow.lanes.memory_bytes == 64 << 20
    assert flow.state_topic_replication_factor == -1
    assert flow.producer_id_expiration_ms is None
    assert not flow.accept_source_loss


def test_an_empty_list_of_topics_matches_nothing(read: Loader) -> None:
    topics = flow_of(read("A->B.topics =")).topics
    assert not topics.matches("")
    assert not topics.matches("a")


def test_lists_are_trimmed_around_their_commas(read: Loader) -> None:
    assert flow_of(read("A->B.topics = a ,b,\\", "  c-1 ")).topics.entries == ("a", "b", "c-1")


def test_a_negative_interval_is_never(read: Loader) -> None:
    assert not flow_of(read("refresh.topics.interval.seconds = -1")).refresh.enabled


def test_numbers_are_trimmed_and_may_have_a_sign(read: Loader) -> None:
    assert flow_of(read("tasks.max = +4 ")).lanes.tasks_max == 4


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("h:1", [Address("h", 1)]),
        ("h:1, g:2 ,h:1", [Address("h", 1), Address("g", 2)]),
        ("[::1]:9092", [Address("::1", 9092)]),
        ("PLAINTEXT://h:9092", [Address("h", 9092)]),
        ("my_broker-1.x:65535", [Address("my_broker-1.x", 65535)]),
    ],
)
def test_bootstrap_servers(read: Loader, value: str, expected: list[Address]) -> None:
    config = read(base=["clusters=A,B", f"A.bootstrap.servers={value}", *BASE[2:]])
    assert list(config.cluster("A").servers) == expected


@pytest.mark.parametrize("value", ["", "h", "h:", ":1", "h:0", "h:65536", "h:x", "h:1 g:2", "h;1"])
def test_malformed_bootstrap_servers(read: Loader, value: str) -> None:
    base = ["clusters=A,B", f"A.bootstrap.servers={value}", *BASE[2:]]
    message = refusal(lambda: read(base=base))
    assert message.startswith("mm2.properties:2: A.bootstrap.servers: ")
    assert "host:port" in message


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("replication.factor = three", '"three" is not a whole number (int)'),
        ("replication.factor = 3 # x", "what looks like a comment is part of the value"),
        ("replication.factor = 2147483648", "is not a whole number (int)"),
        ("replication.factor = -2", "-2 is too small; write at least -1"),
        ("replication.factor = 0", "0 is not a number of replicas"),
        ("tasks.max = 0", "0 is too small; write at least 1"),
        ("tasks.max = 1.5", '"1.5" is not a whole number'),
        ("refresh.topics.interval.seconds = 0", "the interval must not be 0"),
        ("refresh.topics.enabled = yes", '"yes" is not a boolean; write true or false'),
        ("heartbeats.replication.enabled = 1", "not a boolean"),
        # Twinlog does not use these keys, but MirrorMaker 2 would not start with them
        ("emit.checkpoints.enabled = on", "not a boolean"),
        ("offset.lag.max = many", "not a whole number (long)"),
        ("checkpoints.topic.replication.factor = 40000", "not a whole number (short)"),
        ("offset-syncs.topic.location = middle", "write source or target"),
        ("A.consumer.isolation.level = READ_COMMITTED", "write read_committed or read_uncommitted"),
        ("A.consumer.auto.offset.reset = none", "write earliest or latest"),
        ("A.security.protocol = TLS", "write PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL"),
        ("security.protocol = SSL // x", "what looks like a comment is part of the value"),
        ("twinlog.source.start = now", '"now" is not a start: use earliest, latest, a time'),
        ("twinlog.source.loss = ignore", "write stop or accept"),
        ("twinlog.lease.seconds = 0", "too small"),
        ("twinlog.lane.memory.bytes = 100", "too small"),
        ("replication.policy.separator =", "an empty separator"),
        ("replication.policy.separator =", "write replication.policy.class = org.apache.kafka"),
        ("replication.policy.class = com.example.MyPolicy", "is not supported"),
        ("replication.policy.class = IdentityReplicationPolicy", "lacks its package"),
        ("topic.filter.class = com.example.MyFilter", "Twinlog cannot run the Java class"),
        (
            "config.property.filter.class = com.example.MyFilter",
            "Twinlog cannot run the Java class",
        ),
        ("transforms = route", "route has no type; add A->B.transforms.route.type = org.apache"),
        ("forwarding.admin.class = com.example.Admin", "Twinlog cannot run the Java class"),
        ("groups = (", "column 1: this ( is not closed"),
    ],
)
def test_a_wrong_value_names_file_line_and_key(read: Loader, line: str, what: str) -> None:
    message = refusal(lambda: read("# a comment", line))
    key = line.partition("=")[0].strip()
    assert message.startswith(f"mm2.properties:6: {key}: ")
    assert what in message


@pytest.mark.parametrize(
    ("value", "column"),
    [("a, b, c(d", 8), ("  *x", 1), ("ab, (?<=x+)y", 5), (r"ok, \\p{L}", 5), ("a{1,2}", 2)],
)
def test_a_bad_pattern_names_its_column(read: Loader, value: str, column: int) -> None:
    message = refusal(lambda: read(f"A->B.topics = {value}"))
    assert message.startswith("mm2.properties:5: A->B.topics: ")
    assert f"column {column}: " in message
    assert message.endswith("[REGEX_INVALID]")


@pytest.mark.parametrize(
    "name",
    [
        MIRROR + "IdentityReplicationPolicy",
        "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy",
        "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy",
    ],
)
def test_known_names_of_the_identity_policy(read: Loader, name: str) -> None:
    flow = flow_of(read(f"replication.policy.class = {name}"))
    assert flow.policy.kind is PolicyKind.IDENTITY


def test_named_default_classes_are_no_obstacle(read: Loader) -> None:
    read(
        f"topic.filter.class = {MIRROR}DefaultTopicFilter",
        f"config.property.filter.class = {MIRROR}DefaultConfigPropertyFilter",
        "transforms =",
        "forwarding.admin.class = org.apache.kafka.clients.admin.ForwardingAdmin",
    )


@pytest.mark.parametrize("value", ["ssl", "Sasl_Ssl", "SASL_PLAINTEXT "])
def test_the_security_protocol_may_have_any_case(read: Loader, value: str) -> None:
    read(f"A.security.protocol = {value}")


def test_a_configuration_survives_pickling(read: Loader) -> None:
    config = read("A->B.topics = a.*")
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301
