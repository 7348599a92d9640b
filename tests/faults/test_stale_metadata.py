"""A broker with stale metadata omits existing topics and reports itself as alive. A run with --once
must not end as done because of it, and a topic must not be released.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.eventually import PATIENCE_S
from tests.support.rig import Rig
from tests.support.settings import HURRIED, settings_for
from tests.support.topics import create_topic, delete_topic
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.cluster.topics import topic_admin
from twinlog.errors import TwinlogError
from twinlog.sandbox import LocalCluster
from twinlog.survey.discovery import require_gone

pytestmark = [pytest.mark.faults, pytest.mark.broker]

BEHIND: Final = 3
KEYS: Final = {"replication.factor": "1", "twinlog.state.topic.replication.factor": "1"}


def of_broker(cluster: LocalCluster, number: int) -> ClusterClient:
    """Return a client that first knows only this broker. It learns the other brokers from the
    broker's metadata.
    """
    address = cluster.bootstrap.split(",")[number - 1]
    return ClusterClient(settings_for(address), patience=HURRIED)


def shows(cluster: LocalCluster, number: int, topic: str) -> bool:
    with of_broker(cluster, number) as client:
        return topic in client.metadata(None).topics


@pytest.fixture
def old_answer(source3: LocalCluster) -> Iterator[Callable[[str], ClusterMetadata]]:
    """Return a function that creates a topic and returns the metadata of a broker that was frozen
    during the creation, before the broker can catch up.
    """
    others = [1, 2]

    def ask(topic: str) -> ClusterMetadata:
        source3.freeze(BEHIND)
        with ClusterClient(settings_for(",".join(source3.bootstrap.split(",")[:2]))) as client:
            topic_admin.create_topic(client, topic, partitions=1, replication_factor=1)
            eventually(lambda: topic in client.metadata(None).topics, what="the topic")
        for number in others:
            source3.freeze(number)
        source3.thaw(BEHIND)
        with of_broker(source3, BEHIND) as client:
            seen = client.metadata(None)
        for number in others:
            source3.thaw(number)
        return seen

    yield ask
    for number in (*others, BEHIND):
        source3.thaw(number)
    eventually(lambda: len(_alive(source3)) == len(source3.broker_pids), what="all brokers")


def _alive(cluster: LocalCluster) -> set[int]:
    with ClusterClient(settings_for(cluster.bootstrap)) as client:
        return {*client.metadata([]).brokers}


def test_broker_that_was_frozen_is_not_taken_at_its_word(
    source3: LocalCluster, target3: LocalCluster, tmp_path: Path, old_answer: Any
) -> None:
    with Rig(source3, target3, tmp_path) as rig:
        seen = old_answer(rig.topic)
        assert rig.topic not in seen.topics, "the hazard: it does not show what is there"
        assert BEHIND in seen.brokers, "and counts itself among the living"
        with pytest.raises(TwinlogError) as caught:
            require_gone(rig.source_client, seen, [rig.topic])
        assert caught.value.code == "BROKERS_DIFFER"
        assert rig.topic in caught.value.message
        eventually(lambda: shows(source3, BEHIND, rig.topic), what="the broker catches up")
        now = rig.source_client.metadata(None)
        require_gone(rig.source_client, now, [rig.topic])
        require_gone(rig.source_client, now, [f"{rig.topic}-never"])  # a topic that no broker lists


class FirstLooksLack:
    """Lets the first `looks` queries for all topics of one cluster omit one topic."""

    def __init__(self, alias: str, topic: str, looks: int) -> None:
        self._alias, self._topic, self.left = alias, topic, looks
        self._plain = ClusterClient.metadata

    def __call__(
        self, client: ClusterClient, topics: Sequence[str] | None = None, **how: Any
    ) -> ClusterMetadata:
        found = self._plain(client, topics, **how)
        if topics is None and client.alias == self._alias and self.left > 0:
            self.left -= 1
            assert isinstance(found.topics, dict)
            found.topics.pop(self._topic, None)
        return found


@pytest.fixture
def rig(fault_source: LocalCluster, fault_target: LocalCluster, tmp_path: Path) -> Iterator[Rig]:
    with Rig(fault_source, fault_target, tmp_path) as made:
        create_topic(made.source, made.topic)
        produce(made.source, made.topic, [Outgoing(value=b"one", partition=0)])
        yield made


def lacks(monkeypatch: pytest.MonkeyPatch, rig: Rig, looks: int) -> FirstLooksLack:
    made = FirstLooksLack(rig.alias, rig.topic, looks)
    monkeypatch.setattr(
        ClusterClient,
        "metadata",
        lambda *given, **how: made(*given, **how),  # noqa: PLW0108 (binds)
    )
    return made


def test_once_waits_for_a_topic_that_one_broker_does_not_show(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = lacks(monkeypatch, rig, 3)
    rig.copy_once()
    assert not looks.left
    rig.same()


def test_once_does_not_forget_topics_copied_before_by_a_pattern(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = {f"{rig.flow}.topics": f"{rig.topic}.*"}
    rig.copy_once(pattern)
    produce(rig.source, rig.topic, [Outgoing(value=b"two", partition=0)])
    looks = lacks(monkeypatch, rig, 3)
    rig.copy_once(pattern)
    assert not looks.left
    rig.same()


@pytest.mark.witness("a topic that one broker does not list is kept")
def test_running_mirror_keeps_a_topic_that_one_look_does_not_show(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with rig.mirror(keys={"refresh.topics.interval.seconds": "1"}) as mirror:
        rig.copied(1)
        looks = lacks(monkeypatch, rig, 2)
        with caplog.at_level(logging.WARNING):
            eventually(lambda: not looks.left, what="looks that lack the topic")
            eventually(lambda: "BROKERS_DIFFER" in caplog.text)
        produce(rig.source, rig.topic, [Outgoing(value=b"two", partition=0)])
        rig.copied(2)
        states = {part.state for flow in mirror.snapshots for part in flow.partitions}
        assert "RELEASED" not in states
        mirror.stop()
    rig.same()


def test_once_that_names_a_topic_which_is_not_there_does_not_end_well(rig: Rig) -> None:
    delete_topic(rig.source, rig.topic)
    code, message = rig.fail_once()
    assert code == "TOPIC_MISSING"
    assert f"topic {rig.topic} does not exist" in message


def test_once_whose_pattern_matches_nothing_reports_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        rig.mirror(once=True, keys={f"{rig.flow}.topics": "none-of-them.*"}) as mirror,
    ):
        (flow,) = mirror.wait()
    assert flow.partitions == ()
    assert "[MATCHES_NOTHING]" in caplog.text
    assert rig.alias in caplog.text


def test_remote_topic_that_a_broker_does_not_show_is_no_silent_success(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ClusterClient.metadata
    monkeypatch.setattr("twinlog.survey.discovery.MISSING_GRACE_S", PATIENCE_S / 100)

    def hidden(
        client: ClusterClient, topics: Sequence[str] | None = None, **how: Any
    ) -> ClusterMetadata:
        wanted = [f"{rig.remote}-hidden"] if topics == [rig.remote] else topics
        return plain(client, wanted, **how)

    create_topic(rig.target, rig.remote)
    monkeypatch.setattr(ClusterClient, "metadata", hidden)
    assert rig.fail_once()[0] == "TOPIC_MISSING"
