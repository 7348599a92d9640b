"""The topics for which a process of the flow has had transforms, as rows of the state topic.

    key    ["flow", FLOW, "transformed", ENTRIES, COMPARES, IS_NEGATED]
    value  {"v": 1, "at_ms": ...}

The offset map shows which records were transformed, but not that a topic that is created later
needs a transform. So each process writes the topic patterns of all transforms in its configuration
file before it leads the flow or waits as a standby. If the file of a process has no transform for a
topic that matches one of these patterns, the process does not begin to copy the topic.

If the file has another transform for the topic, the process uses that transform. The rows cannot
show which of two files is newer, and a transform or its topics may be changed at any time.

Rows are never removed, and writing a row twice has no effect. If the process dies before the row is
written, it has copied nothing.
"""

from __future__ import annotations

from typing import Final, Self

from twinlog.config.regex.patterns import NamePattern, compile_names
from twinlog.config.values.renames import RemoteName
from twinlog.mirror.state.state_row import Rows, StateRow, read_rows, row

TRANSFORMED: Final = "transformed"


@row(TRANSFORMED, key=("entries", "compares", "is_negated"))
class TransformedTopics(StateRow, frozen=True, kw_only=True):
    """The pattern of the topics of one transform."""

    entries: tuple[str, ...]
    compares: RemoteName
    """Which name of a topic is compared with the entries: the upstream or the remote one."""
    is_negated: bool
    at_ms: int

    @classmethod
    def of(cls, flow: str, topics: NamePattern, compares: RemoteName, at_ms: int) -> Self:
        """Return the row for a transform's topics."""
        entries, is_negated = topics.entries, topics.is_negated
        return cls(
            flow=flow, entries=entries, compares=compares, is_negated=is_negated, at_ms=at_ms
        )

    @property
    def topics(self) -> NamePattern:
        """The topics as a pattern, compiled at each access. Raises RegexProblem."""
        return compile_names(self.entries, is_negated=self.is_negated)


def transformed_topics(records: Rows) -> list[TransformedTopics]:
    """Decode a flow's rows of transformed topics. `records` are (key, value)."""
    return [TransformedTopics.decode(*read) for read in read_rows(records)]
