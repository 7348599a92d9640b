"""Topic names by MirrorMaker 2's replication policies."""

from __future__ import annotations

import pytest

from tests.support.topics import offset_map_topic
from twinlog.mirror.names.naming import (
    PROBE_TOPIC,
    STATE_TOPIC,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    is_own_topic,
)

DEFAULT = DefaultReplicationPolicy()
UNDERSCORE = DefaultReplicationPolicy(separator="_", internal_separator="_")
KEPT_DOT = DefaultReplicationPolicy(separator="_", internal_separator=".")
IDENTITY = IdentityReplicationPolicy(source_alias="us")


@pytest.mark.parametrize(
    ("policy", "topic", "remote"),
    [
        (DEFAULT, "orders", "us.orders"),
        (DEFAULT, "eu.orders", "us.eu.orders"),
        (DEFAULT, "heartbeats", "us.heartbeats"),
        (UNDERSCORE, "orders", "us_orders"),
        (IDENTITY, "orders", "orders"),
        (IDENTITY, "heartbeats", "us.heartbeats"),
        (IDENTITY, "my-heartbeats", "us.my-heartbeats"),
    ],
)
def test_remote_topic(policy: DefaultReplicationPolicy, topic: str, remote: str) -> None:
    assert policy.format_remote_topic("us", topic) == remote


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("orders", None, None, "orders"),
        ("us.orders", "us", "orders", "orders"),
        ("eu.us.orders", "eu", "us.orders", "orders"),
        ("us.heartbeats", "us", "heartbeats", "heartbeats"),
        (".orders", "", "orders", "orders"),
        # Java's split drops empty parts at the end
        ("us.", None, None, "us."),
        ("us...", None, None, "us..."),
        ("us..orders", "us", ".orders", "orders"),
        (".", None, None, "."),
        ("", None, None, ""),
    ],
)
def test_where_a_topic_came_from(
    topic: str, source: str | None, upstream: str | None, original: str
) -> None:
    assert DEFAULT.topic_source(topic) == source
    assert DEFAULT.upstream_topic(topic) == upstream
    assert DEFAULT.original_topic(topic) == original


def test_a_separator_of_several_characters() -> None:
    policy = DefaultReplicationPolicy(separator="--", internal_separator="--")
    assert policy.topic_source("us--orders") == "us"
    assert policy.upstream_topic("us--orders") == "orders"
    assert policy.topic_source("us-orders") is None
    assert policy.topic_source("us--") is None


@pytest.mark.parametrize(
    ("topic", "source", "upstream"),
    [
        ("orders", "us", "orders"),
        ("eu.orders", "us", "eu.orders"),
        ("heartbeats", None, None),
        ("eu.heartbeats", "eu", "heartbeats"),
    ],
)
def test_the_identity_policy_knows_one_source(
    topic: str, source: str | None, upstream: str | None
) -> None:
    assert IDENTITY.topic_source(topic) == source
    assert IDENTITY.upstream_topic(topic) == upstream


def test_the_identity_policy_finds_the_original_of_heartbeats_only() -> None:
    assert IDENTITY.original_topic("eu.orders") == "eu.orders"
    assert IDENTITY.original_topic("eu.us.heartbeats") == "heartbeats"


@pytest.mark.parametrize(
    ("policy", "offset_syncs", "checkpoints"),
    [
        (DEFAULT, "mm2-offset-syncs.us.internal", "us.checkpoints.internal"),
        (UNDERSCORE, "mm2-offset-syncs_us_internal", "us_checkpoints_internal"),
        (KEPT_DOT, "mm2-offset-syncs.us.internal", "us.checkpoints.internal"),
    ],
)
def test_internal_topics_have_the_internal_separator(
    policy: DefaultReplicationPolicy, offset_syncs: str, checkpoints: str
) -> None:
    assert policy.offset_syncs_topic("us") == offset_syncs
    assert policy.checkpoints_topic("us") == checkpoints
    assert policy.heartbeats_topic() == "heartbeats"
    assert policy.is_internal_topic(offset_syncs)
    assert policy.is_checkpoints_topic(checkpoints)
    assert policy.is_mm2_internal_topic(checkpoints)


@pytest.mark.parametrize(
    ("topic", "internal"),
    [
        ("mm2-offsets.us.internal", True),
        ("mm2-configs.us.internal", True),
        ("mm2.internal", True),
        ("us.checkpoints.internal", True),
        ("__consumer_offsets", True),
        (".hidden", True),
        ("mm2-offsets", False),
        # since KIP-1074 this is a user's topic, and without an alias it is no checkpoints topic
        ("orders.internal", False),
        ("orders-internal", False),
        ("checkpoints.internal", False),
        ("_schemas", False),
        ("heartbeats", False),
    ],
)
def test_internal_topics(topic: str, internal: bool) -> None:
    assert DEFAULT.is_internal_topic(topic) is internal
    assert IDENTITY.is_internal_topic(topic) is internal


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("heartbeats", True),
        ("us.heartbeats", True),
        ("eu.us.heartbeats", True),
        ("my-heartbeats", False),
        ("heartbeats.us", False),
    ],
)
def test_heartbeats_topics(topic: str, expected: bool) -> None:
    assert DEFAULT.is_heartbeats_topic(topic) is expected
    assert IDENTITY.is_heartbeats_topic(topic) is expected


def test_heartbeats_are_never_named_by_the_separator() -> None:
    assert UNDERSCORE.is_heartbeats_topic("us_heartbeats")
    assert not UNDERSCORE.is_heartbeats_topic("us.heartbeats")


def test_internal_topics_of_twinlog_are_internal_to_mirrormaker_2() -> None:
    own = [STATE_TOPIC, PROBE_TOPIC, offset_map_topic("us")]
    assert own == [
        "mm2-twinlog-state.internal",
        "mm2-twinlog-probe.internal",
        "mm2-twinlog-offset-map.us.internal",
    ]
    assert all(DEFAULT.is_internal_topic(topic) and is_own_topic(topic) for topic in own)
