"""Duties for the flow's own topics on its target: keep their configs, and detect lost rows of the
offset map.

Another client, such as a topic operator, might set `cleanup.policy=delete` on these topics while a
mirror runs. Then rows would be deleted silently after the retention time. A round resets the policy
and logs the reset, or logs what to do if a permission is missing. A round also writes to the state
topic which copies have rows in the map (`mirror.state.copies`), and which producer IDs the flow has
used. In a topic that several flows share, other flows identify this flow's records only by the
state topic.

If the state topic was re-created or lost its rows, only the offset map still has the producer IDs.
Only the leader still has the intents that it follows. So the leader writes both again. It also
writes its claim again, because otherwise other processes could not detect that a mirror runs.

**Pruning**

Chunks of the offset map that no query can need any more are removed.

A run maps source offsets to target offsets. If both logs have deleted the run's records, every
query for these offsets is answered by the start of a log. So chunks of such runs get a null value,
and compaction removes them. In a branch of a keyed topic, ordinals below the mark
(`mirror.map.offset_map.Mark`) are never queried. So the map's size is limited by the records in the
logs. The first chunk of each partition is never removed, because it has the start of the copy.

Log starts and marks never decrease. So null values can safely be written twice or in part, also by
a process that has just lost the lead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append_rows, check_policy, compact_again
from twinlog.control.duties.rounds import Duty, LedFlow, NotPermitted, PartitionView
from twinlog.errors import ConfigError, TwinlogError, Unauthorized
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap, map_homes, tombstone_key
from twinlog.mirror.map.runs import DOWNSTREAM, UPSTREAM, following
from twinlog.mirror.names.naming import STATE_TOPIC, map_topic_of
from twinlog.mirror.state.copies import Copy, is_known, mapped_copies, noting_rows
from twinlog.mirror.state.generations import has_written_row
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.ends import known_starts
from twinlog.survey.state_reader import STATE_PARTITION, state_rows

CHECK_EVERY_S: Final = 30.0
NONE: Final[frozenset[int]] = frozenset()

Row = tuple[bytes, bytes]


class OwnTopics(Duty):
    """The duty that protects the flow's own topics. Every led flow has it."""

    name = "own-topics"
    interval_s = CHECK_EVERY_S

    def __init__(self, flow: LedFlow) -> None:
        self._flow = flow
        self._target = ClusterClient(flow.target)
        self._clients = (self._target,)
        self._mapped: dict[Copy, frozenset[int]] = {}
        """Partitions that have, or had, rows in the map, by the topic IDs of the copy."""
        self._listed: dict[Copy, frozenset[int]] = {}
        """The partitions of `_mapped` that the state topic lists."""
        self._listed_in: TopicId | None = None
        """The ID of the state topic that was read, or None if it must be read again."""

    def round(self) -> None:
        for name in (STATE_TOPIC, map_topic_of(self._flow.config.flow)):
            self._keep_compacted(name)
        topic_id = self._target.metadata([STATE_TOPIC]).topics[STATE_TOPIC].topic_id
        rows = [] if topic_id == self._listed_in else self._read_state()
        self._search_rows()
        rows += [
            noting_rows(self._flow.name, copy, partitions)
            for copy, partitions in self._mapped.items()
            if partitions != self._listed.get(copy)
        ]
        if rows:
            self._listed_in = None  # if the append fails, the state topic is read again
            self._flow.confirm()  # fails if a new leader exists, which may have written more rows
            append_rows(self._target, STATE_PARTITION, rows)
        self._listed, self._listed_in = dict(self._mapped), topic_id

    def _keep_compacted(self, name: str) -> None:
        try:
            check_policy(self._target, name)
        except Unauthorized:
            return  # the missing permission was reported when the flow was set up
        except ConfigError as error:
            try:
                compact_again(self._target, name)
            except TwinlogError as refusal:
                self._flow.log_once(f"{self._flow.name}: {error}; {refusal}")
                return
            self._listed_in = None  # read again: rows may already be deleted
            self._flow.log_once(
                f"{self._flow.name}: {error}. The policy is reset; rows that were already deleted "
                f"are lost, and their partitions will fail with MAP_MISSING [{error.code}]"
            )

    def _read_state(self) -> list[Row]:
        """Read the state topic. Return the rows to write because the state topic lacks them."""
        state = state_rows(self._target)
        records = state.of(self._flow.name)
        self._listed = mapped_copies(self._flow.name, records).partitions
        for copy, partitions in self._listed.items():
            self._mapped[copy] = self._mapped.get(copy, NONE) | partitions
        wrote = {
            producer for copied in self._flow.read_map().values() for producer in copied.producers
        }
        present = {key for key, _ in records}
        followed = self._flow.intents().rows()
        if self._flow.claim is not None:  # a promotion needs the last claim, to wait for its end
            followed.append(self._flow.claim.encode())
        return [
            *(row for row in followed if row[0] not in present),
            *(
                has_written_row(self._flow.name, producer_id)
                for producer_id in sorted(wrote - state.producers)
            ),
        ]

    def _search_rows(self) -> None:
        """Search the map for the rows of partitions that lanes have started, but for which no row
        was found before.
        """
        begun: dict[Copy, set[int]] = {}
        for view in self._flow.partitions():
            copy = view.source_topic_id, view.target_topic_id
            if view.is_begun and is_known(*copy):
                begun.setdefault(copy, set()).add(view.source.partition)
        missing = {
            copy for copy, started in begun.items() if started - self._mapped.get(copy, NONE)
        }
        if not missing:
            return
        partitions: dict[Copy, set[int]] = {}
        for source, target, partition in complete_partitions(self._flow.read_map()):
            partitions.setdefault((source, target), set()).add(partition)
        for copy in missing & partitions.keys():
            self._mapped[copy] = self._mapped.get(copy, NONE) | partitions[copy]


