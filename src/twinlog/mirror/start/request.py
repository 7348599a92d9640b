"""What a start knows about a partition before its logs are checked."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from twinlog.mirror.accepted import Accepted
from twinlog.mirror.map.offset_map import Mark, PartitionMap, Run
from twinlog.mirror.map.runs import ORDINAL, following
from twinlog.mirror.plan import PartitionPair
from twinlog.mirror.skips import Skip
from twinlog.model import EARLIEST, Isolation, StartAt


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts(PartitionPair):
    """What the driver knows about a partition that is to be started, including a part of its offset
    map.
    """

    runs: tuple[Run, ...]
    """The map's first run, and all its runs from ordinal `runs_from` on."""
    runs_from: int = -1
    """Ordinal (count of this flow's records) from which on `runs` is complete, or -1 if `runs` has
    all runs of the map.
    """
    mark: Mark | None = None
    """The map's mark, a point that the copy has certainly reached (`offset_map.Mark`), or None if
    the map has none.
    """
    transformed: tuple[tuple[int, int], ...] = ()
    """Ranges [first, next) of ordinals of transformed records, which differ from their source
    records (`mirror.start.announced`).
    """
    had_row: bool = False
    """Whether the offset map is known to have had a row of this copy. If `runs` is empty, the row
    was lost.
    """
    fingerprints: dict[int, int] = field(default_factory=dict)
    """Fingerprints (CRC32C) of records that the map announced, by ordinal."""
    start: StartAt = EARLIEST
    """Where the copy begins if the map has no row of this copy. Ignored otherwise."""
    group_at: int = -1
    """Committed source offset of the consumer group from whose offset the copy begins. It replaces
    `start`; -1 if there is none.
    """
    began_at: int = -1
    """Upstream offset at which an earlier copy of this source partition began, if the target topic
    of that copy was deleted, else -1.
    """
    former_partitions: tuple[int, ...] = ()
    """Target partitions to which an earlier, deleted source topic of this name was copied."""
    had_former_copy: bool = False
    """Whether the partition with the same number of an earlier source topic of this name was copied
    to this target topic.
    """
    acked_ordinal: int = -1
    """Number of records that the flow had written when its last record in this generation was
    acknowledged, or -1 if none was.
    """
    acked_epoch: int = -1
    """Leader epoch of the target partition when the record before `acked_ordinal` was acknowledged,
    or -1 if unknown.
    """
    lost: tuple[int, int] | None = None
    """Copied upstream offsets [first, next) that the source has lost, as found earlier in this
    generation, or None.
    """
    skips: tuple[Skip, ...] = ()
    """Upstream records that an operator has decided to skip."""
    accepted: tuple[Accepted, ...] = ()
    """Foreign records in the target's log that an operator accepted."""

    @property
    def complete_runs(self) -> tuple[Run, ...]:
        """The runs, without the first one if the runs between the first two are missing."""
        return self.runs[1:] if self.runs_from > 0 else self.runs

    def facts(self) -> dict[str, Any]:
        """Return the fields of `StartFacts` by name."""
        return {field.name: getattr(self, field.name) for field in fields(StartFacts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest(StartFacts):
    """A request to determine where one partition resumes."""

    is_branch: bool = False
    """Whether this is a branch of a keyed topic, which gets only the source records that belong to
    its target partition by key (`mirror.copy.fan_out`).
    """
    our_producers: frozenset[int] = frozenset()
    """All producer IDs, including the current one, under which this flow may have written."""
    begin: int = -1
    """The upstream offset that `start` means in the current log, or -1 if it was not queried. The
    first row of the map fixes where the copy begins permanently.
    """
    siblings_at: int = -1
    """Upstream offset at which the other branches of the source partition began, or -1 if none has
    begun.
    """
    may_lose_batches: bool = False
    """Whether the target topic is, or may be, compacted, so that batches may be missing."""
    most_reads: int | None = None
    """Maximum fetches after the map's mark in a topic to which other clients write, or None without
    a limit. A limit is set if other partitions wait for the same search.
    """
    accept_source_loss: bool = False
    """Whether to continue after records that the source deleted before they were copied
    (twinlog.source.loss=accept).
    """

    @property
    def needs_begin_offset(self) -> bool:
        """Whether the source must be queried for the offset at which the copy begins."""
        return not self.runs and max(self.siblings_at, self.began_at, self.group_at) < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRules:
    """Settings of a flow for all its starts."""

    producer_id: int
    is_ours_alone: bool
    isolation: Isolation
    known_producers: frozenset[int] = frozenset()
    """Producer IDs of all known Twinlog flows. Records of these flows are not foreign."""


def runs_for_start(partition_map: PartitionMap, limit: int) -> tuple[tuple[Run, ...], int]:
    """Return (runs, begin). `runs`: those of the map that a start needs. `begin`: the ordinal from
    which on they are complete, or -1 if these are all runs of the map.

    They are the first run, which determines K, the last `limit` runs that begin before the map's
    mark, all runs after the mark, and all of the newest chunk. The map may announce any number of
    runs that were not written before the copy's lane died. The mark shows where these may begin.
    """
    runs, mark = partition_map.runs, partition_map.mark
    written = len(runs) if mark is None else following(runs, mark.ordinal - 1, ORDINAL)
    begin = max(0, written - limit)
    if partition_map.open_from >= 0:
        begin = min(begin, max(0, following(runs, partition_map.open_from, ORDINAL) - 1))
    if begin <= 1:
        return tuple(runs), -1
    newest = runs[begin:]
    return (runs[0], *newest), newest[0].ordinal
