"""Warns before the source's retention deletes records that are not copied yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from twinlog.control.lanes.partitions import Partition
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.quantities import duration, plural
from twinlog.survey.topic_configs import NO_LIMIT

CODE: Final = "RETENTION_NEAR"
NEAR: Final = 0.25
"""Share of a topic's retention below which a copy that is not catching up is reported."""

NEAR_S: Final = 3600.0
"""The same limit if the log's start moves because of its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The outlook of a partition with a lag, in ms."""

    left_ms: int | None
    """The least time for which the source keeps the next record; None if no deletion is expected.
    """
    needs_ms: int | None
    """How long the copy needs to catch up; None if it is not catching up."""
    is_near: bool
    """At the current rates the record will be deleted first."""
    is_known: bool
    """False if `left_ms` is None because it is not known yet, or must not be queried."""


NONE: Final = Outlook(left_ms=None, needs_ms=None, is_near=False, is_known=True)


def outlook_of(partition: Partition, retentions: Mapping[str, int], now_ms: int) -> Outlook:
    """Return the outlook for the records that are not copied yet, from the last observations."""
    if not partition.is_wanted or not partition.is_behind:
        return NONE
    found = retentions.get(partition.plan.source.topic)
    retention_ms = None if found == NO_LIMIT else found
    left = partition.keeping.left_s(now_ms=now_ms, retention_ms=retention_ms)
    if math.isinf(left):
        is_known = found is not None and partition.keeping.is_known(retention_ms)
        return replace(NONE, is_known=is_known)
    needs = partition.keeping.needs_s()
    soon = NEAR_S if retention_ms is None else NEAR * retention_ms / 1000
    return Outlook(
        left_ms=int(left * 1000),
        needs_ms=None if math.isinf(needs) else int(needs * 1000),
        is_near=left < (soon if math.isinf(needs) else needs),
        is_known=True,
    )


def warnings(parts: Sequence[PartitionSnapshot]) -> dict[str, str]:
    """Return a line for each topic that will lose records before they are copied."""
    topics: dict[str, list[PartitionSnapshot]] = {}
    for part in parts:
        if part.is_near_deletion:
            topics.setdefault(part.topic, []).append(part)
    found = {}
    for topic, near in topics.items():
        first = min(near, key=lambda part: part.left_ms or 0)
        needs = (
            "the copy is not catching up"
            if first.needs_ms is None
            else f"the copy needs {duration(first.needs_ms / 1000)}"
        )
        found[topic] = (
            f"{topic}: in {duration((first.left_ms or 0) / 1000)} the source may delete records of "
            f"{plural(len(near), 'partition')} that are not copied yet ({topic}-{first.partition} "
            f"first), and {needs}: raise its retention.ms or retention.bytes until it has caught "
            f"up [{CODE}]"
        )
    return found
