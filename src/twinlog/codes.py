"""Codes of partitions that mean more to the driver than to wait and try again."""

from __future__ import annotations

from typing import Final

STALE_PLAN: Final = frozenset(
    {"SOURCE_RECREATED", "TARGET_RECREATED", "TOPIC_MISSING", "RECORD_TOO_LARGE", "OTHER_WRITER"}
)
"""Troubles that a fresh look at both clusters may end: other topic ids, another
max.message.bytes, LogAppendTime.
"""

LOG_FINDINGS: Final = frozenset(
    {"GAP_WRITTEN", "EXTRA_RECORDS", "DIVERGED", "SOURCE_DIVERGED", "POSITION_REGRESSED"}
)
"""What a cold start may believe to see in two logs of which one grows while it looks."""
