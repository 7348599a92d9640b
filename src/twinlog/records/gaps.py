"""Offsets without a row: the reasons, and how they are reported.

These are losses. With `failOnDataLoss=false` each is a warning with the same text:

    RETENTION   [first, log start): deleted from the front by retention or DeleteRecords
    TRUNCATED   [log end, end): the log ends before offsets that were read or are to be read; its
                end was lost by an unclean election, or the topic was re-created, or the offsets
                were never written
    LOG_GAP     inside a log that is not compacted: a broker that finds no valid batch in a segment
                returns the next one

These are not losses. They are counted, and logged at INFO once for each range of a task:

    TRANSACTIONS   markers, and records of aborted transactions
    COMPACTION     offsets removed by the log cleaner

`cleanup.policy` of the topic decides whether a gap between two batches is LOG_GAP or COMPACTION.
The policy is queried when a gap is found, not when the read is planned. So a topic that became
compacted after the planning causes no false loss, and topics without gaps need no query. If the
user is not permitted to read the policy (DESCRIBE_CONFIGS), the gap counts as compaction, with a
warning. A gap inside a batch needs no query: brokers accept no batch with gaps from a producer, and
the checksum is right, so the log cleaner has written the batch. In message formats 0 and 1 gaps
cannot be detected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeVar

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, list_offsets
from twinlog.errors import (
    ClusterError,
    RecordsLost,
    TwinlogError,
    Unauthorized,
    Unsupported,
    or_raise,
)
from twinlog.model import TopicPartition
from twinlog.records.given import TOPIC_MISSING

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """The log start and the high watermark of one partition."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets [first, end) of one partition."""

    tp: TopicPartition
    first: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.first)


def log_bounds(
    client: ClusterClient, tps: Iterable[TopicPartition], *, may_miss: bool = False
) -> dict[TopicPartition, LogBounds]:
    """Return the log start and high watermark of each partition. Raises TwinlogError.

    `may_miss`: True to leave out missing partitions instead of raising an error.
    """
    wanted = list(tps)
    starts = all_answers(list_offsets(client, wanted, EARLIEST), may_miss=may_miss)
    ends = all_answers(list_offsets(client, list(starts), LATEST), may_miss=may_miss)
    return {tp: LogBounds(start=starts[tp].offset, end=end.offset) for tp, end in ends.items()}


def all_answers(
    answers: Mapping[TopicPartition, T | TwinlogError], *, may_miss: bool = False
) -> dict[TopicPartition, T]:
    """Return the responses. Raises the first error, because a partial read would look complete.

    `may_miss`: True to leave out missing partitions instead.
    """
    existing = {tp: answer for tp, answer in answers.items() if not (may_miss and is_gone(answer))}
    return {tp: or_raise(existing[tp]) for tp in sorted(existing)}


def is_gone(answer: object) -> bool:
    """Return True if the error is that the topic or the partition no longer exists."""
    return isinstance(answer, ClusterError) and answer.code == TOPIC_MISSING


def warn_of_gone(span: OffsetRange) -> None:
    """Warn that these offsets were deleted with their topic (with `failOnDataLoss=false`)."""
    log.warning("%s: offsets [%d, %d) were deleted with the topic", span.tp, span.first, span.end)


def find_losses(requested: OffsetRange, bounds: LogBounds) -> list[RecordsLost]:
    """Return the losses of a range: before the log start, after the log end, or both."""
    tp = requested.tp
    losses: list[RecordsLost] = []
    if requested.first < min(bounds.start, requested.end):
        lost = (requested.first, min(bounds.start, requested.end))
        losses.append(
            RecordsLost(
                f"{tp}: offsets [{lost[0]}, {lost[1]}) were deleted before they were read (the log "
                f"now starts at {bounds.start}). Check retention.ms and retention.bytes of the "
                "topic. failOnDataLoss=false reads the remaining records",
                code="RETENTION",
                lost=lost,
            )
        )
    if bounds.end < max(requested.first, requested.end):
        lost = (bounds.end, max(requested.first, requested.end))
        losses.append(
            RecordsLost(
                f"{tp}: offsets [{lost[0]}, {lost[1]}) do not exist, because the log ends at "
                f"{bounds.end}. They were never written, an unclean election lost them, or the "
                "topic was re-created. Compare the rows that were read with another copy of the "
                "topic. Then continue with failOnDataLoss=false or with other startingOffsets",
                code="TRUNCATED",
                lost=lost,
            )
        )
    return losses


def report(losses: Sequence[RecordsLost], *, fails: bool) -> None:
    """Raise the losses as one error or, unless `fails`, log each as a warning."""
    if not losses:
        return
    if fails:
        first, *others = losses
        text = "; and ".join([first.message, *map(str, others)])
        raise RecordsLost(text, code=first.code, lost=first.lost)
    for loss in losses:
        log.warning("%s", loss)


def existing_part(requested: OffsetRange, bounds: LogBounds) -> OffsetRange:
    """Return the part of a range that the log still has."""
    end = min(requested.end, bounds.end)
    first = min(max(requested.first, bounds.start), end)
    return OffsetRange(tp=requested.tp, first=first, end=end)


