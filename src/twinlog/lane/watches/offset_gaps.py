"""Reports offsets that a source skips, in topics in which every offset must exist.

A broker that finds no valid batch in the rest of a segment continues with the next segment. The
offsets that it passes over are lost at the source, and look as if they had been compacted. Waiting
does not bring them back, so the copy continues, and the range is reported. A topic that was
compacted in the past looks the same, and so do brokers of other vendors that keep their own records
in the log. So there is one log line per partition in ten minutes, with the number of missing
offsets since the last line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.topics.configs import may_lack_offsets
from twinlog.errors import TwinlogError
from twinlog.lane.messages import Gap
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.background import JobKind
from twinlog.model import TopicPartition

log = logging.getLogger(__name__)

REPORTED_AGAIN_S: Final = 600.0
HELD_S: Final = 5.0
"""Maximum time (seconds) for which a partition must stay in the lane until its skipped offsets are
checked.
"""


@dataclass(slots=True, kw_only=True)
class _JumpedOffsets:
    """Skipped offsets of one partition. Times are monotonic."""

    unchecked: Gap | None = None
    """Skipped offsets for which it is not known yet whether the topic is compacted, or None."""
    since: float = 0.0
    """When the first offset of `unchecked` was skipped."""
    to_report: Gap | None = None
    """Skipped offsets of a topic that is not compacted, until they are reported, or None."""
    not_before: float = 0.0
    """Earliest time at which `unchecked` can be checked."""

    def is_due(self, now: float) -> bool:
        return self.unchecked is not None and now >= self.not_before


@dataclass(slots=True, kw_only=True)
class GapWatch:
    """Collects, checks and reports skipped offsets in the partitions of one lane."""

    ports: LanePorts
    _jumped: dict[TopicPartition, _JumpedOffsets] = field(default_factory=dict)
    _is_checking: bool = False

    def note(self, tp: TopicPartition, jumps: Iterable[tuple[int, int]]) -> None:
        """Collect ranges [first, next) of upstream offsets for which the source returned no
        batch.
        """
        jumped = self._jumped.setdefault(tp, _JumpedOffsets())
        if jumped.unchecked is None:
            jumped.since = self.ports.clock.monotonic()
        for first, following in jumps:
            before = jumped.unchecked or Gap(first=first, next=following, offsets=0)
            jumped.unchecked = Gap(
                first=before.first,
                next=following,
                offsets=before.offsets + following - first,
            )
        self.poll()

    def must_stay(self, tp: TopicPartition) -> bool:
        """Return True if a partition must not leave the lane yet, because its skipped offsets are
        not checked.
        """
        jumped, now = self._jumped.get(tp), self.ports.clock.monotonic()
        return jumped is not None and jumped.is_due(now) and now < jumped.since + HELD_S

    def poll(self) -> None:
        """Begin a check of skipped offsets if one is due. Called about once a second."""
        now = self.ports.clock.monotonic()
        due = {tp for tp, jumped in self._jumped.items() if jumped.is_due(now)}
        if due and not self._is_checking:
            self._is_checking = True
            topics = {tp.topic for tp in due}
            self.ports.background.submit(
                JobKind.WATCH,
                lambda: self._check(topics),
                lambda compacted: self._on_known(due, compacted),
                self._on_failed,
            )

    def pop_gap(self, tp: TopicPartition) -> Gap | None:
        """Return the gap to report for this partition, or None. A gap is returned only once."""
        jumped = self._jumped.get(tp)
        if jumped is None:
            return None
        found, jumped.to_report = jumped.to_report, None
        return found

    def forget(self, tp: TopicPartition) -> None:
        """Remove a partition that left the lane."""
        self._jumped.pop(tp, None)

    def _check(self, topics: set[str]) -> set[str]:
        with self.ports.source.borrowed_client() as client:
            return may_lack_offsets(client, topics)

    def _on_known(self, due: set[TopicPartition], compacted: set[str]) -> None:
        self._is_checking = False
        not_before = self.ports.clock.monotonic() + REPORTED_AGAIN_S
        for tp in due & self._jumped.keys():
            jumped = self._jumped[tp]
            if tp.topic not in compacted:
                jumped.to_report = jumped.unchecked or jumped.to_report
            jumped.unchecked, jumped.not_before = None, not_before

    def _on_failed(self, error: TwinlogError) -> None:
        self._is_checking = False
        not_before = self.ports.clock.monotonic() + 1
        for jumped in self._jumped.values():
            if jumped.unchecked is not None:
                jumped.not_before = not_before
        log.debug("cannot determine which topics are compacted error=%s", error)
