"""A source topic that was deleted and created again is another topic, and its remote topic holds
the former one: nothing of the new life is appended to the old.

All partitions wait, for one remote topic must not hold two lives: also those that the former topic
did not have, and those whose own target partition is empty. They begin when the remote topic is
another one, or holds nothing of the old any more. Each start looks at all logs that were copied to
before, so it does not matter when the topic was created again, nor what died in between; and until
the first row of the new life is there, each partition is judged by the logs alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twinlog.errors import PartitionError
from twinlog.mirror import findings
from twinlog.mirror.ports import LogEnds, LogView, answer_of
from twinlog.mirror.start.request import StartRequest
from twinlog.model import TopicPartition


def former_targets(requests: Iterable[StartRequest]) -> set[TopicPartition]:
    """Whose ends must be known beside those of the targets themselves."""
    return {tp for one in requests for tp in _former(one)}


def check_former(one: StartRequest, ends: Mapping[TopicPartition, LogEnds], view: LogView) -> None:
    """Raises SOURCE_RECREATED where the remote topic holds the former life still."""
    for tp in _former(one):
        missing = (
            "its leader does not say whether it holds records of the topic that was "
            f"{one.source.topic} before"
        )
        found = answer_of(ends, tp, view, missing)
        if found.log_end > found.log_start:
            raise PartitionError(
                findings.source_recreated(
                    one.source, tp, findings.Span(found.log_start, found.log_end)
                ),
                code="SOURCE_RECREATED",
            )


def _former(one: StartRequest) -> list[TopicPartition]:
    return [] if one.runs else [TopicPartition(one.target.topic, n) for n in one.former]
