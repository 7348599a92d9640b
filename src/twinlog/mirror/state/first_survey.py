"""What a source had when a flow first looked for new topics (`twinlog.start.new = earliest`), as
rows of the state topic: all that came later is new, also for processes that begin later.

Kafka does not say when a topic was made. So the partitions of the first survey are kept for ever,
and never changed: a partition that is not among them was made since, whether a mirror ran then or
not. A new one needs no row, so that a process which dies between finding it and its first row
leaves it new for the next.

A survey is one row for each few hundred topics, under keys of its own:

- the process dies between two rows, or an answer is lost: the survey is not whole, counts for
  nothing, and the next process writes its own. No lane has begun then;
- two write at once, or a frozen one writes late: the first whole survey in the log counts. Keys are
  never written twice, also after a lost answer (`internal_log.append_once`), so the log cleaner
  takes nothing away and changes no order;
- a topic is deleted and created again: another id, so it is new. Without topic ids its name is what
  is known;
- the state topic is lost: the next survey is the first. What has a row in the offset map begins
  nowhere again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Final

from twinlog.mirror.state.generations import encode_row, read_row

Identity = tuple[str, int]
"""(topic id, or its name where the brokers have no ids; partition)"""

TOPICS_A_ROW: Final = 500

_KIND: Final = "first-look"


def first_survey_rows(flow: str, seen: Iterable[Identity]) -> list[tuple[bytes, bytes]]:
    """(key, value) of one survey, in the order in which they are to be appended."""
    counts: dict[str, int] = {}
    for topic, partition in seen:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    topics = sorted(counts)
    parts = [topics[at : at + TOPICS_A_ROW] for at in range(0, len(topics), TOPICS_A_ROW)] or [[]]
    survey_id = uuid.uuid4().hex
    return [
        encode_row(
            ["flow", flow, _KIND, survey_id, number],
            {"of": len(parts), "partitions": {topic: counts[topic] for topic in part}},
        )
        for number, part in enumerate(parts)
    ]


def first_survey(
    flow: str, records: Iterable[tuple[bytes | None, bytes | None]]
) -> frozenset[Identity] | None:
    """The partitions of the first whole survey, from (key, value) in log order; None: there is
    none.

    Raises CorruptData for a row that cannot be read.
    """
    surveys: dict[str, dict[int, dict[str, int]]] = {}
    for key, value in records:
        if key is None or value is None or not _is_row(key, flow):
            continue
        parts, fields = read_row(key, value)
        survey = surveys.setdefault(parts[3], {})
        survey[parts[4]] = fields["partitions"]
        if len(survey) == fields["of"]:
            return frozenset(
                (topic, partition)
                for row in survey.values()
                for topic, count in row.items()
                for partition in range(count)
            )
    return None


def _is_row(key: bytes, flow: str) -> bool:
    try:
        return bool(json.loads(key)[:3] == ["flow", flow, _KIND])
    except (ValueError, TypeError):
        return False
