"""What a target's error answers to a Produce request mean for a partition."""

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

REFUSALS: Final = {
    CORRUPT_MESSAGE: ("CORRUPT_BATCH", "the target says that the batch is corrupt"),
    MESSAGE_TOO_LARGE: ("RECORD_TOO_LARGE", "raise max.message.bytes of the target topic"),
    RECORD_LIST_TOO_LARGE: ("RECORD_TOO_LARGE", "raise segment.bytes of the target topic"),
    TOPIC_AUTHORIZATION_FAILED: (
        "TOPIC_UNAUTHORIZED",
        "grant WRITE on topic {topic} of the target to our user",
    ),
    CLUSTER_AUTHORIZATION_FAILED: (
        "CLUSTER_UNAUTHORIZED",
        "grant IDEMPOTENT_WRITE on the target cluster to our user",
    ),
    INVALID_TIMESTAMP: (
        "RECORD_REFUSED",
        "its timestamp is outside message.timestamp.before/after.max.ms of the target topic",
    ),
    UNSUPPORTED_COMPRESSION_TYPE: ("RECORD_REFUSED", "its codec is not known to the target"),
    INVALID_RECORD: ("RECORD_REFUSED", "a compacted target topic takes no record without a key"),
}
RETRIABLE_ERRORS: Final = (
    frozenset(row.number for row in ERRORS.values() if row.retriable) | {BROKER_NOT_AVAILABLE}
) - REFUSALS.keys()
"""Leaders, ISR, time-outs, storage, unknown topic or id: the partition is checked again, then
continues or stops.
"""
BROKEN_LOG: Final = frozenset({"GAP_WRITTEN", "EXTRA_RECORDS"})
OF_A_BATCH: Final = frozenset({CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE})
"""What is wrong with a batch as a whole."""
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
    what: str,
    target: TopicPartition,
    batch: OutBatch,
    error: int,
    message: str | None,
    record: int,
) -> PartitionError:
    """The trouble of a partition whose batch, `what`, was answered with Kafka's `error`; `record`
    is the index of the record that the target names, -1 where it names none.
    """
    said = f" ({message})" if message else ""
    if error in SEQUENCE_ERRORS:
        return PartitionError(
            f"{what}: the target refused sequence of ordinal {batch.ordinal}: another writer was "
            f"there first, or an answer was lost{said}; the log is read again",
            code="SEQUENCE_REFUSED",
            fate=Fate.RETRIABLE,
        )
    if error in REFUSALS:
        code, advice = REFUSALS[error]
        advice = advice.format(topic=target.topic)
        found = poison(batch, error, record)
        if found is not None and found[0] != batch.upstream:
            what = f"{what}, record {found[0]} of it"
        refused = PartitionError(f"{what}: refused by the target{said}: {advice}", code=code)
        refused.poison = found
        return refused
    if error in UNDER_MIN_ISR:
        return PartitionError(
            f"{what}: the target has fewer in-sync replicas than min.insync.replicas{said}; "
            "waiting until it has enough",
            code="TARGET_UNDER_MIN_ISR",
            fate=Fate.RETRIABLE,
        )
    fate = Fate.RETRIABLE if error in RETRIABLE_ERRORS else Fate.FATAL
    return PartitionError(
        f"{what}: the target answered error {error}{said}", code="TARGET_REFUSED", fate=fate
    )


def unseen(target: TopicPartition) -> PartitionError:
    """What stands on the target now is not known: it is checked."""
    text = f"{target}: old records come next, and late requests of a lost lane may bring more"
    return PartitionError(f"{text}; the log is read", code="HELD_BACK", fate=Fate.RETRIABLE)


def other_writer(target: TopicPartition, batch: OutBatch) -> PartitionError:
    return PartitionError(
        f"{target} at ordinal {batch.ordinal}: the target had this batch already though "
        "this lane did not send it: another lane of the flow writes too; the log is read again",
        code="OTHER_WRITER",
        fate=Fate.RETRIABLE,
    )


def gap(
    source: TopicPartition,
    target: TopicPartition,
    batch: OutBatch,
    begin: int,
    missing: int,
    runs: Sequence[Run],
) -> PartitionError:
    """So many records are missing before a batch that should lie at `begin`."""
    what = (
        f"{target} at ordinal {batch.ordinal}: {missing} records are missing before the batch just "
        f"appended: target offsets {Span(begin - missing, begin)} hold later records; upstream "
        f"records {upstream_range(runs, batch.ordinal - missing, missing)} of {source} are not on "
        "the target"
    )
    return LogFinding(code="GAP_WRITTEN", what=what, source=source, target=target).error()


def foreign(target: TopicPartition, batch: OutBatch, begin: int, count: int) -> PartitionError:
    """Somebody else's records lie where a batch should be."""
    span = Span(begin, begin + count)
    what = (
        f"{target} at ordinal {batch.ordinal}: {count} records that this flow did not write lie at "
        f"target offsets {span}"
    )
    return LogFinding(code="EXTRA_RECORDS", what=what, target=target, span=span).error()


def poison(batch: OutBatch, error: int, record: int) -> tuple[int, int] | None:
    """[first, next) of the upstream offsets that the target will not take; None: that cannot be
    said of single records. A batch that is too large is cut first (`splitting`).
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


def unreadable(error: TwinlogError, tp: TopicPartition, position: int) -> TwinlogError:
    """Why the source cannot be read on behind a position."""
    failure = PartitionError(
        f"{tp}: from upstream offset {position}: {error.message}", code=error.code, fate=error.fate
    )
    failure.poison = error.poison
    return failure


def rank(error: PartitionError) -> int:
    """The worst of several troubles is the one to tell: a log that is wrong, then what trying
    again cannot mend.
    """
    if error.code in BROKEN_LOG:
        return 2
    return 0 if error.fate is Fate.RETRIABLE else 1
