"""Sets a group's offsets on the target to the first records of some time: recovery by timestamp.

Brokers find the place (ListOffsets): the first record, by offset, whose timestamp is not before the
time. Copies keep their timestamps, so a time means the same on both clusters. Where timestamps are
out of order, records before that place may be newer, and ones behind it older.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.groups.group_offsets import (
    Committed,
    commit_offsets,
    fetch_offsets,
    is_refused_as_active,
)
from twinlog.cluster.groups.share_groups import alter_start_offsets, fetch_start_offsets
from twinlog.cluster.topics import admin
from twinlog.errors import FlowError, TwinlogError
from twinlog.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    """What becomes of one partition of the group."""

    topic: str
    partition: int
    before: int | None
    """None where the group has no offset there yet."""
    after: int
    is_end: bool
    """No record is so new: the group goes on at the end."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class OffsetReset:
    """One group of one cluster: first `plan`, then `execute` what it says."""

    def __init__(self, client: ClusterClient, group: str) -> None:
        self._client = client
        self._coordinators = Coordinators(client)
        self._group = group
        self._is_share = False

    def plan(self, timestamp_ms: int, topics: Collection[str] = ()) -> tuple[ResetOffset, ...]:
        """The offsets of that time for these topics, or for those that the group has offsets of.

        Raises FlowError for an active group, one without offsets, or a topic that is missing.
        """
        self._check_idle()
        before = self._committed()
        wanted = self._partitions(topics) if topics else list(before)
        if not wanted:
            raise FlowError(
                f"cluster {self._client.alias}: group {self._group} has no committed offsets there:"
                " name the topics with --topic",
                code="NO_OFFSETS",
            )
        places = admin.list_offsets(self._client, wanted, timestamp_ms)
        ends = admin.list_offsets(self._client, wanted, admin.LATEST)
        out = []
        for tp in sorted(wanted):
            place, end = places[tp], ends[tp]
            if isinstance(place, TwinlogError):
                raise place
            if isinstance(end, TwinlogError):
                raise end
            out.append(
                ResetOffset(
                    topic=tp.topic,
                    partition=tp.partition,
                    before=before.get(tp),
                    after=end.offset if place.offset < 0 else place.offset,
                    is_end=place.offset < 0,
                )
            )
        return tuple(out)

    def execute(self, plan: Collection[ResetOffset]) -> None:
        """Commit them; raises what the coordinator refused, and FlowError for an active group."""
        offsets = {TopicPartition(o.topic, o.partition): Committed(offset=o.after) for o in plan}
        commit = alter_start_offsets if self._is_share else commit_offsets
        answer = commit(self._coordinators, {self._group: offsets})[self._group]
        problems = [answer] if isinstance(answer, TwinlogError) else list(answer.values())
        for problem in problems:
            if problem is not None and is_refused_as_active(problem):
                raise self._active()
            if problem is not None:
                raise problem

    def _check_idle(self) -> None:
        found = list_groups(self._coordinators).get(self._group)
        if found is not None and found.is_active:
            raise self._active()
        self._is_share = found is not None and found.is_share

    def _active(self) -> FlowError:
        return FlowError(
            f"cluster {self._client.alias}: group {self._group} is active, so its offsets are left "
            "alone: stop its consumers first",
            code="GROUP_ACTIVE",
        )

    def _committed(self) -> Mapping[TopicPartition, int]:
        fetch = fetch_start_offsets if self._is_share else fetch_offsets
        found = fetch(self._coordinators, [self._group])[self._group]
        if isinstance(found, TwinlogError):
            raise found
        return {tp: one.offset for tp, one in found.items()}

    def _partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        known = self._client.metadata(sorted(topics), allow_missing=False).topics
        return [TopicPartition(t.name, p.partition) for t in known.values() for p in t.partitions]
