"""The recovery point is the time up to which all source records are on the target. The computed
time is never too late. Within this limit, it is as late as the observations permit.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twinlog.control.lanes.partitions import MOST_OBSERVATIONS, RecoveryPoint


def see(point: RecoveryPoint, end: int, at: float) -> None:
    point.note_end(end, at, point.upstream)


def test_it_is_the_last_moment_of_which_everything_is_on_the_target() -> None:
    point = RecoveryPoint()
    point.note_copied(10)
    see(point, 10, 1000)
    assert point.at == 1000
    see(point, 15, 2000)
    see(point, 20, 3000)
    assert point.at == 1000
    point.note_copied(14)
    assert point.at == 1000
    point.note_copied(17)
    assert point.at == 2000
    point.note_copied(20)
    assert point.at == 3000


def test_at_an_idle_end_it_moves_with_every_look() -> None:
    point = RecoveryPoint()
    point.note_copied(10)
    for at_ms in range(1000, 9000, 1000):
        see(point, 10, at_ms)
        assert point.at == at_ms


def test_it_does_not_advance_without_copied_records() -> None:
    point = RecoveryPoint()
    point.note_copied(10)
    see(point, 10, 1000)
    for at_ms in range(2000, 9000, 1000):
        see(point, 12, at_ms)
        assert point.at == 1000
    point.note_copied(12)
    assert point.at == 8000, "the end was still there when it was seen last"


def test_records_that_the_source_lost_are_no_longer_at_risk() -> None:
    point = RecoveryPoint()
    point.note_copied(10)
    see(point, 30, 1000)
    see(point, 10, 2000)
    assert point.at == 2000
    see(point, 30, 3000)
    see(point, 20, 4000)
    point.note_copied(20)
    assert point.at == 4000


def test_a_source_that_ends_before_the_copy_is_doubtful_until_a_lane_has_checked() -> None:
    point = RecoveryPoint()
    point.note_copied(100)
    see(point, 100, 1000)
    for at in (2000, 3000):
        see(point, 99, at)
        assert (point.at, point.records, point.doubtful_since) == (None, None, 2000)
    point.note_copied(100)
    see(point, 100, 4000)
    assert (point.at, point.records, point.doubtful_since) == (4000, 0, None)


def test_an_answer_that_the_copy_has_overtaken_is_no_doubt() -> None:
    point = RecoveryPoint()
    point.note_copied(100)
    point.note_copied(150)
    point.note_end(120, 1000, 100)  # sent before the copy reached 150
    assert (point.at, point.doubtful_since) == (1000, None)


def test_records_that_the_target_lost_are_at_risk_from_their_observation_on() -> None:
    point = RecoveryPoint()
    point.note_copied(10)
    see(point, 10, 1000)
    point.note_copied(7)
    assert (point.at, point.waits_since, point.was_known) == (None, 1000, True)
    see(point, 10, 2000)
    point.note_copied(10)
    assert point.at == 2000


def test_an_empty_partition_that_never_began_has_nothing_to_lose() -> None:
    point = RecoveryPoint()
    see(point, 0, 1000)
    assert (point.at, point.records) == (1000, 0)
    see(point, 5, 2000)
    see(point, 9, 3000)
    assert (point.records, point.waits_since) == (None, 2000)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("copy"), st.integers(1, 20)),
    ),
    max_size=400,
)


@given(STEPS)
def test_it_is_never_after_the_copied_records(steps: list[tuple[str, int]]) -> None:
    point, end, upstream, now_ms = RecoveryPoint(), 0, 0, 1
    history: list[tuple[int, int]] = []  # the exact history of the source's end
    seen: list[tuple[int, int]] = []
    point.note_copied(0)
    for kind, number in steps:
        now_ms += 1
        if kind == "append":
            end += number
        elif kind == "copy":
            upstream = min(end, upstream + number)
            point.note_copied(upstream)
        else:
            see(point, end, now_ms)
            seen.append((now_ms, end))
        history.append((now_ms, end))
        true_ms = max((at for at, was in history if was <= upstream), default=0)
        assert (point.at or 0) <= true_ms
        if len(seen) <= MOST_OBSERVATIONS:
            assert point.at == max((at for at, was in seen if was <= upstream), default=None)
    point.note_copied(end)
    assert point.at == (seen[-1][0] if seen else None), "the newest look is never dropped"
