"""Results of verifications of a flow, as rows of the state topic.

    key    ["flow", FLOW, "verified", "whole" | "part"]
    value  {"v": 1, "began_ms": ..., "who": ..., "answer": ..., "counts": {...}, ...}

The result for a part of the flow does not replace the result for the whole flow. These rows are
only displayed, so a row that cannot be read is ignored. Earlier releases ignore this kind of row,
like every kind that they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twinlog.errors import CorruptData
from twinlog.mirror.state.state_row import Rows, StateRow, read_row, row, row_key

VERIFIED: Final = "verified"
_WHOLE, _PART = "whole", "part"


@row(VERIFIED)
class VerifyRun(StateRow, frozen=True, kw_only=True):
    """One completed verification."""

    began_ms: int
    """Time in ms since 1970. Both logs were compared up to the ends that they had at this time."""
    ended_ms: int
    who: str
    answer: str
    """The result: `identical`, `different` or `not compared`."""
    topics: str | None
    """Regular expression of the verified topics, or None for all topics."""
    since: str | None
    """Lower bound of the source records' timestamps, as requested, or None."""
    until: str | None
    deep: bool
    partitions: int
    equal_records: int
    ranges: Mapping[str, int]
    """Number of differing ranges by kind: missing, extra, ..."""
    not_compared: int
    """Number of partitions that could not be read, in whole or in part."""
    configs: int
    """Number of differing configs."""
    groups: int
    """Number of group offsets with which a group would skip records."""
    sha256: str
    """Digest of the flow's part of the report, computed like the report's own digest."""

    @property
    def is_whole(self) -> bool:
        """Whether the verification covers all topics and the whole of their logs."""
        return self.topics is None and self.since is None and self.until is None

    def is_outdated_by(self, other: VerifyRun) -> bool:
        """Return True if the verification `other`, whose row exists in the topic, began later.

        If `other` seems to have begun after this verification ended, the clock of its host is
        ahead. Then return False, so that this verification replaces it.
        """
        return self.began_ms < other.began_ms <= self.ended_ms

    @property
    def row_kind(self) -> tuple[str, ...]:
        return VERIFIED, _WHOLE if self.is_whole else _PART


def verify_runs(flow: str, rows: Rows) -> tuple[VerifyRun, ...]:
    """Return the last verification of the whole flow and the last one of a part of it, as far as
    there are any. The newer one is first. Rows that cannot be read are ignored.

    `rows` are (key, value) in log order.
    """
    wanted = {row_key("flow", flow, VERIFIED, part) for part in (_WHOLE, _PART)}
    runs: dict[bytes, VerifyRun] = {}
    for key, value in rows:
        if key not in wanted:
            continue
        if value is None:
            runs.pop(key, None)
            continue
        try:
            parts, fields = read_row(key, value)
            run = VerifyRun.decode(parts[:3], fields)
        except CorruptData:
            continue
        if key not in runs or not run.is_outdated_by(runs[key]):
            runs[key] = run
    return tuple(sorted(runs.values(), key=lambda run: run.began_ms, reverse=True))
