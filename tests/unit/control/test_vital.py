"""If one of Twinlog's threads dies, the process ends with a code, and `/healthz` reports it."""

from __future__ import annotations

import json
import threading

import pytest

from twinlog.control.watch.monitor import Monitor
from twinlog.threads import ThreadDied, ThreadWatch

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def die(name: str, of: BaseException) -> None:
    def run() -> None:
        raise of

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()


@pytest.mark.parametrize("name", ["twinlog-channel", "twinlog-spark", "group-twinlog-A->B"])
@pytest.mark.parametrize("of", [ValueError("odd"), MemoryError(), SystemExit(3)])
def test_whichever_thread_it_is_and_whatever_it_died_of(name: str, of: BaseException) -> None:
    thread_watch, failures = ThreadWatch(), list[BaseException]()
    monitor = Monitor(thread_watch=thread_watch)
    with thread_watch.guarding(failures.append):
        assert health(monitor) == (200, None)
        die(name, of)
        die("twinlog-other", KeyError("later"))
    first, _ = failures
    assert isinstance(first, ThreadDied)
    assert first.code == "THREAD_DIED"
    assert first.exit_code == 1
    assert f"thread {name} died of {type(of).__name__}" in first.message
    status, reason = health(monitor)
    assert status == 503
    assert str(reason).startswith(f"thread {name} died")


def test_threads_of_libraries_are_theirs_and_the_hook_is_given_back() -> None:
    thread_watch, failures, before = ThreadWatch(), list[BaseException](), threading.excepthook
    with thread_watch.guarding(failures.append):
        die("Thread-7", ValueError("not ours"))
        die("twinlog-fine", SystemError("ours"))
    assert len(failures) == 1
    assert threading.excepthook is before
    die("twinlog-late", ValueError("after the end"))
    assert len(failures) == 1


def health(monitor: Monitor) -> tuple[int, object]:
    answer = monitor.answer("/healthz")
    assert answer is not None
    return answer.status, json.loads(answer.body).get("reason")
