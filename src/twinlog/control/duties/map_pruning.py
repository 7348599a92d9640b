"""Takes chunks of the offset map away that nobody can ask for any more.

A run says where records lie. Once both logs have deleted them, every question about them is
answered by a log's start, so their chunks get a null value, and compaction removes them. A branch
of a keyed topic is never asked what lies behind its mark. So the map is bounded by what the logs
still hold, and by the first chunk of each partition, which stays: it says where the copy began.

Null values are safe to write twice, to die between, and for a process that has just lost the lead:
log starts never go back, and a mark neither.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, list_offsets
from twinlog.cluster.topics.internal_log import append
from twinlog.control.duties.rounds import REFUSED_PAUSE_S, LedFlow, PartitionView
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.mirror.map.offset_map import PartitionMap, map_homes, tombstone_key
from twinlog.mirror.map.runs import DOWNSTREAM, UPSTREAM, following
from twinlog.mirror.names.naming import map_topic_of
from twinlog.model import TopicPartition
from twinlog.wire.records import Record

PRUNED_EVERY_S: float = 600.0
FEWEST_RUNS: Final = 1_000
"""A smaller map is not worth the question where its logs begin."""

RECORDS_PER_BATCH: Final = 1_000
OFFSETS_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Gone:
    """A chunk that is to be removed, and where its rows may lie."""

    key: bytes
    homes: frozenset[int]


class MapPruning:
    """Of one led flow: every one has a map."""

    name = "map-pruning"
    ends_once = True

    def __init__(self, flow: LedFlow) -> None:
        self._flow = flow
        self._source, self._target = ClusterClient(flow.source), ClusterClient(flow.target)
        self._topic = map_topic_of(flow.config.flow)
        self._refused_until = 0.0

    @property
    def interval_s(self) -> float:
        return PRUNED_EVERY_S

    def round(self) -> None:
        if time.monotonic() < self._refused_until:
            return
        maps = self._flow.read_map()
        views = {view.source: view for view in self._flow.partitions()}
        large = [known for known in maps.values() if len(known.runs) >= FEWEST_RUNS]
        by_source = [(TopicPartition(known.topic, known.key.partition), known) for known in large]
        wanted = [views[tp] for tp, _ in by_source if tp in views]
        starts = self._starts(wanted) if wanted else {}
        gone: list[_Gone] = []
        for source, known in by_source:
            ordinal = _behind(known, views.get(source), starts)
            homes = map_homes(source, maps.partitions)
            for term, chunk in known.prunable(ordinal):
                gone.append(_Gone(tombstone_key(known.key, term, chunk), homes))
        try:
            self._remove(gone)
        except Unauthorized as error:
            self._refused_until = time.monotonic() + REFUSED_PAUSE_S
            self._flow.log_once(
                f"{self._flow.name}: rows of the offset map that nobody needs stay there: {error}"
            )

    def _starts(self, views: Sequence[PartitionView]) -> dict[TopicPartition, tuple[int, int]]:
        """Where both logs of a source partition begin."""
        sources, targets = {v.source for v in views}, {v.target for v in views}
        here = list_offsets(self._source, sources, EARLIEST, timeout_s=OFFSETS_TIMEOUT_S)
        there = list_offsets(self._target, targets, EARLIEST, timeout_s=OFFSETS_TIMEOUT_S)
        out = {}
        for view in views:
            source, target = here[view.source], there[view.target]
            if not isinstance(source, TwinlogError) and not isinstance(target, TwinlogError):
                out[view.source] = (source.offset, target.offset)
        return out

    def _remove(self, gone: Sequence[_Gone]) -> None:
        now_ms = int(time.time() * 1000)
        for home in sorted({home for one in gone for home in one.homes}):
            keys = [one.key for one in gone if home in one.homes]
            for some in _portions(keys):
                records = [Record(at, now_ms, key, None) for at, key in enumerate(some)]
                append(self._target, TopicPartition(self._topic, home), records)

    def close(self) -> None:
        self._source.close()
        self._target.close()


def _portions(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for at in range(0, len(keys), RECORDS_PER_BATCH):
        yield keys[at : at + RECORDS_PER_BATCH]


def _behind(
    known: PartitionMap,
    view: PartitionView | None,
    starts: dict[TopicPartition, tuple[int, int]],
) -> int:
    """The ordinal below which nobody asks; -1 where it is not known."""
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
        ordinals.append(run.ordinal)  # of a record that may still be there, or lies before one
    return min(ordinals)
