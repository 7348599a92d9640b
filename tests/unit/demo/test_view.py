"""The screen of the demo."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from twinlog.control.watch.rates import TopicRate
from twinlog.demo.checker import CheckState
from twinlog.demo.run import DemoResult
from twinlog.demo.view import DemoState, PlainView, demo_table

ORDERS = TopicRate(
    flow="eu->us",
    topic="orders",
    partitions=4,
    failed=0,
    records=1200,
    bytes=240_000,
    lag=15,
    lag_ms=1_234,
    records_per_s=220.0,
    bytes_per_s=1_250_000.0,
)
MIRRORING = DemoState(
    phase="Mirroring",
    flow="eu->us",
    flow_state="RUNNING",
    elapsed_s=12.0,
    produced=1215,
    topics=(ORDERS,),
    check=CheckState(compared=1200, on_the_way=15),
)


def picture(state: DemoState) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=120).print(demo_table(state))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_the_picture_has_every_number() -> None:
    lines = picture(MIRRORING)
    assert "eu->us RUNNING 12 s 1,215 records produced" in lines
    assert "topic copied records/s MB/s lag (records) lag (s)" in lines
    assert "orders 1,200 220 1.25 15 1.2" in lines
    assert lines[-1] == "source and target are identical: 1,200 records compared, 15 on the way"


def test_hints_are_printed_once_in_lines_and_stay_on_the_screen() -> None:
    lines = list[str]()
    view = PlainView(lines.append, clock=lambda: 0.0)
    state = replace(MIRRORING, hint="http://127.0.0.1:1/page/ shows the state of all flows")
    for one in (DemoState(phase="Starting"), state, state):
        view.show(one)
    assert lines == ["Starting", state.hint, "Mirroring"]
    assert picture(state)[1] == state.hint


def test_a_user_with_an_own_mirror_sees_the_comparison() -> None:
    now, lines = [0.0], list[str]()
    view = PlainView(lines.append, clock=lambda: now[0])
    state = DemoState(phase="Waiting", check=CheckState(compared=9))
    for second in (0.0, 1.0, 6.0):
        now[0] = second
        view.show(state)
    assert lines == ["Waiting", "source and target are identical: 9 records compared"]
    assert picture(state) == lines


def test_a_difference_is_shown_with_its_place() -> None:
    check = CheckState(compared=9, differences=("orders-1: source offset 4 ... value",))
    state = DemoState(phase="Mirroring", topics=(ORDERS,), check=check)
    assert "source and target DIFFER: 1 difference, the first: orders-1" in picture(state)[-1]


def test_plain_lines_come_with_each_phase_and_every_five_seconds() -> None:
    now, lines = [0.0], list[str]()
    view = PlainView(lines.append, clock=lambda: now[0])
    for second in range(12):
        now[0] = float(second)
        view.show(MIRRORING)
    assert lines.count("Mirroring") == 1
    orders = "  orders: 220 records/s, 1.25 MB/s, lag 15 records, 1.2 s"
    assert lines.count(orders) == 2
    assert len(lines) == 5


def result(produced: int, check: CheckState) -> DemoResult:
    return DemoResult(produced=produced, check=check, seconds=1.0, was_stopped_early=False)


def test_identical_means_all_and_nothing_more() -> None:
    assert result(10, CheckState(compared=10)).is_identical
    assert not result(10, CheckState(compared=9, on_the_way=1)).is_identical
    assert not result(10, CheckState(compared=9)).is_identical
    assert not result(10, CheckState(compared=10, surplus=1)).is_identical
    assert not result(10, CheckState(compared=10, differences=("x",))).is_identical
