"""Duties: write the progress of the copy to the places where MirrorMaker 1 and 2 store it.

**MirrorMaker 1: the consumer group of a flow on its source**

A partition that was never copied starts at the group's offset, so that a mirror can replace
MirrorMaker 1. After that, the duty commits the next source offset that is not on the target yet, so
that lag monitors of the group remain meaningful. A copy that has begun never resumes at the group's
offset, because the target alone determines where to resume.

**MirrorMaker 2: its own positions**

MirrorMaker 2's positions are read when its work is adopted. After that they are kept up to date, so
that MirrorMaker 2 can continue its work.

A position is the offset of the last source record that is on the target. Changed positions are
written every few seconds, and once more when the copy has drained. So after a clean stop
MirrorMaker 2 resumes after the last record, and after a crash some seconds before that.

A MirrorMaker 2 that runs again writes its own positions, and resumes at the newest one. So only the
leader runs a round. The last round also runs after a pause or a promotion. It does not overwrite
positions that another process has written since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed, commit_offsets, is_refused_as_active
from twinlog.cluster.topics.internal_log import append_rows
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.control.adopt.mm2_positions import read_positions
from twinlog.control.duties.rounds import Duty, LedFlow, NotPermitted, with_same_topics
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import PositionKey, encode_position


class GroupCommits(Duty):
    """The duty that commits the offsets of MirrorMaker 1's group. A round commits all offsets, also
    unchanged ones, because brokers delete the offsets of a group without members after a while.
    """

    name = "offsets of the source's group"
    interval_s: float = 0.0

    def __init__(self, flow: LedFlow) -> None:
        self._flow = flow
        self._group = flow.config.source_group.group_id
        self.interval_s = flow.config.source_group.commit_interval_ms / 1000

    def round(self) -> None:
        views = [view for view in self._flow.partitions() if view.reach is not None]
        if not views:
            return
        with ClusterClient(self._flow.source) as source, ClusterClient(self._flow.target) as target:
            wanted = {
                view.source: Committed(offset=view.upstream)
                for view in with_same_topics(views, source, target)
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
                f"{self._flow.config.flow.source}, because the group has members: stop the "
                "MirrorMaker 1 that uses this group"
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


def group_commits(flow: LedFlow) -> Duty | None:
    return GroupCommits(flow) if flow.config.source_group.group_id else None


INTERVAL_S: Final = 5.0


class Mm2Positions(Duty):
    """The duty that writes MirrorMaker 2's positions. A round writes the positions that changed."""

    name = "positions of MirrorMaker 2"
    interval_s = INTERVAL_S

    def __init__(self, flow: LedFlow, storage: OffsetStorage) -> None:
        self._flow = flow
        self._storage = storage
        self._written: dict[TopicPartition, int] = {}
        self._partitions = 0

    def round(self) -> None:
        self._write_moved(is_last=False)

    def last_round(self) -> None:
        """Write the final positions after the copy has drained."""
        self._write_moved(is_last=True)

    def _write_moved(self, *, is_last: bool) -> None:
        try:
            self._round(is_last=is_last)
        except Unauthorized as error:
            line = f"{self.name} are not kept up to date, so it could not continue its work"
            raise NotPermitted(f"{line}: {error}", flow=self._flow.name) from error

    def _round(self, *, is_last: bool) -> None:
        views = [
            view for view in self._flow.partitions() if view.upstream > 0 and not view.is_broken
        ]
        with ClusterClient(self._flow.source) as source, ClusterClient(self._flow.target) as target:
            if not self._partitions:
                positions = read_positions(target, self._storage)
                self._partitions, self._written = positions.partitions, positions.noted
            moved = [v for v in views if self._written.get(v.source) != v.upstream - 1]
            due = {
                view.source: view.upstream - 1 for view in with_same_topics(moved, source, target)
            }
            if due and is_last:
                now = read_positions(target, self._storage).noted
                due = {tp: at for tp, at in due.items() if now.get(tp) == self._written.get(tp)}
            elif due:
                self._flow.confirm()
            self._write(target, due)
        self._written |= due

    def _write(self, target: ClusterClient, due: Mapping[TopicPartition, int]) -> None:
        by_partition: dict[int, list[tuple[bytes, bytes]]] = {}
        for tp, at in due.items():
            key = PositionKey(
                connector=self._storage.connector, cluster=self._storage.cluster, source=tp
            ).encode()
            rows = by_partition.setdefault(partition_for_key(key, self._partitions), [])
            rows.append((key, encode_position(at)))
        for partition, rows in by_partition.items():
            append_rows(target, TopicPartition(self._storage.topic, partition), rows)


def mm2_positions(flow: LedFlow) -> Duty | None:
    """Return the duty, or None if nothing was adopted from MirrorMaker 2."""
    return None if flow.adopted is None else Mm2Positions(flow, flow.adopted)
