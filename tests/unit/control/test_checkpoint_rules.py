"""Which checkpoints are written and which offsets are set, as tables of cases."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from twinlog.control.groups.checkpoint_rows import CheckpointRow
from twinlog.control.groups.group_sync import GroupSync, Skipped, TargetGroup, group_sync
from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import Checkpoint

TP = TopicPartition("A.orders", 0)
OTHER = TopicPartition("A.orders", 1)


def checkpoint(upstream: int, downstream: int, tp: TopicPartition = TP) -> Checkpoint:
    return Checkpoint(
        group="shop", topic_partition=tp, upstream_offset=upstream, downstream_offset=downstream
    )


@pytest.mark.parametrize(
    ("last", "now", "is_exact", "expected"),
    [
        (None, (5, 5), True, True),
        ((5, 5), (5, 5), True, False),
        ((5, 5), (7, 7), True, True),
        ((5, 5), (7, 5), True, True),  # the group is now in a gap
        ((5, 5), (5, 7), True, True),  # the last one is from MirrorMaker 2
        ((5, 5), (3, 3), True, True),  # the group went back
        ((5, 5), (3, 3), False, True),
        ((5, 5), (7, 2), True, True),  # the target topic was re-created
        ((5, 5), (7, 2), False, False),  # the copy only appears to be shorter
    ],
)
def test_checkpoint_is_written_when_it_says_something_new(
    last: tuple[int, int] | None, now: tuple[int, int], is_exact: bool, expected: bool
) -> None:
    before = None if last is None else CheckpointRow(checkpoint(*last), None)
    row = CheckpointRow(checkpoint(*now), None)
    assert row.is_due(before, is_exact=is_exact) == expected


def test_new_metadata_is_news() -> None:
    before = CheckpointRow(checkpoint(5, 5), None)
    assert before._replace(checkpoint=replace(before.checkpoint, metadata="x")).is_due(
        before, is_exact=True
    )


def there(*offsets: int, is_active: bool = False, has_offsets: bool = True) -> TargetGroup:
    known = dict(zip((TP, OTHER), offsets, strict=False))
    return TargetGroup(is_active=is_active, has_offsets=has_offsets, offsets=known)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (None, GroupSync(to_set=(checkpoint(9, 7), checkpoint(9, 8, OTHER)))),
        (there(), GroupSync(to_set=(checkpoint(9, 7), checkpoint(9, 8, OTHER)))),
        (there(7), GroupSync(to_set=(checkpoint(9, 8, OTHER),))),
        (there(6, 9), GroupSync(to_set=(checkpoint(9, 7),))),
        (there(7, 8), GroupSync()),
        (there(9, 9), GroupSync(skipped=Skipped.AHEAD)),
        (there(6, 6, is_active=True), GroupSync(skipped=Skipped.ACTIVE)),
        (there(6, 6, has_offsets=False), GroupSync(skipped=Skipped.NOT_A_CONSUMER)),
    ],
)
def test_idle_group_only_moves_forward_and_an_active_one_not_at_all(
    group: TargetGroup | None, expected: GroupSync
) -> None:
    assert group_sync(group, [checkpoint(9, 7), checkpoint(9, 8, OTHER)]) == expected


def test_group_without_checkpoints_is_no_news() -> None:
    assert group_sync(there(is_active=True), []) == GroupSync()
