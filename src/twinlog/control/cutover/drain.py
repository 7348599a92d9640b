"""Waits until the running mirror has copied everything below the fence: in every partition the last
stable offset is the end of the log, and nothing below it is missing on the target.

It only reads. Where no mirror leads the flow nothing would ever come, and that is said at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from twinlog.cluster.logs.offsets import LATEST, list_offsets
from twinlog.control.cutover.copies import Copy, copies, is_complete
from twinlog.control.cutover.fence_proof import Ends
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.errors import FlowError, or_raise
from twinlog.model import Isolation, TopicPartition
from twinlog.quantities import count, first_few, plural
from twinlog.survey.open_transactions import open_transactions

POLL_S: Final = 0.2
SAID_EVERY_S: Final = 5.0
WITHOUT_MIRROR_S: Final = 15.0
"""Longer than another process needs to take the lead."""


class Drain:
    """Of one scope, up to the ends that its fence has proved."""

    def __init__(self, scope: CutoverScope, ends: Ends) -> None:
        self._scope = scope
        self._ends = ends

    def wait(self, say: Say, *, within_s: float) -> list[Copy]:
        """The copies, once each is complete. Raises FlowError (NOT_DRAINED) with what is missing,
        and why, where that does not come in time.
        """
        began = last_said = last_led = time.monotonic()
        while True:
            missing, found = self._missing(), copies(self._scope)
            left = [one for one in found if not self._is_complete(one)]
            if not (missing or left):
                records = sum(self._ends.values())
                say(
                    f"{plural(len(found), 'partition')} complete up to the last stable offset "
                    f"({count(records)} offsets)"
                )
                return found
            now = time.monotonic()
            if self._scope.is_led():
                last_led = now
            if now - last_led > WITHOUT_MIRROR_S:
                raise self._not_drained(missing, left, is_led=False)
            if now - began > within_s:
                raise self._not_drained(missing, left, is_led=True)
            if now - last_said > SAID_EVERY_S:
                last_said = now
                say(f"{plural(len(left), 'partition')} left, {count(_records(left))} records")
            time.sleep(POLL_S)

    def is_over(self) -> bool:
        """Whether nothing is missing now."""
        found = copies(self._scope)
        return not self._missing() and all(map(self._is_complete, found))

    def _is_complete(self, copy: Copy) -> bool:
        end = self._ends.get(copy.source, max(copy.source_end, 0))
        return is_complete(self._scope, copy, end)

    def _missing(self) -> dict[TopicPartition, int]:
        """Partitions whose last stable offset is before their end, and by how much."""
        if not (self._ends and self._scope.reads_committed):
            return {}
        stable = list_offsets(
            self._scope.source,
            list(self._ends),
            LATEST,
            isolation=Isolation.READ_COMMITTED,
        )
        open_records = {tp: self._ends[tp] - or_raise(one).offset for tp, one in stable.items()}
        return {tp: count for tp, count in open_records.items() if count > 0}

    def _not_drained(
        self, missing: Mapping[TopicPartition, int], left: Sequence[Copy], *, is_led: bool
    ) -> FlowError:
        why = [f"{one.source} by {one.left}" for one in left]
        text = f"records are missing on the target ({first_few(why)})" if why else ""
        if missing:
            named = map(str, open_transactions(self._scope.source, list(missing)))
            waits = f"transactions are open on the source ({first_few(named)})"
            text = f"{text}; {waits}" if text else waits
        todo = "twinlog status shows what holds it back"
        if not is_led:
            todo = "no mirror runs: start one with twinlog mirror FILE"
        return FlowError(
            f"{text}; {todo}; then give the same command again, or take the "
            "fence away with twinlog switchover abort",
            flow=self._scope.name,
            code="NOT_DRAINED",
        )


def _records(left: Sequence[Copy]) -> int:
    return sum(max(one.left, 0) for one in left)
