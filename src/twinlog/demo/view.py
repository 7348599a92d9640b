"""Output of the demo: a live table on a terminal, or else a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from twinlog.control.watch.rates import TopicRate
from twinlog.demo.checker import CheckState
from twinlog.quantities import count, duration, plural

PLAIN_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoState:
    phase: str
    hint: str = ""
    """Text with what the user can open or run next."""
    flow: str = ""
    flow_state: str = ""
    elapsed_s: float = 0.0
    produced: int = 0
    topics: tuple[TopicRate, ...] = ()
    check: CheckState = field(default_factory=CheckState)


DemoView = Callable[[DemoState], None]
"""A function that shows the current state of the demo."""


class PlainView:
    """Writes lines for a log: each new phase, and the state every five seconds."""

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._phase = self._hint = ""
        self._last = clock()

    def show(self, state: DemoState) -> None:
        now = self._clock()
        if state.hint != self._hint:
            self._hint = state.hint
            self._write(state.hint)
        if state.phase != self._phase:
            self._phase, self._last = state.phase, now
            self._write(state.phase)
        elif (state.topics or state.check.compared) and now - self._last >= PLAIN_EVERY_S:
            self._last = now
            for topic in state.topics:
                self._write(_topic_line(topic))
            self._write(check_text(state.check).plain)


def _topic_line(topic: TopicRate) -> str:
    return (
        f"  {topic.topic}: {count(topic.records_per_s)} records/s, "
        f"{topic.bytes_per_s / 1e6:.2f} MB/s, lag {count(topic.lag)} records, {_lag_s(topic)} s"
    )


def _lag_s(topic: TopicRate) -> str:
    return "?" if topic.lag_ms is None else f"{topic.lag_ms / 1000:.1f}"


def check_text(check: CheckState) -> Text:
    """Return the current result of the check, as one line."""
    if check.differences:
        first = check.differences[0]
        return Text.assemble(
            ("source and target DIFFER: ", "bold red"),
            f"{plural(len(check.differences), 'difference')}, the first: {first}",
        )
    if not check.compared:
        return Text("source and target: nothing to compare yet", style="dim")
    more = f", {count(check.on_the_way)} on the way" if check.on_the_way else ""
    return Text.assemble(
        ("source and target are identical: ", "green"),
        f"{count(check.compared)} records compared{more}",
    )


def demo_table(state: DemoState) -> RenderableType:
    """Return the table with heading and check, for a terminal."""
    heading = Text.assemble((state.phase, "bold"), f"\n{state.hint}" if state.hint else "")
    if not state.topics:
        # no rates, because another process leads the flow, or none does yet
        return Group(heading, check_text(state.check)) if state.check.compared else heading
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("topic")
    for name in ("copied", "records/s", "MB/s", "lag (records)", "lag (s)"):
        table.add_column(name, justify="right", no_wrap=True)
    for topic in state.topics:
        table.add_row(
            topic.topic,
            count(topic.records),
            count(topic.records_per_s),
            f"{topic.bytes_per_s / 1e6:.2f}",
            count(topic.lag),
            _lag_s(topic),
        )
    status = Text.assemble(
        (state.flow, "bold"),
        f"  {state.flow_state}  {duration(state.elapsed_s)}  {count(state.produced)} records "
        "produced",
    )
    return Group(heading, status, Text(), table, Text(), check_text(state.check))


@contextmanager
def view_on(stream: TextIO) -> Iterator[DemoView]:
    """Yield a live table if the stream is a terminal, or else a PlainView."""
    if not stream.isatty():

        def write(line: str) -> None:
            stream.write(f"{line}\n")
            stream.flush()

        yield PlainView(write).show
        return
    with Live(Text(""), console=Console(file=stream), refresh_per_second=4) as live:
        yield lambda state: live.update(demo_table(state))
