"""The topics for which a process of the flow has had transforms, as rows of the state topic.

    key    ["flow", FLOW, "transformed", ENTRIES, PREFIX, IS_NEGATED]
    value  {"v": 1, "at_ms": ...}

The offset map shows which records were transformed, but not that a topic that appears later has a
transform. So a process writes the patterns of its file before it leads the flow, or waits for that.
A process whose file lacks one of them does not begin to copy such a topic.

Rows are never removed, and writing one twice has no effect. If the process dies before the row is
written, it has copied nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Self

from twinlog.config.regex.patterns import NamePattern, compile_names
from twinlog.mirror.state.state_row import StateRow, read_rows, row

TRANSFORMED: Final = "transformed"


@row(TRANSFORMED, key=("entries", "prefix", "is_negated"))
class TransformedTopics(StateRow, frozen=True, kw_only=True):
    """The topics of one transform."""

    entries: tuple[str, ...]
    prefix: str
    is_negated: bool
    at_ms: int

    @classmethod
    def of(cls, flow: str, topics: NamePattern, at_ms: int) -> Self:
        """Return the row for a transform's topics."""
        return cls(
            flow=flow,
            entries=topics.entries,
            prefix=topics.prefix,
            is_negated=topics.is_negated,
            at_ms=at_ms,
        )

    @property
    def topics(self) -> NamePattern:
        """Raises RegexProblem."""
        pattern = compile_names(self.entries)
        return replace(pattern, prefix=self.prefix, is_negated=self.is_negated)


def transformed_topics(
    records: Iterable[tuple[bytes | None, bytes | None]],
) -> list[NamePattern]:
    """Return the patterns of a flow's rows of this kind, from (key, value)."""
    rows = (TransformedTopics.decode(*read) for read in read_rows(records))
    return [row.topics for row in rows]
