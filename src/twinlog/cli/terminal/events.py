"""What happens to a mirror that is no trouble: new topics, topics that are gone, who leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twinlog.codes import NOT_MIRRORED, FlowState
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.quantities import first_few, plural

TOPICS_EACH = 3
"""More new topics than these at one moment share a line."""


class EventLines:
    """Remembers what was there."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._topics: dict[str, dict[str, bool]] = {}
        """By flow: whether each is gone."""
        self._waited: dict[str, str] = {}
        """Flows that another process led, with what was said of it."""

    def update(self, flows: Iterable[FlowSnapshot]) -> None:
        """Say what has changed."""
        for flow in flows:
            self._leads(flow)
            self._sees(flow)

    def _leads(self, flow: FlowSnapshot) -> None:
        if flow.state is FlowState.STANDBY:
            self._waited[flow.flow] = flow.reason
        elif flow.generation >= 0 and (before := self._waited.pop(flow.flow, None)) is not None:
            said = f"; before: {before}" if before else ""
            self._write(f"{flow.flow}: this process leads it now{said}")

    def _sees(self, flow: FlowSnapshot) -> None:
        now: dict[str, list[bool]] = {}
        for part in flow.partitions:
            now.setdefault(part.topic, []).append(part.state in NOT_MIRRORED)
        before = self._topics.get(flow.flow)
        if now:
            self._topics[flow.flow] = {topic: all(gone) for topic, gone in now.items()}
        if before is None or not now:
            return  # all of them are new, or it is set up again
        new = [topic for topic, gone in now.items() if topic not in before and not all(gone)]
        if len(new) > TOPICS_EACH:
            self._write(f"{flow.flow}: {plural(len(new), 'new topic')} ({first_few(new)})")
        for topic in new if len(new) <= TOPICS_EACH else ():
            number = plural(len(now[topic]), "partition")
            self._write(f"{flow.flow}: new topic {topic}, {number}")
