"""Watches for other writers to a shared target topic, and for new source records after a take-over.

Other Twinlog flows may write to the topic. Their records are normal and need not be read one by
one. Records of an unknown client end the copy. Batch headers show the writer. If a copy is idle,
the watch reads the headers after this flow's last record. If a batch of this flow was appended at a
higher offset than expected, the watch reads the headers before that batch (`OtherWriters.unknown`).

A batch of this flow's own producer ID that repeats records is not foreign. It is a late request
that arrived after the target had forgotten the ID (`EXTRA_RECORDS`).

The watch does not determine the cause. It gives the partition back to the driver with a retriable
TAKEN_OVER, and the next cold start finds the cause.

If other Twinlog flows write, a check reads a few megabytes and skips the rest, because they may
write any amount. An unknown client that occasionally writes among them is found by one of the next
checks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.cluster.logs.offsets import LATEST, list_offsets, log_ends
from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.lane.lane_partition import LaneEvents
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.background import JobKind
from twinlog.lane.sides.log_view import ClusterLogView
from twinlog.mirror.copy.partition import CopyState, PartitionCopy
from twinlog.mirror.findings import LogFinding, Span
from twinlog.mirror.plan import FOREVER
from twinlog.mirror.start.our_end import Headers, is_foreign
from twinlog.model import Isolation, TopicPartition, sequence_of, sequences_ahead
from twinlog.wire.record_batch import BatchHeader

log = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 2.0
ASK_S: Final = 5.0
"""Timeout of a query, in seconds. It is short, because the next check is due soon anyway."""
MOST_READS: Final = 4
"""Maximum fetches of about 1 MB per check and partition."""


class Writers(NamedTuple):
    """Who wrote to a target partition between two offsets, as far as the log was read."""

    end: int
    """The log's end at the check, or the high watermark if it is lower, because reads end there."""
    first_unknown: int | None
    """Offset of the first record that no Twinlog flow wrote, or None."""
    other_flow_wrote: bool
    """True if another Twinlog flow wrote between the two offsets."""
    repeat: Span | None = None
    """Target offsets of records that repeat earlier ones of this flow, or None if there are
    none.
    """


class _Check(NamedTuple):
    """A copy whose target log is checked, with its positions when the check began."""

    copy: PartitionCopy
    span: Span
    acked: int
    ordinal: int
    """Ordinal (number of records that the flow wrote before) of this copy's first record that may
    be in `span`, the target offsets to check.
    """
    producer_id: int

    def is_repeat(self, header: BatchHeader) -> bool:
        """Return True if the batch with this header is of this flow and repeats earlier records."""
        if header.magic < 2 or header.is_control or header.producer_id != self.producer_id:
            return False
        return sequences_ahead(header.base_sequence, sequence_of(self.ordinal)) < 0


