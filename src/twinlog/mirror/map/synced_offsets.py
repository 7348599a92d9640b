"""Remembers which committed offsets of groups were set by a flow's sync of group offsets, not by
the group itself.

With two flows in opposite directions, a group's offset on one cluster is either the group's own
progress there, or was set by the sync of the other flow.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from twinlog.model import TopicId, TopicPartition

KEPT: Final = 4
"""Number of offsets to remember per group and partition. More than one is needed, because the
newest may not be committed yet, and a checkpoint may be newer than the committed offset.
"""


class _Given(NamedTuple):
    """An offset that was set, and the topic for which it was set."""

    offset: int
    topic_id: TopicId | None

    def is_of(self, topic_id: TopicId | None) -> bool:
        """Return True if the offset was set for the topic with this ID, or if one of both IDs is
        unknown (None). In a re-created topic, the same offset has a different record.
        """
        return None in (topic_id, self.topic_id) or self.topic_id == topic_id


class SyncedOffsets:
    """The last offsets that were set for each group and partition, by cluster alias. Thread-safe.

    If a topic's ID is unknown (None), any topic of its name matches.
    """

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str, TopicPartition], tuple[_Given, ...]] = {}

    def note(
        self, cluster: str, group: str, tp: TopicPartition, offset: int, topic_id: TopicId | None
    ) -> None:
        """Remember an offset that a sync is about to commit. It must be called before the commit,
        so that whoever reads the committed offset finds it here.
        """
        key, now = (cluster, group, tp), _Given(offset, topic_id)
        before = self._recent.get(key, ())
        if now not in before[:1]:
            self._recent[key] = (now, *before[: KEPT - 1])

    def has_offset(
        self, cluster: str, group: str, tp: TopicPartition, offset: int, topic_id: TopicId | None
    ) -> bool | None:
        """Return True if a sync set this offset, False if the group set it, or None if no sync of
        the group and partition is known.
        """
        recent = self._recent.get((cluster, group, tp), ())
        known = [given.offset for given in recent if given.is_of(topic_id)]
        return offset in known if known else None
