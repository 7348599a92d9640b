"""The digest by which two processes compare their configurations. It covers every effective value,
and reveals no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from twinlog.cluster.groups.membership import (
    config_of,
    describe_member,
    process_metadata,
    with_config,
)
from twinlog.config.effective import differing_keys, digests
from twinlog.config.load import load

BASE = {
    "clusters": "A, B",
    "A.bootstrap.servers": "a:1",
    "B.bootstrap.servers": "b:1",
    "A->B.enabled": "true",
    "A->B.topics": "orders, pay.*",
}
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="{0}" password="{0}-word";'
)

Digested = Callable[[Mapping[str, str]], dict[str, str]]


@pytest.fixture
def of(tmp_path: Path) -> Digested:
    def digested(more: Mapping[str, str]) -> dict[str, str]:
        path = tmp_path / "mm2.properties"
        path.write_text("".join(f"{key} = {value}\n" for key, value in {**BASE, **more}.items()))
        return digests(load(path, environment={}).flows[0])

    return digested


def test_only_values_other_than_the_default_are_in_the_digest(of: Digested) -> None:
    assert set(of({})) == {"enabled", "topics", "heartbeats B->A"}


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (("A->B.topics", "orders"), "topics"),
        (("tasks.max", "7"), "tasks.max"),
        (("A->B.replication.factor", "3"), "replication.factor"),
        (("A->B.twinlog.lease.seconds", "77"), "twinlog.lease.seconds"),
        (("A.consumer.fetch.max.bytes", "100"), "A.consumer.fetch.max.bytes"),
        (
            ("B.twinlog.state.topic.replication.factor", "2"),
            "twinlog.state.topic.replication.factor",
        ),
    ],
)
def test_a_changed_value_is_named_by_its_key(of: Digested, line: tuple[str, str], key: str) -> None:
    assert key in differing_keys(of({}), of(dict([line])))


@pytest.mark.parametrize(
    "more",
    [
        {"A->B.topics": "orders,pay.*"},
        {"topics": "something else"},
        {"emit.heartbeats.enabled": "TRUE"},
        {"refresh.topics.interval.seconds": "600"},
        {"A.bootstrap.servers": "a:1,a2:1"},
        {"A.security.protocol": "SASL_SSL", "A.ssl.truststore.location": "/elsewhere"},
        {"A.sasl.jaas.config": LOGIN.format("bob")},
    ],
)
def test_equivalent_and_process_local_values_do_not_differ(
    of: Digested, more: Mapping[str, str]
) -> None:
    assert differing_keys(of({}), of(more)) == []


def test_no_secret_is_reported_in_any_form(of: Digested) -> None:
    both = [
        process_metadata(of({"A.sasl.jaas.config": LOGIN.format(user), "B.ssl.key.password": user}))
        for user in ("alice", "bob")
    ]
    assert config_of(both[0]) == config_of(both[1])
    for metadata in both:
        assert b"password" not in metadata
        assert b"jaas" not in metadata


def test_the_digest_in_a_members_metadata_is_read_back() -> None:
    metadata = process_metadata({"topics": "0011"})
    assert config_of(metadata) == {"topics": "0011"}
    again = with_config(metadata, {"topics": "2233"})
    assert config_of(again) == {"topics": "2233"}
    assert describe_member(again) == describe_member(metadata)


@pytest.mark.parametrize(
    "metadata", [b"", b"somebody", b"[]", b'{"config":1}', process_metadata()], ids=range(5)
)
def test_a_member_that_tells_nothing_of_it(metadata: bytes) -> None:
    """A member of the group is of an older release or is no Twinlog process, so its metadata has no
    digest to compare. The member's digest is None.
    """
    assert config_of(metadata) is None
