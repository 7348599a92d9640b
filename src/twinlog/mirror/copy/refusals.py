"""What a target's error answers to a Produce request mean for a partition."""

from __future__ import annotations

from typing import Final

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
"""Leaders, ISR, time-outs, storage, unknown topic or id: the partition is looked at again, then
goes on or stops.
"""
BROKEN_LOG: Final = frozenset({"GAP_WRITTEN", "EXTRA_RECORDS"})
UNDER_MIN_ISR: Final = frozenset({NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND})
SEQUENCE_ERRORS: Final = frozenset(
    {
        OUT_OF_ORDER_SEQUENCE_NUMBER,
        DUPLICATE_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH,
        UNKNOWN_PRODUCER_ID,
    }
)
