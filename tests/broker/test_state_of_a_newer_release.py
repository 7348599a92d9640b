"""The target has state rows of a newer release. A mirror refuses it with one line, and copies
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce
from tests.support.mirror import Mirror
from tests.support.topics import create_topic, delete_topic, offset_map_topic, topic_names
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("newer-release")]

OURS = (STATE_TOPIC, offset_map_topic("A"))
NEWER = b'{"v":4}'


@pytest.fixture(scope="module")
def target() -> Iterator[LocalCluster]:
    """A separate cluster, because its state topic is unusable for other tests."""
    with LocalCluster("newer-release", jvm_flags=QUICK_JVM) as cluster:
        yield cluster


@pytest.mark.witness("a state topic of a newer release is refused")
@pytest.mark.parametrize("which", OURS)
def test_state_of_a_newer_release(
    source_cluster: LocalCluster,
    target: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    which: str,
) -> None:
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"1")])
    for name in topic_names(target).intersection(OURS):
        delete_topic(target, name)
    create_topic(target, which, configs={"cleanup.policy": "compact"})
    produce(target, which, [Outgoing(key=b'["some key"]', value=NEWER)])
    config = tmp_path / "mm2.properties"
    lines = ["clusters = A, B", "A->B.enabled = true", f"topics = {fresh_topic}"]
    lines += [f"A.bootstrap.servers = {source_cluster.bootstrap}", "replication.factor = 1"]
    lines += [f"B.bootstrap.servers = {target.bootstrap}"]
    config.write_text("\n".join(lines) + "\n")

    with caplog.at_level(logging.WARNING), Mirror(config, once=True) as mirror:
        (flow,) = mirror.wait()
    assert (flow.state, flow.code) == ("FAILED", "STATE_TOO_NEW")
    assert "version 4" in flow.reason
    assert "upgrade Twinlog" in flow.reason
    assert "\n" not in flow.reason
    assert f"A.{fresh_topic}" not in topic_names(target)
    if which == STATE_TOPIC:
        (problem,) = check(load(config, environment={})).problems
        assert problem.code == "STATE_TOO_NEW"
