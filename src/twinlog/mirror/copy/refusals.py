"""What a target's error answers to a Produce request mean for a partition, by Kafka's numbers."""

from __future__ import annotations

from typing import Final

RETRIABLE_ERRORS: Final = frozenset({3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 56, 74, 75, 78, 100})
"""Leaders, ISR, time-outs, storage, unknown topic or id: the partition is looked at again, then
goes on or stops.
"""

REFUSALS: Final = {
    2: ("CORRUPT_BATCH", "the target says that the batch is corrupt"),
    10: ("RECORD_TOO_LARGE", "raise max.message.bytes of the target topic"),
    18: ("RECORD_TOO_LARGE", "raise segment.bytes of the target topic"),
    29: ("TOPIC_UNAUTHORIZED", "grant WRITE on topic {topic} of the target to our user"),
    31: ("CLUSTER_UNAUTHORIZED", "grant IDEMPOTENT_WRITE on the target cluster to our user"),
    32: (
        "RECORD_REFUSED",
        "its timestamp is outside message.timestamp.before/after.max.ms of the target topic",
    ),
    76: ("RECORD_REFUSED", "its codec is not known to the target"),
    87: ("RECORD_REFUSED", "a compacted target topic takes no record without a key"),
}
BROKEN_LOG: Final = frozenset({"GAP_WRITTEN", "EXTRA_RECORDS"})
UNDER_MIN_ISR: Final = frozenset({19, 20})
SEQUENCE_ERRORS: Final = frozenset({45, 46, 47, 59})
