"""A failure is logged in one line when it begins."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from tests.support.snapshots import flow, partition
from twinlog.cli.terminal.progress import FailureLines
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot

NOW_MS = 1_700_000_000_000


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = 0.0
        self._failures = FailureLines(self.lines.append)

    def after(self, seconds: float, *parts: PartitionSnapshot, **changes: Any) -> list[str]:
        """Update the log after some seconds, and return the lines that were added."""
        self.now += seconds
        before = len(self.lines)
        snapshot: FlowSnapshot = flow(*parts, **changes)
        self._failures.update(self.now, NOW_MS + int(self.now * 1000), [snapshot])
        return self.lines[before:]


def bad(number: int, code: str = "FOREIGN_DATA", **changes: Any) -> PartitionSnapshot:
    usual: dict[str, Any] = {
        "state": "FAILED",
        "message": f"A.orders-{number}: not ours",
        "since_ms": NOW_MS,
    }
    return partition(number=number, code=code, **(usual | changes))


def test_partitions_of_one_topic_and_code_share_a_line() -> None:
    said = Said()
    lines = said.after(1, bad(0), bad(1), bad(3), bad(4, code="DIVERGED"), partition(number=5))
    assert lines == [
        "A->B: orders, partitions 0-1,3: A.orders-0: not ours [FOREIGN_DATA]",
        "A->B: orders-4: A.orders-4: not ours [DIVERGED]",
    ]
    assert said.after(1, bad(0), bad(1), bad(3), bad(4, code="DIVERGED")) == []


def test_while_it_is_tried_again_nothing_is_reported() -> None:
    said = Said()
    said.after(1, bad(0))
    assert said.after(1, bad(0, state="RETRYING")) == []
    assert said.after(1, bad(0)) == []


def test_its_end_is_reported() -> None:
    said = Said()
    said.after(1, bad(0))
    assert said.after(90, partition(number=0)) == [
        "A->B: orders: FOREIGN_DATA is over after 1 min 30 s"
    ]


def test_an_intermittent_error_is_reported_every_ten_minutes() -> None:
    said = Said()
    for _ in range(60):
        said.after(30, bad(0))
        said.after(30, partition(number=0))
    assert len(said.lines) <= 2 * 7


def test_a_transient_problem_is_reported_only_if_it_lasts() -> None:
    said = Said()
    waits = bad(0, code="TARGET_UNDER_MIN_ISR", state="RETRYING")
    assert said.after(5, waits) == []
    assert len(said.after(30, waits)) == 1


def test_a_problem_that_is_reported_late_has_its_begin() -> None:
    said = Said()
    parts = [bad(number, code="X", state="RETRYING", since_ms=NOW_MS + number) for number in (0, 1)]
    (line,) = said.after(95, *parts)
    assert re.search(r" not ours \[X\], since \S+ \(1 min 35 s\)$", line)
    many = [replace(parts[0], topic=f"t{number}", code="Y") for number in range(9)]
    line, _ = said.after(0, *many)
    assert re.search(r"9 topics .* \[Y\], since \S+ \(1 min 35 s\)$", line)


def test_the_flows_problem_is_not_repeated_for_its_topics() -> None:
    """A partition that only waits for the end of the flow's problem is not logged separately.
    Otherwise its line would appear after an outage of half a minute, when the clusters already
    respond.
    """
    said = Said()
    gone = {"code": "DISCONNECTED", "state": "RETRYING", "message": "broker of B did not answer"}
    waits = [bad(number, **gone) for number in range(3)]
    outage = {"state": "DEGRADED", "code": "DISCONNECTED", "reason": f"{gone['message']} [..]"}
    assert said.after(40, *waits, **outage) == []
    assert said.after(1, *(partition(number=number) for number in range(3))) == []
    (line,) = said.after(1, bad(3), *waits, **outage)
    assert "FOREIGN_DATA" in line, "what a partition has of its own is said"


def test_a_name_that_the_message_begins_with_is_not_repeated() -> None:
    lines = Said().after(1, bad(0, message="orders-0: the topic is gone"))
    assert lines == ["A->B: orders-0: the topic is gone [FOREIGN_DATA]"]


def test_many_topics_that_are_deleted_at_once_are_a_line_and_are_released() -> None:
    said = Said()
    gone = [
        bad(0, code="TOPIC_MISSING", topic=f"t{n:02}", message="the topic is gone")
        for n in range(25)
    ]
    lines = said.after(1, *gone)
    assert lines == [
        "A->B: 25 topics (t00, t01, t02 and 22 more): the topic is gone [TOPIC_MISSING]"
    ]
    assert said.after(1, *gone) == []
    released = [partition(f"t{n:02}", state="RELEASED") for n in range(25)]
    assert said.after(1, partition(), *released) == [
        "A->B: 25 topics (t00, t01, t02 and 22 more): released after 2.0 s: no longer mirrored, "
        "last TOPIC_MISSING"
    ]


def test_a_topic_that_is_gone_is_released_and_one_that_runs_again_is_not() -> None:
    said = Said()
    said.after(1, bad(0), bad(0, topic="pay"))
    assert said.after(90, partition(number=0)) == [
        "A->B: orders: FOREIGN_DATA is over after 1 min 30 s",
        "A->B: pay: released after 1 min 30 s: no longer mirrored, last FOREIGN_DATA",
    ]


def test_different_reasons_and_a_few_topics_keep_their_own_lines() -> None:
    said = Said()
    lines = said.after(1, *(bad(0, topic=f"t{n}") for n in range(3)), bad(1, code="DIVERGED"))
    assert len(lines) == 4


def test_topics_of_a_flow_between_two_runs_are_not_released() -> None:
    said = Said()
    said.after(1, bad(0, code="UNREACHABLE"))
    assert said.after(60, generation=None, state="DEGRADED") == []
    assert said.after(60, partition()) == ["A->B: orders: UNREACHABLE is over after 2 min"]


def test_a_standby_reports_no_failure_of_another_leaders_flow() -> None:
    said = Said()
    said.after(1, bad(0))
    assert said.after(60, generation=None, state="STANDBY") == []
    assert said.after(60, partition()) == []
