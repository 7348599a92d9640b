"""Groups move to the other cluster and back. Wherever a group stopped in a topic with gaps, its
application misses no record and reads none twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.groups import (
    Pair,
    commit,
    committed,
    numbered,
    resume,
    with_compaction,
    with_transactions,
)
from tests.support.mirror import Mirror
from tests.support.topics import create_topic, end_offsets
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


@pytest.mark.witness(
    "groups resume at exactly the next record, on the target and after a failback",
    case="with_transactions",
)
@pytest.mark.parametrize("fill", [with_transactions, with_compaction])
def test_every_group_resumes_at_exactly_the_next_record_on_both_moves(
    fill: Callable[[Pair], None],
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster)
    fill(pair)
    end = end_offsets(pair.a, pair.topic)[0]
    groups = [pair.stop_at(offset) for offset in range(end + 1)]
    expected = pair.left_to_read(end)

    with Mirror(pair.config) as mirror:
        for group in groups:
            eventually(lambda: committed(pair.b, group, pair.remote) >= 0)  # noqa: B023
        read = [resume(pair.b, group, pair.remote, at_most=2) for group in groups]
        assert read == [values[:2] for values in expected]

        produce(pair.a, pair.topic, [Outgoing(key=b"sign", value=b"sign")])
        for group, values in zip(groups, expected, strict=True):
            left = [*values[2:], b"sign"]
            copy = f"copy-{group}"

            def is_back(group: str = group, copy: str = copy, left: list[bytes] = left) -> bool:
                commit(pair.a, copy, pair.topic, max(committed(pair.a, group, pair.topic), 0))
                return resume(pair.a, copy, pair.topic) == left

            eventually(is_back, what=f"{group} back on A")
            assert resume(pair.a, group, pair.topic) == left
        mirror.stop()


@pytest.mark.witness("without checkpoints a restart sets no group on the way back")
def test_group_that_was_moved_back_stays_there_over_a_restart_without_checkpoints(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster)
    with pair.config.open("a") as file:
        file.write("emit.checkpoints.enabled = false\n")
    create_topic(pair.a, pair.topic)
    produce(pair.a, pair.topic, numbered(0, 1000))
    group = pair.stop_at(7)
    with Mirror(pair.config) as mirror:
        eventually(lambda: committed(pair.b, group, pair.remote) == 7)
        mirror.stop()
    commit(pair.a, group, pair.topic, 2)
    beside, offsets = f"{pair.group}-beside", iter(range(1, 1000))

    def is_set_on_a() -> bool:
        """Return True if the sync has set the group `beside`. Its offset changes after the first
        round of the sync, so a later round has run.
        """
        commit(pair.b, beside, pair.remote, next(offsets))
        return committed(pair.a, beside, pair.topic) > 0

    with Mirror(pair.config) as mirror:
        eventually(is_set_on_a)
        assert committed(pair.a, group, pair.topic) == 2
        mirror.stop()
