"""What is known about a partition before its logs are checked."""

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
    """The part of the map that a start needs, and what the driver remembers of the partition."""

    runs: tuple[Run, ...]
    """The first run, and all runs from ordinal `runs_from` on."""
    runs_from: int = -1
    """The ordinal from which on the runs are complete; -1: all runs are here."""
    mark: Mark | None = None
    """The map's mark: a point that the copy has certainly reached."""
    transformed: tuple[tuple[int, int], ...] = ()
    """Ordinals [first, next) of transformed records, which differ from the source's
    (`mirror.start.announced`).
    """
    had_row: bool = False
    """Whether the offset map is known to have had a row of this copy. If it has none now, the row
    was lost.
    """
    fingerprints: dict[int, int] = field(default_factory=dict)
    """Fingerprints of announced records, by ordinal."""
    start: StartAt = EARLIEST
    """Where the copy begins if the map has no row of it. Ignored otherwise."""
    group_at: int = -1
    """Committed offset of the source's consumer group, which replaces `start`; -1: none."""
    began_at: int = -1
    """Where an earlier copy of this source partition began, to a target topic that was deleted
    since; -1: none.
    """
    former: tuple[int, ...] = ()
    """Target partitions with the copy of an earlier, deleted source topic of this name."""
    is_another: bool = False
    """Whether the partition of this number of such an earlier source topic was copied to this
    target topic.
    """
    acked_ordinal: int = -1
    """The highest next ordinal that was acknowledged in this generation."""
    acked_epoch: int = -1
    """The target's leader epoch at that time."""
    lost: tuple[int, int] | None = None
    """[first, next) of copied upstream offsets that the source has lost, as found earlier in this
    generation.
    """
    skips: tuple[Skip, ...] = ()
    """Upstream records to skip, as configured by the operator."""
    accepted: tuple[Accepted, ...] = ()
    """Foreign records in the target's log that an operator accepted."""

    def facts(self) -> dict[str, Any]:
        """Return these fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(StartFacts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest(StartFacts):
    """A partition to be started."""

    is_branch: bool = False
    """Whether this is a branch of a keyed topic: it gets the source records that belong here by key
    (`mirror.copy.fan_out`).
    """
    our_producers: frozenset[int] = frozenset()
    """Producer IDs under which this flow may have written here, also the current one."""
    begin: int = -1
    """The offset that `start` means in the current log. It is determined once, and fixed by the
    first row.
    """
    siblings_at: int = -1
    """Where the other branches of the source partition began; -1: none has begun."""
    may_lose_batches: bool = False
    """Whether the target topic is, or may be, compacted, so that batches may be missing."""
    most_reads: int | None = None
    """Maximum fetches after the mark of a shared topic, if other partitions wait for the same
    search; None: no limit.
    """
    accept_source_loss: bool = False
    """Whether to continue after records that the source deleted before they were copied."""

    @property
    def asks_where(self) -> bool:
        """Whether the source must be queried for the offset at which the copy begins."""
        return not self.runs and max(self.siblings_at, self.began_at, self.group_at) < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRules:
    """Settings of a flow for all its starts."""

    producer_id: int
    is_ours_alone: bool
    isolation: Isolation
    known_producers: frozenset[int] = frozenset()
    """Producer IDs of all known flows. Their records are not foreign."""


def runs_for_start(partition_map: PartitionMap, limit: int) -> tuple[tuple[Run, ...], int]:
    """Return the part of a map that a start needs, and the ordinal from which on it is complete
    (-1: from the first).

    The part is the first run, which has K, and the newest runs: all of the newest chunk, and all
    from the last record before the mark on.
    """
    runs = partition_map.runs
    begin = max(0, len(runs) - limit)
    if partition_map.open_from >= 0:
        begin = min(begin, max(0, following(runs, partition_map.open_from, ORDINAL) - 1))
    if partition_map.mark is not None:
        begin = min(begin, max(0, following(runs, partition_map.mark.ordinal - 1, ORDINAL) - 1))
    if begin <= 1:
        return tuple(runs), -1
    newest = runs[begin:]
    return (runs[0], *newest), newest[0].ordinal
