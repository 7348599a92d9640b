"""`twinlog status --watch`: the screen, refreshed every two seconds until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live

from twinlog.cli.terminal.status.rows import known_sum
from twinlog.cli.terminal.status.screen import ShownParts, screen
from twinlog.cli.terminal.tables import PIPED_WIDTH, text, write_all

EVERY_S: Final = 2.0
OTHER_LINES: Final = 10
"""Lines of a terminal that are not for topics."""

Mirrors = list[dict[str, Any]]


class Speeds:
    """Computes records per second of flows that no mirror on this machine runs."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], tuple[float, int]] = {}

    def fill_in(self, mirrors: Mirrors, now: float) -> None:
        """Fill in missing rates; `now` is monotonic."""
        seen: dict[tuple[str, str], tuple[float, int]] = {}
        for flow in (flow for one in mirrors for flow in one["flows"]):
            if flow.get("rates"):
                continue
            topics: dict[str, list[int]] = {}
            for part in flow["partitions"]:
                topics.setdefault(part["topic"], []).append(part.get("copied", -1))
            rates = {}
            for topic, numbers in topics.items():
                copied, key = known_sum(numbers), (flow["flow"], topic)
                at, before = self._before.get(key, (now, -1))
                if min(copied, before) >= 0 and now > at:
                    rates[topic] = max(0, copied - before) / (now - at)
                seen[key] = (now, copied)
            flow["rates"] = rates
        self._before = seen


def watch(read: Callable[[], Mirrors], *, lagging: bool, nothing: str) -> Mirrors:
    """Show what `read` returns until Ctrl-C, then return the last result.

    On a terminal an alternate screen is used, and the previous content is restored at the end.
    """
    speeds = Speeds()
    found: Mirrors = []

    def parts(width: int, most: int | None) -> Iterator[RenderableType]:
        now = datetime.now().astimezone()
        yield text(f"{now:%H:%M:%S}, every {EVERY_S:.0f} s; Ctrl-C ends it", style="dim")
        if not found:
            yield text(nothing)
        wanted = ShownParts(width=width, most_rows=most, lagging=lagging)
        yield from screen(found, wanted, int(time.time() * 1000))

    def step() -> None:
        found[:] = read()
        speeds.fill_in(found, time.monotonic())

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not sys.stdout.isatty():
            while True:
                step()
                write_all([*parts(PIPED_WIDTH, None), text()])
                time.sleep(EVERY_S)
        console = Console(file=sys.stdout, highlight=False)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            live.update(text("querying ..."), refresh=True)
            while True:
                step()
                most = max(1, console.height - OTHER_LINES)
                live.update(Group(*parts(console.width, most)), refresh=True)
                time.sleep(EVERY_S)
    except KeyboardInterrupt:
        return found
    finally:
        signal.signal(signal.SIGTERM, before)
