"""Results of verifications of a flow, as rows of the state topic.

    key    ["flow", FLOW, "verified", "whole" | "part"]
    value  {"v": 1, "began_ms": ..., "who": ..., "answer": ..., "counts": {...}, ...}

The result for a part of the flow does not replace the result for all of it. These rows are only
shown, so a row that cannot be read is ignored. Earlier releases ignore them, as they ignore every
unknown kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from twinlog.errors import CorruptData
from twinlog.mirror.state.state_row import StateRow, read_row, row, row_key

VERIFIED: Final = "verified"
_WHOLE, _PART = "whole", "part"


@row(VERIFIED)
class VerifyRun(StateRow, frozen=True, kw_only=True):
    """One completed verification."""

    began_ms: int
    """Both logs were compared up to their ends at this time."""
    ended_ms: int
    who: str
    answer: str
    """`identical`, `different` or `not compared`."""
    topics: str | None
    """A regular expression, or None for all topics."""
    since: str | None
    """Times of the source's records, as requested."""
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
        """Whether it covers all topics, from the beginning of their logs to the end."""
        return self.topics is None and self.since is None and self.until is None

    def is_outdated_by(self, other: VerifyRun) -> bool:
        """Return whether `other`, which is already on the target, began later.

        If `other` began after this one ended, its clock is ahead of the local one. Then it does not
        count as newer, and the later row replaces it.
        """
        return self.began_ms < other.began_ms <= self.ended_ms

    @property
    def row_kind(self) -> tuple[str, ...]:
        return VERIFIED, _WHOLE if self.is_whole else _PART


def verify_runs(
    flow: str, rows: Iterable[tuple[bytes | None, bytes | None]]
) -> tuple[VerifyRun, ...]:
    """Return the last whole and the last partial verification that can be read, the newer one
    first.

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
