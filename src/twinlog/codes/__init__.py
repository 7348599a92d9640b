"""What flows and partitions say of themselves: codes and states, each named once.

A code stands in brackets at the end of a message and is part of the interface. Read `condition.py`
(what is known of a code), then the tables: codes of a partition, of a flow, of this process, and
of warnings; then `states.py`. `page.py` makes docs/codes.md of all of it.

Codes are raised as plain strings where a trouble is found (`twinlog.errors`); a test compares
them with the tables. Nothing here imports anything of Twinlog, and no lane loads it.
"""

from __future__ import annotations

from twinlog.codes.catalogue import CONDITIONS
from twinlog.codes.condition import Condition, Retry
from twinlog.codes.partition_codes import (
    ANOTHER_TOPIC,
    CAN_BE_SKIPPED,
    LOG_FINDINGS,
    NO_OFFSETS,
    NOT_OURS,
    STALE_PLAN,
)
from twinlog.codes.states import FlowState, Guarantee, PartitionState

__all__ = [
    "ANOTHER_TOPIC",
    "CAN_BE_SKIPPED",
    "CONDITIONS",
    "LOG_FINDINGS",
    "NOT_OURS",
    "NO_OFFSETS",
    "STALE_PLAN",
    "Condition",
    "FlowState",
    "Guarantee",
    "PartitionState",
    "Retry",
]
