"""Background jobs of one kind do not wait for jobs of another kind. All of them end with the
lane.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.support.eventually import eventually
from twinlog.errors import Disconnected, TwinlogError
from twinlog.lane.sides.background import THREADS, JobKind, LaneJobs


@pytest.fixture
def background() -> Iterator[LaneJobs]:
    made = LaneJobs()
    yield made
    made.close()


def not_expected(error: TwinlogError) -> None:
    raise error


@pytest.mark.parametrize("kind", [JobKind.METADATA, JobKind.CONNECTION, JobKind.WATCH])
def test_no_other_work_waits_for_searches(background: LaneJobs, kind: JobKind) -> None:
    go_on = threading.Event()
    done: list[str] = []
    for _ in range(2 * THREADS[JobKind.SEARCH]):
        background.submit(
            JobKind.SEARCH, go_on.wait, lambda _: done.append(JobKind.SEARCH), not_expected
        )
    background.submit(kind, lambda: kind, done.append, not_expected)

    def is_delivered() -> bool:
        background.deliver()
        return bool(done)

    eventually(is_delivered, what=f"a job for {kind}")
    assert done == [kind]
    go_on.set()


def test_a_pause_of_a_job_ends_with_the_lane() -> None:
    background = LaneJobs()
    ended: list[BaseException] = []
    begun = threading.Event()

    def rest() -> None:
        begun.set()
        try:
            background.pause(600.0)
        except Disconnected as error:
            ended.append(error)
            raise

    background.submit(JobKind.SEARCH, rest, lambda _: None, not_expected)
    assert begun.wait(10)
    background.close()
    eventually(lambda: bool(ended), what="the end of the pause")


def test_calls_posted_by_a_job_are_delivered_before_its_result(background: LaneJobs) -> None:
    reported: list[str] = []

    def job() -> str:
        background.post(lambda: reported.append("part"))
        return "rest"

    def is_delivered() -> bool:
        background.deliver()
        return "rest" in reported

    background.submit(JobKind.SEARCH, job, reported.append, not_expected)
    eventually(is_delivered, what="the end of the job")
    assert reported == ["part", "rest"]
