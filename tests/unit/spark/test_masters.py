"""Spark masters in the forms in which users write them."""

from __future__ import annotations

import pytest

from twinlog.spark.lease import error_of
from twinlog.spark.masters import local_master
from twinlog.spark.options import is_local


@pytest.mark.parametrize(
    ("given", "started"),
    [
        (None, "local[6,1000]"),
        ("local", "local[1,1000]"),
        ("local[*]", "local[8,1000]"),
        ("local[3]", "local[3,1000]"),
        ("local[3,5]", "local[3,5]"),
        ("local[*, 5]", "local[8,5]"),
    ],
)
def test_a_local_master_repeats_failed_tasks_unless_configured(
    given: str | None, started: str
) -> None:
    assert is_local(given)
    assert local_master(given, lanes=2, cores=8) == started


@pytest.mark.parametrize(
    "master", ["spark://a:7077", "yarn", "k8s://https://a", "local-cluster[2,1,512]"]
)
def test_a_master_with_executors_is_not_local(master: str) -> None:
    assert not is_local(master)


def test_the_last_twinlog_error_in_a_traceback_counts() -> None:
    text = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 1, in run
twinlog.errors.Unreachable: first [UNREACHABLE]

During handling of the above exception, another exception occurred:

twinlog.errors.TwinlogError: the driver gave no work [LANE_WITHOUT_WORK]

\tat org.apache.spark.Foo.bar(Foo.scala:1)"""
    error = error_of("twinlog-lease-1", text)
    assert error.code == "LANE_WITHOUT_WORK"
    assert error.message == "twinlog-lease-1: the driver gave no work"


def test_of_javas_trace_the_cause_is_kept() -> None:
    text = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 4 times, most \
recent failure: Lost task 0.3 in stage 1.0 (TID 3) (h executor 1): ExecutorLostFailure (executor 1 \
exited caused by one of the running tasks) Reason: Container killed on request.
Driver stacktrace:
\tat org.apache.spark.Foo.bar(Foo.scala:1)"""
    error = error_of("twinlog-lease-1", text)
    assert error.message == (
        "twinlog-lease-1 failed on Spark: ExecutorLostFailure (executor 1 exited caused by one of "
        "the running tasks) Reason: Container killed on request."
    )
    caused = f"{text}\nCaused by: java.io.IOException: No space left\n\tat a.B\n\t... 20 more\n"
    assert error_of("x", caused).message == "x failed on Spark: java.io.IOException: No space left"


@pytest.mark.parametrize("text", ["", "\n\n", "Job 3 cancelled"])
def test_any_text_makes_one_line(text: str) -> None:
    assert "\n" not in str(error_of("twinlog-lease-1", text))


def test_reason_of_a_job_whose_application_was_ended() -> None:
    text = (
        "An error occurred while calling o42.count.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Master removed our "
        "application: FAILED\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2844)\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
    )
    assert error_of("twinlog-lease-1", text).message == (
        "twinlog-lease-1 failed on Spark: Job aborted due to stage failure: Master removed our "
        "application: FAILED"
    )
