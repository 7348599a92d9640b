"""Duty: says whose offsets are not translated because the records of a topic are placed by key.

One source partition goes to all partitions of such a topic, and what others write lies in between.
So no offset of the target corresponds to one of the source, and a group that goes over finds
nothing to continue from. That must be seen before somebody relies on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.control.duties.rounds import Duty, LedFlow
from twinlog.errors import TwinlogError
from twinlog.quantities import first_few, plural

SOONEST_S: Final = 1


def keyed_groups(flow: LedFlow) -> Duty | None:
    """None where nobody expects groups, or no topic may be placed so."""
    config = flow.config
    asked = [s for s in (config.groups.checkpoints_s, config.groups.sync_s) if s is not None]
    if not asked or not config.keyed_partitions:
        return None
    return KeyedGroups(flow, float(max(min(asked), SOONEST_S)))


class KeyedGroups:
    """All groups of one flow; asks nobody while no topic is placed by key."""

    name = "groups of topics placed by key"
    ends_once = True

    def __init__(self, flow: LedFlow, interval_s: float) -> None:
        self._flow = flow
        self.interval_s = interval_s

    def round(self) -> None:
        topics = {view.source.topic for view in self._flow.partitions() if view.is_keyed}
        by_group = self._committed(topics) if topics else {}
        self._flow.groups.untranslated = {
            group: f"records of {first_few(found)} are placed by key, no offset there corresponds"
            for group, found in by_group.items()
        }
        if by_group:
            concerned = sorted({topic for found in by_group.values() for topic in found})
            self._flow.tell_once(
                f"{self._flow.name}: offsets of groups are not translated in "
                f"{plural(len(concerned), 'topic')} ({first_few(concerned)}): records are placed "
                "by key among another number of partitions there, so no offset corresponds; "
                "`twinlog status` names the groups"
            )

    def _committed(self, topics: Iterable[str]) -> dict[str, list[str]]:
        """Which of these topics each group has offsets of; groups that we may not see are another
        duty's to say.
        """
        wanted = set(topics)
        with ClusterClient(self._flow.source) as source:
            there = Coordinators(source)
            names = [
                name
                for name, group in list_groups(there).items()
                if group.has_offsets and self._flow.config.groups.selects(name)
            ]
            offsets = fetch_offsets(there, names)
        out: dict[str, list[str]] = {}
        for group, answer in sorted(offsets.items()):
            found = set() if isinstance(answer, TwinlogError) else {tp.topic for tp in answer}
            if found & wanted:
                out[group] = sorted(found & wanted)
        return out

    def close(self) -> None:
        """Every round has connections of its own."""
