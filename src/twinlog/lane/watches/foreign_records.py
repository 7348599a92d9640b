"""What a lane with nothing to do would overlook: records of others in a target topic that is not
ours alone, and a source that goes on after its copy was taken over.

It looks every two seconds and decides nothing: what it sees ends the partition's stay on this lane
with a retriable TAKEN_OVER, and the cold start that follows finds out what that means.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics import admin
from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.lane.sides.background import Background, Kind
from twinlog.lane.sides.cluster_side import ClusterSide
from twinlog.lane.sides.log_view import ClusterLogView
from twinlog.mirror.copy.partition import CopyState, PartitionCopy
from twinlog.mirror.start.shared_topic import first_foreign
from twinlog.model import TopicPartition

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
ASK_S: Final = 5.0
"""Nobody waits for longer: the next look is due soon."""

Seen = dict[TopicPartition, PartitionError]


@dataclass(slots=True, kw_only=True)
class OthersWatch:
    """Looks at idle partitions of one lane, in the background."""

    source: ClusterSide
    target: ClusterSide
    background: Background
    read_committed: bool
    known_producers: frozenset[int]
    _next: float = 0.0
    _is_looking: bool = False
    _passed: dict[TopicPartition, int] = field(default_factory=dict)
    """Target offsets below which only flows of ours wrote."""

    def tend(self, copies: Iterable[PartitionCopy]) -> None:
        """Begin a look when one is due; called on every turn."""
        now = time.monotonic()
        if self._is_looking or now < self._next:
            return
        self._next = now + LOOK_S
        asked = [c for c in copies if c.trouble is None]
        idle = {c.target: c.acked_downstream for c in asked if c.is_idle}
        ended = {c.source: c.acked_upstream for c in asked if c.state is CopyState.TAKEN_OVER}
        self._passed = {tp: max(self._passed.get(tp, 0), end) for tp, end in idle.items()}
        if not idle and not ended:
            return
        self._is_looking = True

        def seen(found: Seen) -> None:
            self._is_looking = False
            for copy in asked:
                error = found.get(copy.source) or found.get(copy.target)
                still = copy.acked_downstream == idle.get(copy.target)
                if error is not None and (still or copy.source in ended):
                    copy.trouble = copy.trouble or error  # the loop gives it back

        def failed(error: TwinlogError) -> None:
            self._is_looking = False
            log.debug("a look at idle partitions failed error=%s", error)

        passed = dict(self._passed)
        self.background.submit(Kind.WATCH, lambda: self._look(passed, ended), seen, failed)

    def _look(self, passed: dict[TopicPartition, int], ended: dict[TopicPartition, int]) -> Seen:
        found: Seen = {}
        if passed:
            with self.target.borrowed() as client:
                found |= self._others(client, passed)
        if ended:
            with self.source.borrowed() as client:
                found |= self._new_at_source(client, ended)
        return found

    def _others(self, client: ClusterClient, passed: dict[TopicPartition, int]) -> Seen:
        found: Seen = {}
        view = ClusterLogView(client)
        for tp, end in admin.log_ends(client, passed, timeout_s=ASK_S).items():
            if isinstance(end, TwinlogError) or end.end_offset <= passed[tp]:
                continue  # what is wrong with a partition shows when it is written to
            foreign = first_foreign(view, tp, passed[tp], end.end_offset, self.known_producers)
            if foreign is None:
                self._passed[tp] = end.end_offset
            else:
                found[tp] = _taken_over(f"{tp}: others wrote at target offset {foreign}")
        return found

    def _new_at_source(self, client: ClusterClient, ended: dict[TopicPartition, int]) -> Seen:
        isolation = (
            admin.Isolation.READ_COMMITTED
            if self.read_committed
            else admin.Isolation.READ_UNCOMMITTED
        )
        ends = admin.list_offsets(client, ended, admin.LATEST, isolation=isolation, timeout_s=ASK_S)
        return {
            tp: _taken_over(f"{tp}: the source goes on at upstream offset {ended[tp]}")
            for tp, end in ends.items()
            if not isinstance(end, TwinlogError) and end.offset > ended[tp]
        }


def _taken_over(what: str) -> PartitionError:
    return PartitionError(f"{what}; looking again", code="TAKEN_OVER", fate=Fate.RETRIABLE)
