"""Duty: reports groups whose offsets are not translated because a topic is partitioned by key.

The records of one source partition go to all partitions of such a topic, with other records in
between. So no target offset corresponds to a source offset, and a group that moves to the target
has no offset to continue from. Operators must see that before they rely on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.control.duties.rounds import Duty, LedFlow
from twinlog.control.groups.group_rights import selected_offsets
from twinlog.errors import TwinlogError
from twinlog.quantities import first_few, plural

SOONEST_S: Final = 1


def keyed_groups(flow: LedFlow) -> Duty | None:
    """Return the duty, or None without group sync and checkpoints, or without keyed topics."""
    config = flow.config
    asked = [s for s in (config.groups.checkpoints_s, config.groups.sync_s) if s is not None]
    if not asked or not config.keyed_partitions:
        return None
    return KeyedGroups(flow, float(max(min(asked), SOONEST_S)))


class KeyedGroups:
    """The groups of one flow that read keyed topics. Sends no requests while no topic is
    partitioned by key."""

    name = "groups of topics placed by key"
    ends_once = True

    def __init__(self, flow: LedFlow, interval_s: float) -> None:
        self._flow = flow
        self.interval_s = interval_s

    def round(self) -> None:
        topics = {view.source.topic for view in self._flow.partitions() if view.is_keyed}
        by_group = self._committed(topics) if topics else {}
        self._flow.groups.untranslated = {
            group: f"records of {first_few(found)} are partitioned by key, so offsets cannot be "
            "translated"
            for group, found in by_group.items()
        }
        if by_group:
            concerned = sorted({topic for found in by_group.values() for topic in found})
            self._flow.log_once(
                f"{self._flow.name}: offsets of groups are not translated in "
                f"{plural(len(concerned), 'topic')} ({first_few(concerned)}): records are "
                "partitioned by key to another number of partitions, so offsets cannot be "
                "translated; `twinlog status` names the groups"
            )

    def _committed(self, topics: Iterable[str]) -> dict[str, list[str]]:
        """Return the topics in which each group has offsets. Another duty reports groups that this
        user may not read.
        """
        wanted = set(topics)
        with ClusterClient(self._flow.source) as source:
            offsets = selected_offsets(self._flow.config, source) or {}
        out: dict[str, list[str]] = {}
        for group, answer in sorted(offsets.items()):
            found = set() if isinstance(answer, TwinlogError) else {tp.topic for tp in answer}
            if found & wanted:
                out[group] = sorted(found & wanted)
        return out

    def close(self) -> None:
        """Do nothing, because each round opens its own connections."""
