"""Offsets that syncs gave to groups. With two flows in both directions, a group's offset on one
cluster is either the group's own progress there, or what the sync of the other flow gave it.
"""

from __future__ import annotations

from typing import Final

from twinlog.model import TopicPartition

KEPT: Final = 4
"""The last one may not have arrived, and a checkpoint may be newer than what was set."""


class SyncedOffsets:
    """The last few of each group and partition, by the cluster's alias; for any thread."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str, TopicPartition], tuple[int, ...]] = {}

    def note(self, cluster: str, group: str, tp: TopicPartition, offset: int) -> None:
        """To be called before the offset is set: whoever reads it there knows where it is from."""
        key = cluster, group, tp
        before = self._recent.get(key, ())
        if offset not in before[:1]:
            self._recent[key] = (offset, *before[: KEPT - 1])

    def gave(self, cluster: str, group: str, tp: TopicPartition, offset: int) -> bool | None:
        """Whether the group has the offset from a sync; None: no sync is known to have set it."""
        recent = self._recent.get((cluster, group, tp))
        return None if recent is None else offset in recent
