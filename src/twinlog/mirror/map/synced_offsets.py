"""Offsets that syncs gave to groups. With two flows in both directions, a group's offset on one
cluster is either the group's own progress there, or what the sync of the other flow gave it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from twinlog.model import TopicId, TopicPartition

KEPT: Final = 4
"""The last one may not have arrived, and a checkpoint may be newer than what was set."""


class _Given(NamedTuple):
    offset: int
    topic_id: TopicId | None

    def is_of(self, topic_id: TopicId | None) -> bool:
        """A re-created topic has the same offsets again, and they mean other records."""
        return None in (topic_id, self.topic_id) or self.topic_id == topic_id


class SyncedOffsets:
    """The last few of each group and partition, by the cluster's name in the file; for any thread.

    Where a topic's id is not known (None), any of its name counts.
    """

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str, TopicPartition], tuple[_Given, ...]] = {}

    def note(
        self, cluster: str, group: str, tp: TopicPartition, offset: int, topic_id: TopicId | None
    ) -> None:
        """To be called before the offset is set: whoever reads it there knows where it is from."""
        key, now = (cluster, group, tp), _Given(offset, topic_id)
        before = self._recent.get(key, ())
        if now not in before[:1]:
            self._recent[key] = (now, *before[: KEPT - 1])

    def gave(
        self, cluster: str, group: str, tp: TopicPartition, offset: int, topic_id: TopicId | None
    ) -> bool | None:
        """Whether the group has the offset from a sync; None: no sync is known to have set it."""
        recent = self._recent.get((cluster, group, tp), ())
        known = [one.offset for one in recent if one.is_of(topic_id)]
        return offset in known if known else None
