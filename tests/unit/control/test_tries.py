"""When a failed set-up of a flow is retried."""

from __future__ import annotations

import pytest

from tests.support.driver import HandClock
from twinlog.control.flow.managed_flow import SetUpAttempts
from twinlog.control.leading.lead import LeaderUnknown, StandingBy
from twinlog.errors import ClusterError, Fate, TwinlogError


def pauses(error: TwinlogError, *, count: int = 12) -> list[float]:
    clock = HandClock()
    tries = SetUpAttempts(clock=clock)
    found = []
    for _ in range(count):
        tries.on_failure(error)
        found.append(tries.due_at - clock.monotonic())
        clock.now += found[-1]
    return found


def failure(code: str) -> TwinlogError:
    return ClusterError("it failed", code=code, fate=Fate.RETRIABLE)


@pytest.mark.parametrize("code", ["UNREACHABLE", "DISCONNECTED"])
def test_unreachable_cluster_is_queried_every_five_seconds(code: str) -> None:
    """An unreachable cluster is queried at least every five seconds. Otherwise a standby would not
    take over until half a minute after the end of an outage.
    """
    assert pauses(failure(code)) == [0.5, 1, 2, 4, *[5] * 8]


def test_refused_set_ups_are_retried_less_often() -> None:
    assert pauses(failure("TARGET_REFUSED")) == [0.5, 1, 2, 4, 8, 16, *[30] * 6]


def test_outage_after_a_refusal_is_not_waited_for_longer() -> None:
    clock = HandClock()
    tries = SetUpAttempts(clock=clock)
    for code in [*["TARGET_REFUSED"] * 8, "UNREACHABLE"]:
        tries.on_failure(failure(code))
    assert tries.due_at - clock.monotonic() == 5


@pytest.mark.parametrize("waiting", [StandingBy("standing by"), LeaderUnknown("not known yet")])
def test_free_lead_is_not_waited_for(waiting: TwinlogError) -> None:
    assert pauses(waiting, count=3) == [0.5] * 3
