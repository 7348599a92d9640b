"""Tells of offsets that a source jumps over, in topics where every offset must be there.

A broker that finds no sound batch in a segment answers with the next segment: what lies between is
lost at the source, and looks as if it had been compacted. Nothing can bring it back by waiting,
so the copy goes on; but it is told, with the range. A topic that was compacted once and is not any
more looks the same, and so do brokers of other makers that keep their own records in the log: one
line in ten minutes for a partition, with the number of what else was missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.errors import TwinlogError
from twinlog.lane.messages import Gap
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.background import JobKind
from twinlog.lane.watches.compaction import may_lack_offsets
from twinlog.model import TopicPartition

log = logging.getLogger(__name__)

TOLD_AGAIN_S: Final = 600.0
HELD_S: Final = 5.0
"""A partition does not leave sooner, while it is not known whether there is something to tell."""


@dataclass(slots=True, kw_only=True)
class GapWatch:
    """What was jumped over in the partitions of one lane."""

    ports: LanePorts
    _seen: dict[TopicPartition, Gap] = field(default_factory=dict)
    _found: dict[TopicPartition, Gap] = field(default_factory=dict)
    _not_before: dict[TopicPartition, float] = field(default_factory=dict)
    _since: dict[TopicPartition, float] = field(default_factory=dict)
    _is_looking: bool = False

    def note(self, tp: TopicPartition, jumps: Iterable[tuple[int, int]]) -> None:
        """The answer of the source went on behind these offsets: [first, next)."""
        for first, following in jumps:
            before = self._seen.get(tp, Gap(first=first, next=following, offsets=0))
            self._seen[tp] = Gap(
                first=before.first,
                next=following,
                offsets=before.offsets + following - first,
            )
        self._since.setdefault(tp, self.ports.clock.monotonic())
        self.tend()

    def holds(self, tp: TopicPartition) -> bool:
        """It should stay for a moment: what was jumped over is being judged."""
        return self._is_due(tp) and self.ports.clock.monotonic() < self._since[tp] + HELD_S

    def tend(self) -> None:
        """Ask what was compacted when something is to be told; to be called about once a second."""
        due = {tp for tp in self._seen if self._is_due(tp)}
        if due and not self._is_looking:
            self._is_looking = True
            topics = {tp.topic for tp in due}
            self.ports.background.submit(
                JobKind.WATCH,
                lambda: self._look(topics),
                lambda compacted: self._on_known(due, compacted),
                self._on_failed,
            )

    def take(self, tp: TopicPartition) -> Gap | None:
        """What is to be told of this partition, once."""
        return self._found.pop(tp, None)

    def forget(self, tp: TopicPartition) -> None:
        """It is not here any more."""
        for each in (self._seen, self._found, self._not_before, self._since):
            each.pop(tp, None)

    def _is_due(self, tp: TopicPartition) -> bool:
        return tp in self._seen and self.ports.clock.monotonic() >= self._not_before.get(tp, 0.0)

    def _look(self, topics: set[str]) -> set[str]:
        with self.ports.source.borrowed() as client:
            return may_lack_offsets(client, topics)

    def _on_known(self, due: set[TopicPartition], compacted: set[str]) -> None:
        self._is_looking = False
        for tp in due:
            gap = self._seen.pop(tp, None)
            self._since.pop(tp, None)
            if gap is not None and tp.topic not in compacted:
                self._found[tp] = gap
            self._not_before[tp] = self.ports.clock.monotonic() + TOLD_AGAIN_S

    def _on_failed(self, error: TwinlogError) -> None:
        self._is_looking = False
        for tp in self._seen:
            self._not_before[tp] = self.ports.clock.monotonic() + 1
        log.debug("it is not known which topics are compacted error=%s", error)
