"""Removes chunks of the offset map that no query can need any more.

A run maps source offsets to target offsets. If both logs have deleted its records, every query for
them is answered by a log's start. So their chunks get a null value, and compaction removes them.
Offsets after the mark of a branch of a keyed topic are never queried. So the map's size is limited
by the records in the logs. The first chunk of each partition is kept, because it has the start of
the copy.

Null values may be written twice or in part, also by a process that has just lost the lead, because
log starts and marks never decrease.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append
from twinlog.control.duties.rounds import LedFlow, NotPermitted, PartitionView
from twinlog.errors import Unauthorized
from twinlog.mirror.map.offset_map import PartitionMap, map_homes, tombstone_key
from twinlog.mirror.map.runs import DOWNSTREAM, UPSTREAM, following
from twinlog.mirror.names.naming import map_topic_of
from twinlog.model import TopicPartition
from twinlog.survey.ends import known_starts
from twinlog.wire.records import Record

PRUNED_EVERY_S: float = 600.0
FEWEST_RUNS: Final = 1_000
"""Minimum size of a map for which the log starts are queried."""

RECORDS_PER_BATCH: Final = 1_000
OFFSETS_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Gone:
    """A chunk that is to be removed, and the partitions that may have its rows."""

    key: bytes
    homes: frozenset[int]


class MapPruning:
    """The duty of one led flow; every flow has a map."""

    name = "map-pruning"
    ends_once = True

    def __init__(self, flow: LedFlow) -> None:
        self._flow = flow
        self._source, self._target = ClusterClient(flow.source), ClusterClient(flow.target)
        self._topic = map_topic_of(flow.config.flow)

    @property
    def interval_s(self) -> float:
        return PRUNED_EVERY_S

    def round(self) -> None:
        maps = self._flow.read_map()
        views = {view.source: view for view in self._flow.partitions()}
        large = [known for known in maps.values() if len(known.runs) >= FEWEST_RUNS]
        by_source = [(TopicPartition(known.topic, known.key.partition), known) for known in large]
        wanted = [views[tp] for tp, _ in by_source if tp in views]
        starts = self._starts(wanted) if wanted else {}
        removals: list[_Gone] = []
        for source, known in by_source:
            ordinal = _unneeded_below(known, views.get(source), starts)
            homes = map_homes(source, maps.partitions)
            for term, chunk in known.prunable(ordinal):
                removals.append(_Gone(tombstone_key(known.key, term, chunk), homes))
        try:
            self._remove(removals)
        except Unauthorized as error:
            line = f"unneeded rows of the offset map cannot be removed: {error}"
            raise NotPermitted(line, flow=self._flow.name) from error

    def _starts(self, views: Sequence[PartitionView]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the log starts of both sides by source partition."""
        source_starts = known_starts(self._source, {v.source for v in views}, OFFSETS_TIMEOUT_S)
        target_starts = known_starts(self._target, {v.target for v in views}, OFFSETS_TIMEOUT_S)
        known = [
            view for view in views if view.source in source_starts and view.target in target_starts
        ]
        return {
            view.source: (source_starts[view.source], target_starts[view.target]) for view in known
        }

    def _remove(self, removals: Sequence[_Gone]) -> None:
        now_ms = int(time.time() * 1000)
        for home in sorted({home for removal in removals for home in removal.homes}):
            keys = [removal.key for removal in removals if home in removal.homes]
            for first in range(0, len(keys), RECORDS_PER_BATCH):
                portion = keys[first : first + RECORDS_PER_BATCH]
                records = [Record(at, now_ms, key, None) for at, key in enumerate(portion)]
                append(self._target, TopicPartition(self._topic, home), records)

    def close(self) -> None:
        self._source.close()
        self._target.close()


def _unneeded_below(
    known: PartitionMap,
    view: PartitionView | None,
    starts: dict[TopicPartition, tuple[int, int]],
) -> int:
    """Return the ordinal below which the map is no longer needed, or -1 if unknown."""
    if known.key.branches:
        return -1 if known.mark is None else known.mark.ordinal
    if view is None or view.source not in starts or view.map_key != known.key or not known.runs:
        return -1
    source_start, target_start = starts[view.source]
    ordinals = []
    for start, field in ((source_start, UPSTREAM), (target_start, DOWNSTREAM)):
        at = following(known.runs, start, field)
        if not at:
            return -1
        run = known.runs[at - 1]
        ordinals.append(run.ordinal)  # the run of the first record at or before the start
    return min(ordinals)
