"""An identity flow has no right to read its source's state topic. It copies as before, and reports
in one line what it cannot check.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.circle_of_flows import IDENTITY
from tests.support.client import Outgoing, produce, read_all
from tests.support.mirror import Mirror
from tests.support.rights import Grant, SecuredPair, secured_pair
from tests.support.topics import create_topic
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.mirror.names.naming import STATE_TOPIC

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("loops")]

ALL = (
    Grant(operation="ALL", kind="topic", name="*"),
    Grant(operation="ALL", kind="group", name="*"),
    Grant(operation="DESCRIBE_CONFIGS", kind="cluster"),
)


@pytest.fixture(scope="module")
def pair() -> Iterator[SecuredPair]:
    with secured_pair("loops") as clusters:
        yield clusters


@pytest.mark.parametrize("sees", [False, True])
def test_a_source_whose_state_may_not_be_read(
    pair: SecuredPair,
    fresh_topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    sees: bool,
) -> None:
    create_topic(pair.source, fresh_topic)
    produce(pair.source, fresh_topic, [Outgoing(value=b"1")])
    grants = [
        Grant(operation="READ", kind="topic", name=fresh_topic),
        Grant(operation="DESCRIBE_CONFIGS", kind="topic", name=fresh_topic),
    ]
    if sees:
        grants.append(Grant(operation="READ", kind="topic", name=STATE_TOPIC))
    users = pair.user(pair.source, grants), pair.user(pair.target, ALL)
    off = ("emit.checkpoints.enabled", "emit.heartbeats.enabled", "emit.offset-syncs.enabled")
    lines = [
        f"topics = {fresh_topic}",
        f"replication.policy.class = {IDENTITY}",
        "sync.topic.acls.enabled = false",
        *(f"{key} = false" for key in off),
    ]
    aliases = (f"a{sees:d}", f"b{sees:d}")
    config = pair.config(tmp_path / "mm2.properties", users, lines, aliases=aliases)
    (report,) = check(load(config, environment={})).flows
    with Mirror(config, once=True) as mirror:
        (flow,) = mirror.wait()
    assert report.problems == []
    assert {(p.state, p.code) for p in flow.partitions} == {("DONE", "")}
    assert len(read_all(pair.target, fresh_topic)) == 1
    warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    for said in (report.notes, warned):
        about = [line for line in said if f"READ on topic {STATE_TOPIC}" in line]
        assert len(about) == (0 if sees else 1), said
        assert all("no flow copies in the other direction" in line for line in about)
