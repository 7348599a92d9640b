"""A target topic is deleted and copied again. Groups are set to their positions in the new
topic.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.support.client import Outgoing, eventually, produce
from tests.support.groups import Pair, commit, committed, resume
from tests.support.mirror import Mirror
from tests.support.topics import create_topic, delete_records, delete_topic, end_offsets
from twinlog.cli.main import run
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


@pytest.mark.parametrize("by_others", [True, False], ids=["by others", "by us"])
def test_group_skips_nothing_in_a_topic_that_was_recreated(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path, by_others: bool
) -> None:
    """Kafka deletes a topic's group offsets with the topic. The new target topic begins with the
    first record that the source still has. A group must be set to its position in the new topic. If
    it were set to its old offset, it would skip records.
    """
    pair = Pair(tmp_path, source_cluster, target_cluster, both_ways=False)
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, [Outgoing(value=b"%d" % n) for n in range(100)])
    group = pair.stop_at(100)
    seen: set[int] = set()

    def stands_at(offset: int) -> Callable[[], bool]:
        def look() -> bool:
            seen.add(committed(pair.b, group, pair.remote))
            return offset in seen

        return look

    with Mirror(pair.config) as mirror:
        eventually(stands_at(100))
        delete_records(pair.a, pair.topic, before=80)
        delete_topic(pair.b, pair.remote)
        seen.clear()
        if by_others:
            create_topic(pair.b, pair.remote)
        produce(pair.a, pair.topic, [Outgoing(value=b"%d" % n) for n in range(100, 210)])

        def is_copied() -> bool:
            try:
                return end_offsets(pair.b, pair.remote)[0] == 130
            except KafkaException:
                return False  # the client does not know the new topic yet, so retry

        eventually(is_copied)
        eventually(stands_at(20))
        mirror.stop()
    assert max(seen) == 20, "never where it stood in the old topic"
    assert resume(pair.b, group, pair.remote) == [b"%d" % n for n in range(100, 210)]


class Beside:
    """A further topic and group of the flow. The group's offset shows that a round of the sync has
    completed.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair, self._at = pair, 0
        self._topic, self._group = f"{pair.topic}-beside", f"{pair.group}-beside"
        create_topic(pair.a, self._topic)
        produce(pair.a, self._topic, [Outgoing(value=b"%d" % n) for n in range(10)])
        text = pair.config.read_text()
        pair.config.write_text(text.replace(f"topics = {pair.topic}", f"topics = {pair.topic}.*"))

    def rounds(self) -> None:
        """Wait for two rounds of the sync, because the first one may have begun before this
        call.
        """
        pair = self._pair
        remote = f"{pair.alias_a}.{self._topic}"
        for _ in range(2):
            self._at += 1
            commit(pair.a, self._group, self._topic, self._at)
            eventually(lambda: committed(pair.b, self._group, remote) == self._at)


@pytest.mark.witness(
    "after a source topic is created again, group offsets of the old topic are not translated"
)
def test_commit_in_a_recreated_source_topic_moves_nothing_on_the_former_copy(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    """The source topic is re-created while it is paused, so no lane detects this. A commit in the
    new topic must not move the group on the former copy, which may be the only copy of the deleted
    records.
    """
    pair = Pair(tmp_path, source_cluster, target_cluster, both_ways=False)
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, [Outgoing(value=b"%d" % n) for n in range(10)])
    group, beside = pair.stop_at(2), Beside(pair)
    with Mirror(pair.config) as mirror:
        eventually(lambda: committed(pair.b, group, pair.remote) == 2)
        run(["topic", "pause", str(pair.config), "--topics", pair.topic])
        mirror.eventually(lambda parts: "PAUSED" in {part.state for part in parts})
        delete_topic(pair.a, pair.topic)
        create_topic(pair.a, pair.topic)
        produce(pair.a, pair.topic, [Outgoing(value=b"new")] * 10)
        commit(pair.a, group, pair.topic, 8)
        beside.rounds()
        assert committed(pair.b, group, pair.remote) == 2
        mirror.stop()


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(
            "release",
            marks=pytest.mark.witness(
                "the mirror no longer sets group offsets in a released topic"
            ),
        ),
        "promote",
    ],
)
def test_group_of_a_topic_that_was_released_may_be_rewound(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path, verb: str
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster, both_ways=False)
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, [Outgoing(value=b"%d" % n) for n in range(10)])
    group, beside = pair.stop_at(7), Beside(pair)
    with Mirror(pair.config) as mirror:
        eventually(lambda: committed(pair.b, group, pair.remote) == 7)
        run(["topic", verb, str(pair.config), "--topics", pair.topic])
        state = {"release": "RELEASED", "promote": "PROMOTED"}[verb]
        mirror.eventually(lambda parts: state in {part.state for part in parts})
        beside.rounds()
        commit(pair.b, group, pair.remote, 0)
        beside.rounds()
        assert committed(pair.b, group, pair.remote) == 0
        mirror.stop()
