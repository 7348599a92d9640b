"""A pool reuses its threads, always has enough of them, and calls alarms in time."""

from __future__ import annotations

import os
import threading
import time
from functools import partial

import pytest

from tests.support.eventually import PATIENCE_S, eventually
from twinlog import threads
from twinlog.threads import Alarm, RepeatedJob, ThreadPool, lower_priority


def test_jobs_that_block_do_not_delay_others_and_their_threads_are_reused() -> None:
    pool, end, used = ThreadPool(), threading.Event(), list[threading.Thread]()

    def job() -> None:
        used.append(threading.current_thread())
        end.wait(PATIENCE_S)

    for _ in range(20):
        pool.run("blocked", job)
    eventually(lambda: len(used) == 20)
    first = {*used}
    assert len(first) == 20
    end.set()
    eventually(lambda: {thread.name for thread in first} == {"twinlog-idle"})
    for count in range(21, 41):
        pool.run("short", job)
        eventually(lambda: len(used) == count)  # noqa: B023 (called before the next one)
    assert {*used} == first


def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_S", 0.01)
    pool, used = ThreadPool(), list[threading.Thread]()
    for n in range(200):
        pool.run("job", lambda: used.append(threading.current_thread()))
        time.sleep(0.01 * (n % 3))  # so that some jobs arrive at the moment in which a thread ends
    eventually(lambda: len(used) == 200)
    eventually(lambda: not any(thread.is_alive() for thread in used))


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="no priorities")
def test_a_thread_of_lowered_priority_is_not_reused() -> None:
    pool, used = ThreadPool(), list[threading.Thread]()

    def lowered() -> None:
        used.append(threading.current_thread())
        lower_priority(19)

    pool.run("lowered", lowered)
    eventually(lambda: used and not used[0].is_alive())


def test_alarms_run_in_order_unless_they_were_cancelled() -> None:
    pool, rung, now = ThreadPool(), list[int](), time.monotonic()
    alarms = [Alarm(now + 0.05 * n, "alarm", partial(rung.append, n)) for n in (3, 1, 2, 0)]
    for alarm in alarms:
        pool.add(alarm)
    alarms[2].cancel()
    eventually(lambda: len(rung) == 3)
    assert rung == [0, 1, 3]
    assert time.monotonic() >= now + 0.15


def test_an_alarm_that_is_never_due_stops_no_other() -> None:
    pool, rung = ThreadPool(), list[bool]()
    pool.add(Alarm(time.monotonic() + 2**63, "never", lambda: rung.append(False)))
    time.sleep(0.1)  # so that the timer waits for it
    pool.add(Alarm(time.monotonic(), "now", lambda: rung.append(True)))
    eventually(lambda: rung == [True])


def test_a_repeated_job_runs_once_at_a_time_however_often_it_is_hurried() -> None:
    running, most, runs, ends = 0, 0, 0, list[int]()
    counting = threading.Lock()

    def run() -> float:
        nonlocal running, most, runs
        with counting:
            running, runs = running + 1, runs + 1
            most = max(most, running)
        sum(range(5_000))  # long enough for other threads to run
        with counting:
            running -= 1
        return 0.001

    with RepeatedJob("counting", run, lambda: ends.append(runs)) as job:

        def hurry() -> None:
            for _ in range(500):
                job.run_now()
                sum(range(1_000))

        hurrying = [threading.Thread(target=hurry) for _ in range(4)]
        for one in hurrying:
            one.start()
        for one in hurrying:
            one.join()
    job.join(PATIENCE_S)
    assert (most, ends, job.is_alive) == (1, [runs], False)


def test_a_repeated_job_pauses_until_it_is_hurried_or_stopped() -> None:
    began, ended = list[float](), threading.Event()

    def run() -> float:
        began.append(time.monotonic())
        return 1_000.0

    job = RepeatedJob("pausing", run, ended.set)
    job.start(0.05)
    now = time.monotonic()
    eventually(lambda: len(began) == 1)
    assert began[0] >= now + 0.04
    job.run_now()
    eventually(lambda: len(began) == 2)
    job.stop()
    job.join(PATIENCE_S)
    assert ended.is_set()
    assert len(began) == 2


def test_a_job_that_is_stopped_while_it_runs_ends_after_that_run() -> None:
    entered, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def run() -> float:
        entered.set()
        may_end.wait(PATIENCE_S)
        return 1_000.0

    job = RepeatedJob("running", run, ended.set)
    job.start()
    assert entered.wait(PATIENCE_S)
    job.stop()
    assert job.is_alive
    assert not ended.is_set()
    may_end.set()
    job.join(PATIENCE_S)
    assert ended.is_set()
