"""The offsets that a reset sets, and its result if single partitions are rejected."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.settings import settings_for
from twinlog.client.offset_reset import (
    Fit,
    Goal,
    GoalKind,
    GroupReset,
    OffsetReset,
    ResetBounds,
    ResetOffset,
    _within_current_log,
    fit_to_log,
)
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import CommitResult, GroupOffsets
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.model import NO_TOPIC_ID, TopicPartition

LOG = ResetBounds(start=10, end=50)
HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("goal", "before", "expected"),
    [
        (Goal(kind=GoalKind.EARLIEST), 30, (10, Fit.AS_REQUESTED)),
        (Goal(kind=GoalKind.LATEST), None, (50, Fit.AS_REQUESTED)),
        (Goal(kind=GoalKind.OFFSET, value=30), None, (30, Fit.AS_REQUESTED)),
        (Goal(kind=GoalKind.OFFSET, value=3), 30, (10, Fit.AT_START)),
        (Goal(kind=GoalKind.OFFSET, value=51), 30, (50, Fit.AT_END)),
        (Goal(kind=GoalKind.OFFSET, value=50), 30, (50, Fit.AS_REQUESTED)),
        (Goal(kind=GoalKind.SHIFT, value=5), 30, (35, Fit.AS_REQUESTED)),
        (Goal(kind=GoalKind.SHIFT, value=-21), 30, (10, Fit.AT_START)),
        (Goal(kind=GoalKind.SHIFT, value=21), 30, (50, Fit.AT_END)),
        (Goal(kind=GoalKind.SHIFT, value=21), None, None),
        (Goal(kind=GoalKind.TIMESTAMP, value=1), 30, (50, Fit.NONE_SO_NEW)),
    ],
)
def test_new_offset_is_within_the_log(
    goal: Goal, before: int | None, expected: tuple[int, Fit] | None
) -> None:
    assert fit_to_log(goal, before, LOG) == expected


def test_time_is_where_the_broker_found_it() -> None:
    goal = Goal(kind=GoalKind.TIMESTAMP, value=1)
    assert fit_to_log(goal, 30, ResetBounds(start=10, end=50, at_time=17)) == (17, Fit.AS_REQUESTED)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (LOG, (20, Fit.AS_REQUESTED)),
        # retention has deleted the earlier records
        (ResetBounds(start=30, end=50), (30, Fit.AT_START)),
        (ResetBounds(start=0, end=15), (15, Fit.AT_END)),
    ],
    ids=["same", "shorter", "truncated"],
)
def test_log_that_changed_since_the_plan(log: ResetBounds, expected: tuple[int, Fit]) -> None:
    now = _within_current_log(offset(HERE, 7), log)
    assert (now.after, now.fit) == expected


class Refusing:
    """Accepts commits of all partitions but one."""

    def __init__(self) -> None:
        self.sent: list[Mapping[TopicPartition, int]] = []
        self.metadata: set[str] = set()
        """Metadata of the last commit."""

    def __call__(
        self, _: Coordinators, wanted: Mapping[str, GroupOffsets]
    ) -> Mapping[str, CommitResult | TwinlogError]:
        (offsets,) = wanted.values()
        self.sent.append({tp: one.offset for tp, one in offsets.items()})
        self.metadata = {one.metadata for one in offsets.values()}
        error = Unauthorized("no", code="TOPIC_UNAUTHORIZED")
        return {"shop": {tp: error if tp == THERE else None for tp in offsets}}


def offset(tp: TopicPartition, before: int | None) -> ResetOffset:
    return ResetOffset(
        topic=tp.topic,
        partition=tp.partition,
        before=before,
        metadata="of before",
        after=20,
        start=0,
        end=99,
    )


@pytest.mark.parametrize(
    ("before", "sent", "said"),
    [
        (7, [{HERE: 20, THERE: 20}, {HERE: 7}], "the other partitions were restored"),
        (None, [{HERE: 20, THERE: 20}], "1 other partition could not be restored (orders-0)"),
    ],
)
def test_accepted_partitions_are_set_back_if_another_partition_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
    before: int | None,
    sent: list[Mapping[TopicPartition, int]],
    said: str,
) -> None:
    commit = Refusing()
    monkeypatch.setattr("twinlog.client.offset_reset.commit_offsets", commit)
    monkeypatch.setattr(OffsetReset, "_within_current_logs", lambda _, plan: plan)
    plan = GroupReset(
        group="shop",
        offsets=(offset(HERE, before), offset(THERE, 8)),
        topic_ids={"orders": NO_TOPIC_ID},
    )
    with ClusterClient(settings_for("127.0.0.1:9", "B")) as client:
        done = OffsetReset(client).execute(plan)
    assert commit.sent == sent
    assert commit.metadata == ({""} if before is None else {"of before"})
    assert not done.is_done
    assert done.refused is not None
    assert done.refused.code == "TOPIC_UNAUTHORIZED"
    assert said in done.refused.message
