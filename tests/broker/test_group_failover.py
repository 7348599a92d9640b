"""Groups go over to the other cluster and back: what their application reads has no hole and no
repetition, wherever in a topic with gaps each of them stopped.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.groups import (
    Pair,
    commit,
    committed,
    goes_on,
    with_transactions,
)
from tests.support.mirror import Mirror
from tests.support.topics import create_topic, end_offsets
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

CLEAN_SOON = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "100",
}


def with_compaction(pair: Pair) -> None:
    """Records that were overwritten later, cleaned away before the copy."""
    create_topic(pair.a, pair.topic, configs=CLEAN_SOON)
    keys = [0, 1, 1, 2, 0, 3, 4, 4, 4, 5, 2, 6]
    for value, key in enumerate(keys):
        produce(pair.a, pair.topic, [Outgoing(key=b"%d" % key, value=b"%d" % value)])

    def is_compacted() -> bool:
        produce(pair.a, pair.topic, [Outgoing(key=uuid.uuid4().bytes, value=b"last")])
        group = f"look-{uuid.uuid4()}"
        commit(pair.a, group, pair.topic, 0)
        found = goes_on(pair.a, group, pair.topic)
        return [value for value in found if value != b"last"] == b"2 4 5 8 9 10 11".split()

    eventually(is_compacted, what="compaction")


@pytest.mark.parametrize("fill", [with_transactions, with_compaction])
def test_every_group_goes_on_at_exactly_the_next_record_there_and_back(
    fill: Callable[[Pair], None],
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster)
    fill(pair)
    end = end_offsets(pair.a, pair.topic)[0]
    groups = [pair.stop_at(offset) for offset in range(end + 1)]
    # what each would have read on A, seen by a group beside it
    expected = []
    for offset in range(end + 1):
        commit(pair.a, f"beside-{pair.group}", pair.topic, offset)
        expected.append(goes_on(pair.a, f"beside-{pair.group}", pair.topic))

    with Mirror(pair.config) as mirror:
        for group in groups:
            eventually(lambda: committed(pair.b, group, pair.remote) >= 0)  # noqa: B023
        read = [goes_on(pair.b, group, pair.remote, at_most=2) for group in groups]
        assert read == [values[:2] for values in expected]

        produce(pair.a, pair.topic, [Outgoing(key=b"sign", value=b"sign")])
        for group, values in zip(groups, expected, strict=True):
            left = [*values[2:], b"sign"]
            copy = f"copy-{group}"

            def is_back(group: str = group, copy: str = copy, left: list[bytes] = left) -> bool:
                commit(pair.a, copy, pair.topic, max(committed(pair.a, group, pair.topic), 0))
                return goes_on(pair.a, copy, pair.topic) == left

            eventually(is_back, what=f"{group} back on A")
            assert goes_on(pair.a, group, pair.topic) == left
        mirror.stop()
