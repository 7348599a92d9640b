"""A target topic is deleted and copied anew: its groups stand where they belong in the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.support.client import Outgoing, eventually, produce
from tests.support.groups import Pair, committed, goes_on
from tests.support.mirror import Mirror
from tests.support.topics import create_topic, delete_records, delete_topic, end_offsets
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


@pytest.mark.parametrize("by_others", [True, False], ids=["by others", "by us"])
def test_group_skips_nothing_in_a_topic_that_was_made_anew(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path, by_others: bool
) -> None:
    """Kafka drops the offsets of a deleted topic's groups. What was translated for the old topic is
    a later record of the new one, which begins where the source does by now.
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
                return False  # it is only made

        eventually(is_copied)
        eventually(stands_at(20))
        mirror.stop()
    assert max(seen) == 20, "never where it stood in the old topic"
    assert goes_on(pair.b, group, pair.remote) == [b"%d" % n for n in range(100, 210)]