@dataclass(slots=True, kw_only=True)
class ForeignRecordWatch:
    """Checks the partitions of one lane, in the background."""

    ports: LanePorts
    isolation: Isolation
    known_producers: frozenset[int]
    """Producer IDs of all Twinlog flows, including this flow's."""
    events: LaneEvents
    _next: float = 0.0
    _to_recheck: set[PartitionCopy] = field(default_factory=set)
    _is_checking: bool = False

    def require_recheck(self, copy: PartitionCopy) -> None:
        """Check this copy in the next poll, because foreign records are between its last two
        batches, and it sends nothing until their writer is known.
        """
        self._to_recheck.add(copy)

    def poll(self, copies: Iterable[PartitionCopy]) -> None:
        """Begin a check if one is due. Called on every turn."""
        now = self.ports.clock.monotonic()
        if self._is_checking or (now < self._next and not self._to_recheck):
            return
        to_recheck, self._to_recheck = self._to_recheck, set()
        asked = [c for c in to_recheck if c.trouble is None and c.others.unknown is not None]
        whole: list[PartitionCopy] = []
        if now >= self._next:
            self._next = now + CHECK_EVERY_S
            whole = [c for c in copies if c.trouble is None]
            asked += [c for c in whole if c.others.unknown is None and _is_watched(c)]
        taken = [c for c in whole if c.state is CopyState.TAKEN_OVER]
        ended = {c.source: c.acked_upstream for c in taken}
        if asked or ended:
            self._begin([self._check_of(copy) for copy in asked], ended, taken)

    def _check_of(self, copy: PartitionCopy) -> _Check:
        span, ordinal = copy.others.unknown, copy.others.ordinal
        if span is None:
            begin = max(copy.others.passed, copy.acked_downstream)
            span, ordinal = Span(begin, FOREVER), copy.acked_ordinal
        return _Check(copy, span, copy.acked_downstream, ordinal, copy.tail.producer_id)

    def _begin(
        self,
        checks: list[_Check],
        ended: dict[TopicPartition, int],
        taken: list[PartitionCopy],
    ) -> None:
        self._is_checking = True

        def on_checked(found: tuple[dict[TopicPartition, Writers], set[TopicPartition]]) -> None:
            self._is_checking = False
            writers, continues = found
            for one in checks:
                if (what := writers.get(one.copy.target)) is not None:
                    self._learn(one, what)
                elif one.copy.others.unknown is not None:
                    self._to_recheck.add(one.copy)
            for copy in taken:
                if copy.source in continues:
                    copy.trouble = copy.trouble or _taken_over_error(
                        f"{copy.source}: other clients have ended the copy, but the source has "
                        f"new records from upstream offset {ended[copy.source]} on"
                    )

        def on_failed(error: TwinlogError) -> None:
            self._is_checking = False
            self._to_recheck.update(
                check.copy for check in checks if check.copy.others.unknown is not None
            )
            log.debug("the check for other writers failed error=%s", error)

        by_target = {check.copy.target: check for check in checks}
        self.ports.background.submit(
            JobKind.WATCH, lambda: self._check(by_target, ended), on_checked, on_failed
        )

    def _learn(self, check: _Check, writers: Writers) -> None:
        copy = check.copy
        if (repeat := writers.repeat) is not None:
            what = f"{copy.target}: records of this flow are repeated at offsets {repeat}"
            finding = LogFinding(code="EXTRA_RECORDS", what=what, target=copy.target, span=repeat)
            copy.trouble = copy.trouble or finding.error()
            return
        # the check says nothing about records after the span's end, because they were not read
        seen = min(writers.end, check.span.next)
        copy.others.passed = max(seen, copy.others.passed)
        copy.others.has_other_flow |= writers.other_flow_wrote
        if writers.first_unknown is not None:
            is_still = copy.acked_downstream == check.acked
            if is_still or copy.others.has_other_flow or copy.others.unknown is not None:
                copy.trouble = copy.trouble or _taken_over_error(
                    f"{copy.target}: other clients wrote at target offset {writers.first_unknown}"
                )
        elif copy.others.unknown == check.span and writers.end >= check.span.next:
            copy.others.unknown = None
            self.events.on_writer_known(copy)
        elif copy.others.unknown is not None:
            # the span has grown in the meantime, or some of its records cannot be read yet
            self._to_recheck.add(copy)
        if copy.is_idle and copy.acked_downstream == check.acked and not copy.late_requests:
            copy.others.reach = max(copy.others.reach, writers.end)

    def _check(
        self, checks: dict[TopicPartition, _Check], ended: dict[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, Writers], set[TopicPartition]]:
        writers: dict[TopicPartition, Writers] = {}
        if checks:
            with self.ports.target.borrowed_client() as client:
                view = ClusterLogView(client)
                for tp, end in log_ends(client, checks, timeout_s=ASK_S).items():
                    if isinstance(end, TwinlogError):
                        continue  # skipped, because the next write shows the partition's problem
                    writers[tp] = self._writers_of(view, checks[tp], end.end_offset)
        if not ended:
            return writers, set()
        isolation = self.isolation
        with self.ports.source.borrowed_client() as client:
            ends = list_offsets(client, ended, LATEST, isolation=isolation, timeout_s=ASK_S)
        return writers, {
            tp
            for tp, found in ends.items()
            if not isinstance(found, TwinlogError) and found.offset > ended[tp]
        }

    def _writers_of(self, view: ClusterLogView, check: _Check, end: int) -> Writers:
        other_flow_wrote, span = False, check.span
        headers = Headers(view, check.copy.target, span.first, min(span.next, end))
        for header in headers:
            if check.is_repeat(header):
                repeat = Span(header.base_offset, header.next_offset)
                return Writers(end, None, other_flow_wrote, repeat)
            if is_foreign(header, self.known_producers):
                return Writers(end, max(header.base_offset, span.first), other_flow_wrote)
            other_flow_wrote |= header.producer_id != check.producer_id
            if headers.reads > MOST_READS:
                break
        if headers.reads:
            end = min(end, headers.high_watermark)
        return Writers(end, None, other_flow_wrote)


def _is_watched(copy: PartitionCopy) -> bool:
    """Return True if a copy must be checked regularly: it is idle, or another flow writes, too, so
    that responses cannot show whether an unknown client writes as well.
    """
    return copy.is_idle or (copy.others.has_other_flow and copy.state is CopyState.COPYING)


def _taken_over_error(what: str) -> PartitionError:
    return PartitionError(f"{what}; checking again", code="TAKEN_OVER", fate=Fate.RETRIABLE)
