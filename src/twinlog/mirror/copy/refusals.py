"""What the error codes of Produce responses mean for a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.mirror.copy.intake import OutBatch
from twinlog.mirror.findings import LogFinding, Span
from twinlog.mirror.map.offset_map import Run, upstream_range
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import (
    BROKER_NOT_AVAILABLE,
    CLUSTER_AUTHORIZATION_FAILED,
    CORRUPT_MESSAGE,
    DUPLICATE_SEQUENCE_NUMBER,
    ERRORS,
    INVALID_PRODUCER_EPOCH,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    RECORD_LIST_TOO_LARGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_PRODUCER_ID,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from twinlog.wire.produce import ProducedPartition

REFUSALS: Final = {
    CORRUPT_MESSAGE: ("CORRUPT_BATCH", "the target reports the batch as corrupt"),
    MESSAGE_TOO_LARGE: ("RECORD_TOO_LARGE", "raise max.message.bytes of the target topic"),
    RECORD_LIST_TOO_LARGE: ("RECORD_TOO_LARGE", "raise segment.bytes of the target topic"),
    TOPIC_AUTHORIZATION_FAILED: (
        "TOPIC_UNAUTHORIZED",
        "grant WRITE on topic {topic} of the target to Twinlog's user",
    ),
    CLUSTER_AUTHORIZATION_FAILED: (
        "CLUSTER_UNAUTHORIZED",
        "grant IDEMPOTENT_WRITE on the target cluster to Twinlog's user",
    ),
    INVALID_TIMESTAMP: (
        "RECORD_REFUSED",
        "a timestamp is outside message.timestamp.before/after.max.ms of the target topic",
    ),
    UNSUPPORTED_COMPRESSION_TYPE: (
        "RECORD_REFUSED",
        "the target does not support the batch's compression codec",
    ),
    INVALID_RECORD: ("RECORD_REFUSED", "a compacted target topic rejects records without a key"),
}
RETRIABLE_ERRORS: Final = (
    frozenset(row.number for row in ERRORS.values() if row.retriable) | {BROKER_NOT_AVAILABLE}
) - REFUSALS.keys()
"""Error codes about leaders, ISR, time-outs, storage, and unknown topics or topic IDs. After such
an error, the partition is started again, and either resumes or stops with a code.
"""
BROKEN_LOG: Final = frozenset({"GAP_WRITTEN", "EXTRA_RECORDS"})
OF_A_BATCH: Final = frozenset({CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE})
"""Errors that concern a batch as a whole, not one of its records."""
UNDER_MIN_ISR: Final = frozenset({NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND})
SEQUENCE_ERRORS: Final = frozenset(
    {
        OUT_OF_ORDER_SEQUENCE_NUMBER,
        DUPLICATE_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH,
        UNKNOWN_PRODUCER_ID,
    }
)


def refusal(
    what: str, target: TopicPartition, batch: OutBatch, answer: ProducedPartition
) -> PartitionError:
    """Return the error of a partition whose batch was rejected. `what` describes the batch."""
    error, detail = answer.error, f" ({answer.message})" if answer.message else ""
    if error in SEQUENCE_ERRORS:
        return PartitionError(
            f"{what}: the target refused the sequence of ordinal {batch.ordinal}{detail}, because "
            "another writer was first or a response was lost; reading the log again",
            code="SEQUENCE_REFUSED",
            fate=Fate.RETRIABLE,
        )
    if error in REFUSALS:
        code, advice = REFUSALS[error]
        advice = advice.format(topic=target.topic)
        offsets = poison(batch, error, answer.record)
        if offsets is not None and offsets[0] != batch.upstream:
            what = f"{what} (its record {offsets[0]})"
        refused = PartitionError(f"{what} was refused by the target{detail}: {advice}", code=code)
        refused.poison = offsets
        return refused
    if error in UNDER_MIN_ISR:
        return PartitionError(
            f"{what}: the target has fewer in-sync replicas than min.insync.replicas{detail}; "
            "waiting until it has enough",
            code="TARGET_UNDER_MIN_ISR",
            fate=Fate.RETRIABLE,
        )
    fate = Fate.RETRIABLE if error in RETRIABLE_ERRORS else Fate.FATAL
    return PartitionError(
        f"{what}: the target returned error {error}{detail}", code="TARGET_REFUSED", fate=fate
    )


def unchecked_log_error(target: TopicPartition) -> PartitionError:
    """Return the error of a copy whose target log must be checked before old records are sent."""
    text = (
        f"{target}: requests of a lost lane may still arrive, and the next records are so old that "
        "the target may forget the flow's producer ID. It could then append a batch twice, so the "
        "remote partition's log is read first"
    )
    return PartitionError(text, code="HELD_BACK", fate=Fate.RETRIABLE)


def other_writer_error(target: TopicPartition, batch: OutBatch) -> PartitionError:
    """Return the error for a batch that another lane had written before this lane sent it."""
    return PartitionError(
        f"{target} at ordinal {batch.ordinal}: the target already had this batch, although this "
        "lane did not send it, so another lane of the flow also writes; reading the log again",
        code="OTHER_WRITER",
        fate=Fate.RETRIABLE,
    )


def gap_error(
    source: TopicPartition,
    target: TopicPartition,
    batch: OutBatch,
    begin: int,
    missing: int,
    runs: Sequence[Run],
) -> PartitionError:
    """Return the error for `missing` records before `batch`, which was expected at target offset
    `begin` and was appended below it. `runs`: the map's runs, which show the upstream offsets.
    """
    what = (
        f"{target} at ordinal {batch.ordinal}: {missing} records are missing before the batch that "
        f"was appended last. Target offsets {Span(begin - missing, begin)} hold later records, and "
        f"upstream records {upstream_range(runs, batch.ordinal - missing, missing)} of {source} "
        "are not on the target"
    )
    return LogFinding(code="GAP_WRITTEN", what=what, source=source, target=target).error()


def foreign_error(
    target: TopicPartition, batch: OutBatch, begin: int, count: int
) -> PartitionError:
    """Return the error for `count` records of another client at target offset `begin`, where
    `batch` was expected.
    """
    span = Span(begin, begin + count)
    what = (
        f"{target} at ordinal {batch.ordinal}: target offsets {span} hold {count} records that "
        "this flow did not write"
    )
    return LogFinding(code="EXTRA_RECORDS", what=what, target=target, span=span).error()


def poison(batch: OutBatch, error: int, record: int) -> tuple[int, int] | None:
    """Return the upstream offsets [first, next) of the records because of which the target rejects
    the batch.

    Return None if the rejection cannot be attributed to records. A batch that is too large is split
    first (`batch_sizes`).
    """
    if error in OF_A_BATCH:
        return batch.upstream, batch.upstream_next
    if error not in REFUSALS or error in (TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED):
        return None
    if batch.count == 1:
        return batch.upstream, batch.upstream + 1
    if not 0 <= record < batch.count or error in (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE):
        return None
    offset = batch.upstream_at(record)
    return offset, offset + 1


def unreadable_error(error: TwinlogError, tp: TopicPartition, position: int) -> TwinlogError:
    """Return the error for a source that cannot be read from a position on."""
    failure = PartitionError(
        f"{tp}: at or after upstream offset {position}: {error.message}",
        code=error.code,
        fate=error.fate,
    )
    failure.poison = error.poison
    return failure


def rank(error: PartitionError) -> int:
    """Return an error's severity: 2 if the target's log is wrong, 0 if it is retriable, else 1."""
    if error.code in BROKEN_LOG:
        return 2
    return 0 if error.fate is Fate.RETRIABLE else 1
