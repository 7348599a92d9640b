"""Kafka's error codes are converted to Twinlog's errors, with a class, a stable code, a fate and a
message.
"""

from __future__ import annotations

import pickle

import pytest

from twinlog.errors import (
    AuthenticationFailed,
    BrokerRefused,
    ClusterError,
    Fate,
    Unauthorized,
    Unsupported,
)
from twinlog.wire.error_codes import ERRORS, error_for, lookup


@pytest.mark.parametrize(
    ("number", "kind", "code", "fate"),
    [
        (3, BrokerRefused, "TOPIC_MISSING", Fate.RETRIABLE),
        (6, BrokerRefused, "NOT_LEADER_OR_FOLLOWER", Fate.RETRIABLE),
        (16, BrokerRefused, "NOT_COORDINATOR", Fate.RETRIABLE),
        (29, Unauthorized, "TOPIC_UNAUTHORIZED", Fate.FATAL),
        (31, Unauthorized, "CLUSTER_UNAUTHORIZED", Fate.FATAL),
        (35, Unsupported, "UNSUPPORTED", Fate.FATAL),
        (38, BrokerRefused, "REPLICATION_FACTOR", Fate.FATAL),
        (58, AuthenticationFailed, "AUTHENTICATION_FAILED", Fate.FATAL),
        (-1, BrokerRefused, "UNKNOWN_SERVER_ERROR", Fate.FATAL),
        (9999, BrokerRefused, "ERROR_9999", Fate.FATAL),
    ],
)
def test_class_code_and_fate(number: int, kind: type[ClusterError], code: str, fate: Fate) -> None:
    error = error_for(number, cluster="A", doing="asking")
    assert (type(error), error.code, error.fate) == (kind, code, fate)


def test_numbers_have_no_holes_and_names_are_unique() -> None:
    assert sorted(ERRORS) == [-1, *range(1, 134)]
    assert len({row.name for row in ERRORS.values()}) == len(ERRORS)


def test_stale_metadata_is_always_retriable() -> None:
    assert all(row.retriable for row in ERRORS.values() if row.stale)


def test_message_names_cluster_topic_and_missing_permission() -> None:
    error = error_for(
        29,
        cluster="us-west",
        doing="describing the configs of topic orders",
        acl="DESCRIBE_CONFIGS on topic orders",
    )
    assert str(error) == (
        "cluster us-west: describing the configs of topic orders failed with "
        "TOPIC_AUTHORIZATION_FAILED: grant DESCRIBE_CONFIGS on topic orders to Twinlog's user "
        "[TOPIC_UNAUTHORIZED]"
    )


def test_message_quotes_the_broker() -> None:
    error = error_for(40, cluster="A", doing="creating topic t", detail="Unknown config: foo.")
    assert str(error) == (
        "cluster A: creating topic t failed with INVALID_CONFIG (Unknown config: foo) "
        "[INVALID_CONFIG]"
    )


def test_errors_survive_pickling() -> None:
    error = error_for(87, cluster="A", doing="appending to t-0")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    assert isinstance(copy, BrokerRefused)
    assert (str(copy), copy.kafka_error, copy.fate) == (str(error), 87, Fate.FATAL)


def test_number_that_is_newer_than_the_table_is_fatal() -> None:
    assert not lookup(5000).retriable
