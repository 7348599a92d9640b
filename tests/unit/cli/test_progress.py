"""The progress of a running mirror, as it is shown in a log and on a terminal."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any, TextIO

import pytest
from rich.console import Console

from tests.support.snapshots import flow, partition
from twinlog.cli.terminal.output import write_while_it_is_read
from twinlog.cli.terminal.progress import BarProgress, EventLines, PlainProgress, mirror_view
from twinlog.cli.terminal.progress import shown as display
from twinlog.control.watch.rates import Rates
from twinlog.control.watch.snapshot import FlowSnapshot


class Log:
    """A log of progress lines, with a clock that the test moves."""

    def __init__(self, *, once: bool) -> None:
        self.now = 1000.0
        self.lines: list[str] = []
        self.progress = PlainProgress(self.lines.append, once=once, clock=lambda: self.now)

    def second(self, *flows: FlowSnapshot) -> None:
        self.now += 1
        self.progress.update(list(flows))


def test_a_healthy_hour_has_fewer_than_20_lines() -> None:
    log = Log(once=False)
    for second in range(3600):
        log.second(*(flow(partition(records=second), flow=f"A->B{n}") for n in range(3)))
    assert len(log.lines) < 20
    assert log.lines[0] == "A->B0: mirroring 1 topic, 1 partition, 2 lanes; guarantee: exact"
    assert log.lines[-1].startswith(
        "3 flows: copied 1,800 records, 0 B in 10 min; 3 partitions, lag 0"
    )


def test_records_of_a_topic_that_is_gone_are_not_subtracted() -> None:
    log = Log(once=False)
    both = [partition(records=5_000, bytes=5_000), partition("pay", records=10, bytes=10)]
    for _ in range(600):
        log.second(flow(*both))
    for second in range(600):
        log.second(flow(partition("pay", records=10 + second, bytes=10)))
    assert "copied 599 records, 0 B in" in log.lines[-1]


def test_once_has_a_line_at_the_start_and_one_every_ten_seconds() -> None:
    log = Log(once=True)
    for second in range(35):
        log.second(flow(partition(records=second * 100, lag=4000 - second * 100)))
    assert log.lines[0].startswith("A->B: mirroring")
    assert len(log.lines) == 4
    assert log.lines[1].startswith("A->B: copied 900 of 4,000 records (22 %), 100 records/s")


def test_once_reports_no_progress_before_a_lane_has_found_a_position() -> None:
    log = Log(once=True)
    for _ in range(15):
        log.second(flow(partition(records=0, lag=None, state="PENDING")))
    assert log.lines[1:] == ["A->B: starting, no records to copy are known yet"]


def test_nothing_is_reported_before_a_flow_is_set_up() -> None:
    log = Log(once=True)
    for _ in range(30):
        away = flow(state="DEGRADED", reason="no", flow="B->A", guarantee="")
        log.second(flow(state="STARTING", guarantee=""), away)
    assert log.lines == []


def test_a_degraded_flow_is_reported_immediately_and_at_most_once_a_minute() -> None:
    log = Log(once=False)
    log.second(flow(partition()))
    for second in range(300):
        state = ("DEGRADED", "RUNNING")[second % 2]
        log.second(flow(partition(), state=state, reason="B is away" if second % 2 == 0 else ""))
    assert log.lines[1] == "A->B: DEGRADED: B is away"
    assert log.lines[2] == "A->B: RUNNING again after 1.0 s"
    assert len(log.lines) <= 1 + 2 * 6


def test_an_ordinary_stop_is_not_worth_a_line() -> None:
    log = Log(once=False)
    for state in ("RUNNING", "STOPPING", "STOPPED"):
        log.second(flow(partition(), state=state))
    assert len(log.lines) == 1


def test_the_end_of_a_flow_that_had_trouble_is_no_return() -> None:
    log = Log(once=True)
    for state in ("RUNNING", "PARTLY_FAILED", "STOPPING", "PARTLY_FAILED", "STOPPED"):
        for _ in range(40):
            log.second(flow(partition(), state=state))
    assert [line for line in log.lines if "again" in line or "STOP" in line] == []


NOW_MS = 1_700_000_008_000


def shown(
    *flows: FlowSnapshot, rows: int = 20, width: int = 110, rates: Rates | None = None
) -> str:
    console = Console(file=io.StringIO(), width=width)
    topics = (rates or Rates()).update(0.0 if rates is None else 2.0, flows)
    console.print(mirror_view(list(flows), topics, rows, width, NOW_MS))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal_shows_every_topic_with_its_numbers() -> None:
    rates = Rates()
    rates.update(0.0, [flow(partition(records=200, copied=91_200, lag=1300))])
    good = partition(records=1200, copied=92_200, lag=300)
    text = shown(flow(good, partition("payments", state="FAILED", copied=5)), rates=rates)
    assert re.search(r"^A->B  RUNNING  since .* \(8\.0 s\)  exact  2 lanes  lag 300", text)
    (row,) = [line for line in text.splitlines() if line.startswith("  orders")]
    assert row.split()[2:] == ["92,200", "of", "92,500", "500", "0", "B/s", "300", "0.6", "s"]
    (row,) = [line for line in text.splitlines() if line.startswith("  payments")]
    assert row.split() == ["payments", "1", "FAILED", "at", "the", "end", "5", "0", "0", "B/s", "0"]


@pytest.mark.parametrize("width", [80, 120])
def test_bars_fit_the_terminal(width: int) -> None:
    many: dict[str, Any] = {"copied": 1_234_567_890, "lag": 1_234_567, "bytes": 10**12}
    text = shown(flow(partition("a-topic-with-a-long-name-of-forty-letters", **many)), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "1,234,567,890 of 1,235,802,457" in text
    assert ("━" in text) == (width == 120)


def test_a_start_reports_what_it_waits_for() -> None:
    assert "querying both clusters" in shown(flow(state="STARTING", lanes=0))
    assert "starting Spark for 1 topic" in shown(flow(partition(), state="STARTING", lanes=0))
    again = shown(flow(partition(), state="STARTING", lanes=2))
    assert ("starting Spark" in again, "resuming 1 topic" in again) == (False, True)


def test_records_are_those_of_the_copy_or_are_not_known() -> None:
    """If the number of copied records is unknown, it is shown as `?`. If the number of records that
    only this process has copied were shown, it would look as if the copy had lost records.
    """
    behind = partition(records=1951, copied=None, lag=None)
    (row,) = [line for line in shown(flow(behind)).splitlines() if line.startswith("  orders")]
    assert row.split() == ["orders", "?", "0", "0", "B/s", "?"]


def test_lag_of_an_outage_is_the_least_that_waits() -> None:
    """During an outage the source is not queried and may grow. So the shown lag is a lower
    bound.
    """
    waits = [
        partition(topic, state="RETRYING", lag=500, code="UNREACHABLE", message="B: no answer")
        for topic in ("orders", "payments")
    ]
    outage = {"state": "DEGRADED", "reason": "B: no answer", "code": "UNREACHABLE"}
    assert "lag at least 1,000 " in shown(flow(*waits, **outage))
    assert "lag 1,000 " in shown(flow(*(partition(one, lag=500) for one in ("a", "b"))))


def test_a_partition_whose_end_is_unknown_is_not_shown_at_its_end() -> None:
    away = partition(state="RETRYING", lag=0, code="UNREACHABLE", message="A: no answer")
    seen = shown(flow(away, state="DEGRADED", reason="A: no answer"))
    assert ("retrying" in seen, "at the end" in seen) == (True, False)


def test_events_are_reported_once() -> None:
    lines: list[str] = []
    events = EventLines(lines.append)
    first = flow(partition(), state="STANDBY", generation=None, reason="it runs on east-1")
    leads = flow(partition())
    more = flow(partition(), *(partition("audit", number) for number in range(3)))
    gone = flow(partition(), partition("old", state="RELEASED"), *more.partitions[1:])
    for each in (first, first, leads, leads, flow(), more, more, gone):
        events.update([each])
    assert lines == [
        "A->B: this process leads it now; before: it runs on east-1",
        "A->B: new topic audit, 3 partitions",
    ]


@pytest.mark.parametrize("rows", [1, 5])
def test_topics_that_do_not_fit_are_counted_and_the_longest_lag_stays(rows: int) -> None:
    parts = [partition(f"t{n}", lag=n) for n in range(40)]
    text = shown(flow(*parts), rows=rows)
    assert "t39" in text
    assert "t0 " not in text
    shown_rows = max(rows - 1, 1)
    assert f"and {40 - shown_rows} more topics" in text


def test_the_reason_of_a_degraded_flow_is_shown() -> None:
    assert "cluster B: no broker" in shown(flow(state="DEGRADED", reason="cluster B: no broker"))


def test_a_standby_shows_itself_as_such() -> None:
    seen = shown(flow(state="STANDBY", generation=None, reason="east-1 leads it", lanes=0))
    first, second, *_ = seen.splitlines()
    assert first.startswith("A->B  STANDBY  since ")
    assert second == "  east-1 leads it; this process is on standby"


def test_the_end_of_each_outage_is_on_the_screen_with_its_length() -> None:
    console = Console(file=io.StringIO(), width=100)
    now = 0.0
    bars = BarProgress(console, clock=lambda: now)
    for at, state in (
        (0, "RUNNING"),
        *((10, "DEGRADED"), (14, "FAILED"), (20, "STARTING"), (26, "RUNNING")),
        *((30, "DEGRADED"), (34, "RUNNING"), (40, "RUNNING")),
    ):
        now = float(at)
        bars.update([flow(partition(), state=state)])
    assert isinstance(console.file, io.StringIO)
    said = [line[9:] for line in console.file.getvalue().splitlines()]
    assert said == ["A->B: RUNNING again after 16 s", "A->B: RUNNING again after 4.0 s"]


def test_a_standby_that_takes_over_is_not_reported_as_recovered() -> None:
    console = Console(file=io.StringIO(), width=100)
    bars = BarProgress(console)
    waits = flow(state="STANDBY", generation=None, reason="east-1 leads it", lanes=0)
    for each in (waits, waits, flow(partition())):
        bars.update([each])
    assert isinstance(console.file, io.StringIO)
    said = [line[9:] for line in console.file.getvalue().splitlines()]
    assert said == ["A->B: this process leads it now; before: east-1 leads it"]


def test_log_that_fills_its_disk_for_a_moment_is_written_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(io.StringIO):
        is_full = True

        def write(self, text: str) -> int:
            if self.is_full:
                raise OSError(28, "no space left")
            return super().write(text)

    stream = Full()
    monkeypatch.setattr(sys, "stderr", stream)
    write_while_it_is_read("lost", stream)
    stream.is_full = False
    write_while_it_is_read("kept", stream)
    assert stream.getvalue() == "kept\n"


@pytest.mark.parametrize("what", ["full disk", "closed pipe"])
def test_a_closed_stdout_ends_no_mirror(what: str, caplog: pytest.LogCaptureFixture) -> None:
    stream: TextIO
    if what == "full disk":
        stream = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    else:
        end, begin = os.pipe()
        os.close(end)
        stream = os.fdopen(begin, "w")
    with display(once=False, stream=stream) as progress:
        for name in ("A->B", "A->C", "A->D"):  # one line each
            progress.update([flow(partition(), flow=name)])
    (said,) = caplog.messages
    assert "the mirror continues" in said
    stream.close()  # closed as at the end of a process, where unwritten data is no failure