def complete_partitions(maps: Iterable[PartitionKey]) -> set[tuple[TopicId, TopicId, int]]:
    """Return (source topic ID, target topic ID, source partition) of each partition whose first
    rows are all in the map. A partition has one first row. If its records are partitioned by key,
    it has a first row for each target partition, and these rows are written one by one.
    """
    rows = Counter(key._replace(branch=0) for key in maps)
    return {key[:3] for key, count in rows.items() if count >= max(1, key.branches)}


PRUNED_EVERY_S: Final = 600.0
FEWEST_RUNS: Final = 1_000
"""Minimum number of runs in a partition's map. Smaller maps are not pruned."""
OFFSETS_TIMEOUT_S: Final = 5.0


class MapPruning(Duty):
    """The duty that prunes the flow's offset map. Every led flow has it."""

    name = "map-pruning"
    interval_s = PRUNED_EVERY_S

    def __init__(self, flow: LedFlow) -> None:
        self._flow = flow
        self._source, self._target = ClusterClient(flow.source), ClusterClient(flow.target)
        self._clients = self._source, self._target
        self._topic = map_topic_of(flow.config.flow)

    def round(self) -> None:
        maps = self._flow.read_map()
        views = {view.source: view for view in self._flow.partitions()}
        large = [known for known in maps.values() if len(known.runs) >= FEWEST_RUNS]
        by_source = [(TopicPartition(known.topic, known.key.partition), known) for known in large]
        wanted = [views[tp] for tp, _ in by_source if tp in views]
        starts = self._starts(wanted) if wanted else {}
        removals: dict[int, list[tuple[bytes, None]]] = {}
        for source, known in by_source:
            ordinal = _unneeded_below(known, views.get(source), starts)
            chunks = known.prunable(ordinal)
            for home in map_homes(source, maps.partitions):
                keys = (tombstone_key(known.key, *chunk) for chunk in chunks)
                removals.setdefault(home, []).extend((key, None) for key in keys)
        try:
            for home, rows in sorted(removals.items()):
                append_rows(self._target, TopicPartition(self._topic, home), rows)
        except Unauthorized as error:
            line = f"unneeded rows of the offset map cannot be removed: {error}"
            raise NotPermitted(line, flow=self._flow.name) from error

    def _starts(self, views: Sequence[PartitionView]) -> dict[TopicPartition, tuple[int, int]]:
        """Return (start of the source's log, start of the target's log) by source partition."""
        source_starts = known_starts(self._source, {v.source for v in views}, OFFSETS_TIMEOUT_S)
        target_starts = known_starts(self._target, {v.target for v in views}, OFFSETS_TIMEOUT_S)
        return {
            view.source: (source_starts[view.source], target_starts[view.target])
            for view in views
            if view.source in source_starts and view.target in target_starts
        }


def _unneeded_below(
    partition_map: PartitionMap,
    view: PartitionView | None,
    starts: dict[TopicPartition, tuple[int, int]],
) -> int:
    """Return the ordinal (number of copied records) below which a partition's map is no longer
    needed, or -1 if unknown.
    """
    if partition_map.key.branches:
        return -1 if partition_map.mark is None else partition_map.mark.ordinal
    if (
        view is None
        or view.source not in starts
        or view.map_key != partition_map.key
        or not partition_map.runs
    ):
        return -1
    source_start, target_start = starts[view.source]
    ordinals = []
    for start, field in ((source_start, UPSTREAM), (target_start, DOWNSTREAM)):
        at = following(partition_map.runs, start, field)
        if not at:
            return -1
        run = partition_map.runs[at - 1]
        ordinals.append(run.ordinal)  # the last run that begins at or before the log start
    return min(ordinals)
