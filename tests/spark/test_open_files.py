"""A limit of open files that is too low for Spark's JVM is reported before the JVM starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.eventually import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

START = """
from twinlog.errors import TwinlogError
from twinlog.spark.session import start_spark, stop_spark
try:
    engine = start_spark(None, 1)
except TwinlogError as error:
    print(error)
else:
    stop_spark(engine)
    print("started")
"""


def started_under(limit: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", "-c", f'ulimit {limit}; exec "$0" -c "$1"', sys.executable, START]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)


@pytest.mark.witness("a limit of open files that is too low is reported in one line", case="64")
@pytest.mark.parametrize("limit", [64, 256, 320])
def test_too_few_open_files_are_one_true_line(limit: int) -> None:
    done = started_under(f"-n {limit}")
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"too few open files: {limit} are allowed (ulimit -n), ")
    assert line.endswith("[ENVIRONMENT]")
    assert "at org.apache" not in done.stderr, "no trace of Java's"


def test_a_soft_limit_is_raised_where_the_hard_one_allows_it() -> None:
    assert started_under("-Sn 256").stdout == "started\n"
