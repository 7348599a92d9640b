"""Threads are reused, there are never too few, and alarms run on time."""

from __future__ import annotations

import os
import threading
import time
from functools import partial

import pytest

from tests.support.eventually import PATIENCE_S, eventually
from twinlog import threads
from twinlog.control.watch.vital import give_way
from twinlog.threads import ThreadPool


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
        time.sleep(0.01 * (n % 3))  # a job may come in the moment in which a thread ends
    eventually(lambda: len(used) == 200)
    eventually(lambda: not any(thread.is_alive() for thread in used))


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="no priorities")
def test_a_thread_of_lowered_priority_is_not_reused() -> None:
    pool, used = ThreadPool(), list[threading.Thread]()

    def lowered() -> None:
        used.append(threading.current_thread())
        give_way(19)

    pool.run("lowered", lowered)
    eventually(lambda: used and not used[0].is_alive())


def test_alarms_run_in_order_unless_they_were_cancelled() -> None:
    pool, rung, now = ThreadPool(), list[int](), time.monotonic()
    alarms = [pool.run_at(now + 0.05 * n, "alarm", partial(rung.append, n)) for n in (3, 1, 2, 0)]
    alarms[2].cancel()
    eventually(lambda: len(rung) == 3)
    assert rung == [0, 1, 3]
    assert time.monotonic() >= now + 0.15
