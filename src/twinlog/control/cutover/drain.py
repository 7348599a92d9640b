"""Waits until the running mirror has copied everything below the fence: in every partition the last
stable offset is the end of the log, and nothing below it is missing on the target.

Records that the source deleted before they were copied are missing, too. The offset map has records
and no markers, so a log that starts after the copy may have lost only markers. The mirror's status
row decides, because it lists the records that the mirror lacks. A row is evidence if the mirror has
queried every log end of the source after the deletion was seen here, because the log has not
grown after that (`fence_proof`). Two times by the mirror's clock are compared: the row's recovery
point, and the time of the second row after the deletion was seen. That row is the first one that
the mirror certainly began after the deletion.

It only reads. If no mirror leads the flow, it fails within seconds, because no record is copied.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from twinlog.cluster.logs.offsets import LATEST, list_offsets
from twinlog.control.cutover.copies import Copy, copies, incomplete
from twinlog.control.cutover.fence_proof import Ends
from twinlog.control.cutover.newest_status import newest_status
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.errors import FlowError, or_raise
from twinlog.model import TopicPartition
from twinlog.quantities import count, first_few, plural, total
from twinlog.survey.open_transactions import open_transactions

POLL_S: Final = 0.2
SAID_EVERY_S: Final = 5.0
WITHOUT_MIRROR_S: Final = 15.0
"""Seconds without a leader after which it fails. Another process needs less to take the lead."""
ROW_WITHIN_S: Final = 30.0
"""Seconds to wait for a status row. By default the mirror writes one every 5 s."""
ROWS_AFTER: Final = 2
"""Number of rows to wait for. The first row that is read after the deletion may have been written
before it."""


class Drain:
    """Waits until a scope is copied up to the ends that its fence has proved."""

    def __init__(self, scope: CutoverScope, ends: Ends, *, accepts_loss: bool = False) -> None:
        """`accepts_loss`: continue without records that the source deleted before their copy."""
        self._scope = scope
        self._ends = ends
        self._accepts_loss = accepts_loss
        self._row_within_s = ROW_WITHIN_S
        self._rows_ms: list[int] = []
        """Times of the status rows that were read after a deletion was detected."""

    def wait(self, say: Say, *, within_s: float) -> list[Copy]:
        """Return the copies, once each is complete. Raises FlowError if that takes too long:
        NOT_DRAINED names the missing records and the reason, SOURCE_TRUNCATED the deleted offsets.
        """
        began = last_said = last_led = whole_since = time.monotonic()
        while True:
            missing, found = self._missing(), copies(self._scope)
            left, lost = self._incomplete(found), self._lost(found)
            if not (missing or left or lost):
                records = sum(self._ends.values())
                say(
                    f"{plural(len(found), 'partition')} complete up to the last stable offset "
                    f"({count(records)} offsets)"
                )
                return found
            now = time.monotonic()
            if lost and now - whole_since > self._row_within_s:
                raise self._truncated(lost)
            whole_since = whole_since if lost else now
            if self._scope.is_led():
                last_led = now
            if now - last_led > WITHOUT_MIRROR_S:
                raise self._not_drained(missing, left, is_led=False)
            if now - began > within_s:
                raise self._not_drained(missing, left, is_led=True)
            if now - last_said > SAID_EVERY_S:
                last_said = now
                records = total(one.left for one in left) or 0
                say(f"{plural(len(left), 'partition')} left, {count(records)} records")
            time.sleep(POLL_S)

    def is_over(self) -> bool:
        """Return True if no record is missing now."""
        found = copies(self._scope)
        return not (self._missing() or self._incomplete(found) or self._lost(found))

    def _incomplete(self, found: Sequence[Copy]) -> list[Copy]:
        return incomplete(self._scope, found, self._ends)

    def _lost(self, found: Sequence[Copy]) -> list[Copy]:
        """Return the copies for which the source has, or may have, deleted records before they were
        copied."""
        deleted = [one for one in found if one.deleted and not one.unlisted]
        if not deleted or self._accepts_loss:
            return []
        newest = newest_status(self._scope)
        at_ms = -1
        if newest.status is not None:
            at_ms = newest.status.at_ms
            intervals_s = 2 * (ROWS_AFTER + 1) * newest.status.every_ms / 1000
            self._row_within_s = max(ROW_WITHIN_S, intervals_s)
        if at_ms not in self._rows_ms:
            self._rows_ms.append(at_ms)
        recovery_ms, is_early = newest.recovery_ms, len(self._rows_ms) <= ROWS_AFTER
        if is_early or recovery_ms is None or recovery_ms < self._rows_ms[ROWS_AFTER]:
            return deleted
        return [one for one in deleted if newest.missing(one.source, one.copied_to) != 0]

    def _truncated(self, lost: Sequence[Copy]) -> FlowError:
        what = first_few(f"{one.source} {one.deleted}" for one in lost)
        return FlowError(
            f"the source deleted records before they were copied ({what}): they are on neither "
            "side, and nothing was promoted; remove the fence with twinlog switchover abort, "
            "or continue without them with --accept copy",
            flow=self._scope.name,
            code="SOURCE_TRUNCATED",
        )

    def _missing(self) -> dict[TopicPartition, int]:
        """Return the partitions whose end for readers (the last stable offset, or the high
        watermark if the flow reads uncommitted records) is before the log's end, and by how much.
        """
        if not self._ends:
            return {}
        isolation = self._scope.config.isolation_level
        stable = list_offsets(self._scope.source, list(self._ends), LATEST, isolation=isolation)
        open_records = {tp: self._ends[tp] - or_raise(one).offset for tp, one in stable.items()}
        return {tp: count for tp, count in open_records.items() if count > 0}

    def _not_drained(
        self, missing: Mapping[TopicPartition, int], left: Sequence[Copy], *, is_led: bool
    ) -> FlowError:
        why = [f"{one.source} by {one.left}" for one in left]
        text = f"records are missing on the target ({first_few(why)})" if why else ""
        if missing:
            waits = f"replicas of the source are behind the ends of {first_few(map(str, missing))}"
            if named := [*map(str, open_transactions(self._scope.source, list(missing)))]:
                waits = f"transactions are open on the source ({first_few(named)})"
            text = f"{text}; {waits}" if text else waits
        todo = "twinlog status shows the cause"
        if not is_led:
            todo = "no mirror runs: start one with twinlog mirror FILE"
        return FlowError(
            f"{text}; {todo}; then run the same command again, or remove the "
            "fence with twinlog switchover abort",
            flow=self._scope.name,
            code="NOT_DRAINED",
        )