FEW_GAPS: Final = 10
"""Maximum number of gaps of a range that are reported one by one. All later gaps share one line,
because a topic that was once compacted may have a gap at each batch.
"""


class GapPolicy(Enum):
    """What `cleanup.policy` says about a gap between two batches."""

    COMPACTS = auto()
    DELETES = auto()
    HIDDEN = auto()
    """The policy is unknown because the user is not permitted to read it."""


@dataclass(slots=True)
class _MissingOffsets:
    """Number of missing offsets, all of which are in [first, end)."""

    offsets: int = 0
    first: int = 0
    end: int = 0

    def add(self, first: int, end: int, offsets: int | None = None) -> None:
        if not self.offsets:
            self.first = first
        self.end = end
        self.offsets += end - first if offsets is None else offsets


class GapCounter:
    """Counts the offsets of a range that have no row, in order, and logs the counts at its end."""

    def __init__(self, tp: TopicPartition, policy: Callable[[], GapPolicy], *, fails: bool) -> None:
        """`policy` is called once, when the first gap is found."""
        self._tp = tp
        self._ask = policy
        self._policy: GapPolicy | None = None
        self._fails = fails
        self._gaps = 0
        self._transactions, self._compacted = _MissingOffsets(), _MissingOffsets()
        self._hidden, self._more = _MissingOffsets(), _MissingOffsets()

    def in_transaction(self, first: int, end: int) -> None:
        """Count a transaction marker, or a batch of an aborted transaction."""
        self._transactions.add(first, end)

    def in_batch(self, first: int, end: int, offsets: int) -> None:
        """Count `offsets` missing offsets between `first` and `end` in a batch."""
        self._compacted.add(first, end, offsets)

    def between_batches(self, first: int, end: int, log_start: int) -> None:
        """Count or report offsets that are missing before the next batch. Raises TwinlogError."""
        gap = OffsetRange(tp=self._tp, first=first, end=end)
        # offsets below the current log start were deleted while the range was read; no gap
        rest = LogBounds(start=log_start, end=end)
        report(find_losses(gap, rest), fails=self._fails)
        gap = existing_part(gap, rest)
        if not gap.size:
            return
        if self._policy is None:
            self._policy = self._ask()
        match self._policy:
            case GapPolicy.COMPACTS:
                self._compacted.add(gap.first, gap.end)
            case GapPolicy.HIDDEN:
                self._hidden.add(gap.first, gap.end)
            case GapPolicy.DELETES:
                self._add_lost(gap)

    def _add_lost(self, gap: OffsetRange) -> None:
        self._gaps += 1
        if self._gaps > FEW_GAPS:
            self._more.add(gap.first, gap.end)
            return
        loss = RecordsLost(
            f"{gap.tp}: offsets [{gap.first}, {gap.end}) are missing inside the log, although the "
            "topic is not compacted. Either the topic was compacted earlier, or a segment of the "
            "leader is damaged. Compare the log with another replica (kafka-dump-log.sh). "
            "failOnDataLoss=false reads the remaining records: right if the topic was compacted",
            code="LOG_GAP",
            lost=(gap.first, gap.end),
        )
        report([loss], fails=self._fails)

    def log_counts(self) -> None:
        """Log the counted offsets by reason."""
        if (seen := self._transactions).offsets:
            log.info(
                "%s: no rows of %d offsets in [%d, %d): transaction markers, and records of "
                "aborted transactions [TRANSACTIONS]",
                *(self._tp, seen.offsets, seen.first, seen.end),
            )
        if (seen := self._compacted).offsets:
            log.info(
                "%s: no rows of %d offsets in [%d, %d): the topic was compacted [COMPACTION]",
                *(self._tp, seen.offsets, seen.first, seen.end),
            )
        if (seen := self._hidden).offsets:
            log.warning(
                "%s: no rows of %d offsets in [%d, %d): assumed to be compacted, but they may be "
                "lost. The user may not read the topic's cleanup.policy; grant DESCRIBE_CONFIGS on "
                "the topic [COMPACTION]",
                *(self._tp, seen.offsets, seen.first, seen.end),
            )
        if (seen := self._more).offsets:
            log.warning(
                "%s: %d more offsets in [%d, %d) are missing inside the log, in %d gaps [LOG_GAP]",
                *(self._tp, seen.offsets, seen.first, seen.end, self._gaps - FEW_GAPS),
            )


def cleanup_policy(client: ClusterClient, topic: str) -> GapPolicy:
    """Return the topic's cleanup policy. Raises TwinlogError if the query fails."""
    # loaded only if there is a gap, because it takes 40 ms
    from twinlog.cluster.topics.configs import describe_topic_configs

    try:
        configs = or_raise(describe_topic_configs(client, [topic])[topic])
    except (Unauthorized, Unsupported):
        return GapPolicy.HIDDEN
    policies = [config.value for config in configs if config.name == "cleanup.policy"]
    if not policies or policies[0] is None:
        return GapPolicy.HIDDEN
    return GapPolicy.COMPACTS if "compact" in policies[0] else GapPolicy.DELETES
