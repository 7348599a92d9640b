"""Bounds of a share group's position, as a table of cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.cluster.groups import share_groups
from twinlog.cluster.groups.group_offsets import Committed
from twinlog.cluster.logs.offsets import OffsetResult
from twinlog.errors import TwinlogError, Unreachable
from twinlog.model import TopicPartition

TP = TopicPartition("orders", 0)
NO_LEADER = Unreachable("no leader")


@pytest.mark.parametrize(
    ("lag", "end", "surely", "furthest"),
    [
        (4, 12, 4, 8),
        (0, 12, 12, 12),
        (-1, 12, 4, 4),  # this broker does not report the lag
        (9, 12, 4, 4),
        (4, NO_LEADER, 4, NO_LEADER),
        (0, NO_LEADER, 4, NO_LEADER),
        (-1, NO_LEADER, 4, 4),
    ],
)
def test_bounds_of_a_group_that_starts_at_4(
    monkeypatch: pytest.MonkeyPatch,
    lag: int,
    end: int | TwinlogError,
    surely: int,
    furthest: int | TwinlogError,
) -> None:
    """If the end is unknown, there is no upper bound. A sync that relied on the lower bound instead
    could set the group back, and processed records would be delivered again.
    """
    state = share_groups._State(start=4, lag=lag)
    read = (
        end
        if isinstance(end, TwinlogError)
        else OffsetResult(offset=end, timestamp=-1, leader_epoch=0)
    )
    monkeypatch.setattr(share_groups, "_describe", lambda *_: {"shop": {TP: state}})
    monkeypatch.setattr(share_groups, "list_offsets", lambda _, tps, __: dict.fromkeys(tps, read))
    coordinators: Any = SimpleNamespace(client=None)
    found = [
        share_groups.fetch_share_offsets(coordinators, ["shop"], furthest=is_upper)["shop"]
        for is_upper in (False, True)
    ]
    assert found == [
        one if isinstance(one, TwinlogError) else {TP: Committed(offset=one)}
        for one in (surely, furthest)
    ]
