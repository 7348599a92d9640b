"""The search for the record on which a transform fails, and the message about this record."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.records.lent import RangePart
from twinlog.transforms.rounds import described, first_failure

PART: Final = RangePart(port="lane:1", number=1, topic="orders", partition=3, first=17, end=18)
SECRET: Final = "4111 1111"


@given(
    st.integers(0, 1 << 40),
    st.sets(st.integers(0, 5000), min_size=1, max_size=20),
    st.integers(1, 5000),
)
def test_the_first_record_that_fails_is_found(first: int, failing: set[int], more: int) -> None:
    end = first + max(failing) + more
    runs = 0

    def why(begin: int, stop: int) -> str | None:
        nonlocal runs
        runs += 1
        bad = [one for one in failing if begin <= first + one < stop]
        return f"{min(bad)}" if bad else None

    assert first_failure(first, end, why) == (first + min(failing), f"{min(failing)}")
    assert runs <= 16


def test_without_a_record_that_fails_by_itself_there_is_none() -> None:
    assert first_failure(0, 100, lambda first, end: None if end - first < 3 else "why") is None


def _job(error: str) -> str:
    return (
        "An error occurred while calling o77.count.\n: org.apache.spark.SparkException: Job "
        "aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
        f"Lost task 0.0 in stage 1.0 (TID 1) (h executor driver): {error}\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(P.scala:1)\n"
        "Driver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abort(D.scala:1)\n"
    )


TRACE: Final = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "/usr/lib/python3/pyspark/worker.py", line 3, in main\n    process()\n'
    '  File "/opt/company/privacy.py", line 12, in mask_cards\n'
    "    raise ValueError(number)\n    ^^^^^^^^^^^\n"
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (f"{TRACE}ValueError: {SECRET}", "ValueError (privacy.py, line 12, in mask_cards)"),
        (
            f"{TRACE}company.Error: a\n{SECRET}\nmore",
            "company.Error (privacy.py, line 12, in mask_cards)",
        ),
        (f"{TRACE}KeyError", "KeyError (privacy.py, line 12, in mask_cards)"),
        (
            f"{TRACE}KeyError: '{SECRET}'\n\nDuring handling of the above exception, another "
            f"exception occurred:\n\n{TRACE}TypeError: {SECRET}",
            "TypeError (privacy.py, line 12, in mask_cards)",
        ),
        (
            f"org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value "
            f"'{SECRET}' cannot be cast. SQLSTATE: 22018",
            "CAST_INVALID_INPUT",
        ),
        (
            "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] orders-3 offset 17: "
            "value is not JSON (mask_json) SQLSTATE: P0001",
            "value is not JSON (mask_json)",
        ),
        (
            f"org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {SECRET} "
            "SQLSTATE: P0001",
            "USER_RAISED_EXCEPTION",
        ),
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            "Python worker exited unexpectedly, perhaps because it needs too much memory",
        ),
        (f"java.lang.ArithmeticException: {SECRET}", "java.lang.ArithmeticException"),
    ],
)
def test_a_failure_is_described_without_values(error: str, said: str) -> None:
    assert described(_job(error), PART) == said
