"""The consumer group of a flow on its source, as MirrorMaker 1 had one.

A partition that was never copied starts at the group's offset, so that a mirror can replace
MirrorMaker 1. After that the group's offset is the next source offset that is not on the target
yet, so that lag monitors of the group stay meaningful. This group never decides where a copy
resumes that has begun, because the target alone determines that.
"""

from __future__ import annotations

from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed, commit_offsets, is_refused_as_active
from twinlog.control.duties.rounds import Duty, LedFlow, NotPermitted, confirmed
from twinlog.errors import TwinlogError, Unauthorized

MS: Final = 1000.0


class GroupCommits:
    """The duty: a round commits all offsets of the group, even if they did not change, because
    brokers delete the offsets of a group without members after a while.
    """

    name = "offsets of the source's group"
    ends_once = True

    def __init__(self, flow: LedFlow) -> None:
        self._flow = flow
        self._group = flow.config.source_group.group_id

    @property
    def interval_s(self) -> float:
        return self._flow.config.source_group.commit_interval_ms / MS

    def round(self) -> None:
        views = [view for view in self._flow.partitions() if view.reach is not None]
        if not views:
            return
        with ClusterClient(self._flow.source) as source, ClusterClient(self._flow.target) as target:
            wanted = {
                view.source: Committed(offset=view.upstream)
                for view in confirmed(views, source, target)
            }
            if not wanted:
                return
            self._flow.confirm()  # a MirrorMaker 1 that runs again may have committed newer offsets
            results = commit_offsets(Coordinators(source), {self._group: wanted})[self._group]
        errors = (
            [results] if isinstance(results, TwinlogError) else [e for e in results.values() if e]
        )
        if any(map(is_refused_as_active, errors)):
            self._flow.log_once(
                f"{self._flow.name}: offsets of group {self._group} are not committed on "
                f"{self._flow.config.flow.source}: the group has members; stop the MirrorMaker 1 "
                "that is in it"
            )
        elif denied := [error for error in errors if isinstance(error, Unauthorized)]:
            raise NotPermitted(
                f"offsets of group {self._group} are not committed on "
                f"{self._flow.config.flow.source}, so they do not show the progress of the copy: "
                f"{denied[0]}",
                flow=self._flow.name,
            )
        elif errors:
            raise errors[0]

    def close(self) -> None:
        """Do nothing, because each round opens its own connections."""


def group_commits(flow: LedFlow) -> Duty | None:
    return GroupCommits(flow) if flow.config.source_group.group_id else None
