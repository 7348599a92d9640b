"""Records that were asked for and are not in the log any more: why, and which.

    RETENTION   [first, log start): deleted from the front: retention, or somebody deleted records
    TRUNCATED   [log end, end): the log ends before what was read or is to be read; its end was
                lost by an unclean election, or the topic was created again, or nobody ever wrote it

What compaction and transactions leave out inside of a log is no loss, and is not reported.
`failOnDataLoss=false` makes a warning of each, with the same words.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, list_offsets
from twinlog.errors import RecordsLost, TwinlogError
from twinlog.model import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """Of one partition: the log start, and the high watermark."""

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
    client: ClusterClient, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, LogBounds]:
    """Log start and high watermark of each partition. Raises TwinlogError."""
    wanted = list(tps)
    if not wanted:
        return {}
    starts = all_answers(list_offsets(client, wanted, EARLIEST))
    ends = all_answers(list_offsets(client, wanted, LATEST))
    return {tp: LogBounds(start=starts[tp].offset, end=ends[tp].offset) for tp in wanted}


def all_answers(answers: Mapping[TopicPartition, T | TwinlogError]) -> dict[TopicPartition, T]:
    """Raises the first error, where there is one: a part of a read looks like all of it."""
    out: dict[TopicPartition, T] = {}
    for tp in sorted(answers):
        answer = answers[tp]
        if isinstance(answer, TwinlogError):
            raise answer
        out[tp] = answer
    return out


def find_loss(wanted: OffsetRange, bounds: LogBounds) -> RecordsLost | None:
    """What of these offsets the log does not have any more; at most one of both can be."""
    tp = wanted.tp
    if wanted.first < min(bounds.start, wanted.end):
        lost = (wanted.first, min(bounds.start, wanted.end))
        return RecordsLost(
            f"{tp}: offsets [{lost[0]}, {lost[1]}) were deleted before they were read, the log "
            f"starts at {bounds.start}: look at retention.ms and retention.bytes of the topic; "
            "failOnDataLoss=false reads what is left",
            code="RETENTION",
            lost=lost,
        )
    if bounds.end < max(wanted.first, wanted.end):
        lost = (bounds.end, max(wanted.first, wanted.end))
        return RecordsLost(
            f"{tp}: offsets [{lost[0]}, {lost[1]}) are not there, the log ends at {bounds.end}: "
            "they were never written, or an unclean election lost them, or the topic was "
            "re-created; compare what was read with another copy, then continue with "
            "failOnDataLoss=false or from other startingOffsets",
            code="TRUNCATED",
            lost=lost,
        )
    return None


def report(loss: RecordsLost | None, *, fails: bool) -> None:
    """Raise it, or say it where the reader is to continue with what is left."""
    if loss is None:
        return
    if fails:
        raise loss
    log.warning("%s", loss)


def what_is_left(wanted: OffsetRange, bounds: LogBounds) -> OffsetRange:
    """The part of a range that the log still has."""
    end = min(wanted.end, bounds.end)
    first = min(max(wanted.first, bounds.start), end)
    return OffsetRange(tp=wanted.tp, first=first, end=end)
