"""The flow's own topics on its target: that they keep what the flow needs, and that lost rows of
the offset map are known as lost.

Somebody may set `cleanup.policy=delete` on them while a mirror runs (a topic operator that puts
every topic right does). Then rows vanish in silence after the retention time. A round puts the
policy right where we may, and says so; else it says what to do. And it notes which copies have rows
(`mirror.state.mapped`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import (
    append_rows,
    check_policy,
    compact_again,
    read_to_end,
)
from twinlog.control.duties.rounds import Duty, LedFlow, PartitionView
from twinlog.errors import ConfigError, TwinlogError, Unauthorized
from twinlog.mirror.map.offset_map import PartitionKey
from twinlog.mirror.names.naming import STATE_TOPIC, offset_map_topic
from twinlog.mirror.state.mapped import is_known, mapped_copies, noting_rows
from twinlog.model import TopicId, TopicPartition

LOOK_EVERY_S: Final = 30.0
STATE: Final = TopicPartition(STATE_TOPIC, 0)


def own_topics(flow: LedFlow) -> Duty:
    """Every flow has them."""
    return OwnTopics(flow)


class OwnTopics:
    """Of one led flow."""

    name = "own-topics"
    interval_s = LOOK_EVERY_S
    ends_once = True

    def __init__(self, flow: LedFlow) -> None:
        self._flow = flow
        self._target = ClusterClient(flow.target)
        self._noted: dict[tuple[TopicId, TopicId], int] | None = None

    def round(self) -> None:
        for name in (STATE_TOPIC, offset_map_topic(self._flow.config.flow.source)):
            self._keep_compacted(name)
        self._note_rows()

    def _keep_compacted(self, name: str) -> None:
        try:
            check_policy(self._target, name)
        except Unauthorized:
            return  # said when the flow was set up
        except ConfigError as error:
            try:
                compact_again(self._target, name)
            except TwinlogError as refusal:
                self._flow.tell_once(f"{self._flow.name}: {error}; {refusal}")
                return
            self._flow.tell_once(
                f"{self._flow.name}: {error}. It is set so again; rows that were deleted meanwhile "
                f"are lost, and partitions that miss theirs will say MAP_MISSING [{error.code}]"
            )

    def _note_rows(self) -> None:
        found = self._with_rows()
        known = self._known() if self._noted is None else self._noted
        more = {copy: count for copy, count in found.items() if count > known.get(copy, 0)}
        if more:
            rows = [noting_rows(self._flow.name, *copy, count) for copy, count in more.items()]
            append_rows(self._target, STATE, rows, int(time.time() * 1000))
        self._noted = {**known, **more}

    def _with_rows(self) -> dict[tuple[TopicId, TopicId], int]:
        """How many partitions, from the first on, have rows; only of copies of which that is not
        noted for all.
        """
        copies: dict[tuple[TopicId, TopicId], dict[int, PartitionView]] = {}
        for view in self._flow.partitions():
            copy = view.source_topic_id, view.target_topic_id
            if view.is_begun and is_known(*copy):
                copies.setdefault(copy, {})[view.source.partition] = view
        noted = self._noted or {}
        missing = {copy: views for copy, views in copies.items() if len(views) > noted.get(copy, 0)}
        if not missing:
            return {}
        maps = self._flow.read_map()
        rows = whole(maps)
        return {copy: _count(copy, rows) for copy in missing}

    def _known(self) -> dict[tuple[TopicId, TopicId], int]:
        records = [(one.key, one.value) for one in read_to_end(self._target, STATE_TOPIC, 0)]
        return mapped_copies(self._flow.name, records).partitions

    def close(self) -> None:
        self._target.close()


def whole(maps: Iterable[PartitionKey]) -> set[tuple[TopicId, TopicId, int]]:
    """Partitions that lack no row: a keyed one has one for each branch, and they are written one by
    one.
    """
    found = Counter(key._replace(branch=0) for key in maps)
    return {key[:3] for key, count in found.items() if count >= max(1, key.branches)}


def _count(copy: tuple[TopicId, TopicId], rows: set[tuple[TopicId, TopicId, int]]) -> int:
    count = 0
    while (*copy, count) in rows:
        count += 1
    return count
