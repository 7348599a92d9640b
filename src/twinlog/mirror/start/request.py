"""The known facts about a partition before its logs are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.mirror.accepted import Accepted
from twinlog.mirror.map.offset_map import Mark, PartitionMap, Run
from twinlog.mirror.map.runs import ORDINAL, following
from twinlog.mirror.plan import Pairing
from twinlog.mirror.skips import Skip
from twinlog.model import EARLIEST, Isolation, StartAt


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest(Pairing):
    """A partition to be started."""

    runs: tuple[Run, ...]
    """The first run, and all runs from ordinal `runs_from` on."""
    runs_from: int = -1
    """-1: no run is left out."""
    mark: Mark | None = None
    is_branch: bool = False
    """Whether this is a branch: the source records that belong here by key (`copy.fan_out`)."""
    had_row: bool = False
    """Whether the offset map had a row of this partition between these two topics."""
    fingerprints: Mapping[int, int] = field(default_factory=dict)
    our_producers: frozenset[int] = frozenset()
    """Producer IDs under which records of this flow may be there, including the current one."""
    start: StartAt = EARLIEST
    """Used once, if there is no row."""
    begin: int = -1
    """The offset that `start` means in the current log: determined once, and fixed by the first
    row.
    """
    group_at: int = -1
    """Offset of the source's consumer group, which replaces `start`; -1: none."""
    began_at: int = -1
    """Where the copy began in a target topic that was since deleted; -1: none."""
    siblings_at: int = -1
    """Where the other branches of its source partition began; -1: none has begun."""
    former: tuple[int, ...] = ()
    """Target partitions to which a former source topic of this name was copied, which was since
    deleted.
    """
    is_another: bool = False
    """Whether this partition was copied to this target topic before, from such a former topic."""
    acked_ordinal: int = -1
    """The highest next ordinal acknowledged in this generation."""
    acked_epoch: int = -1
    """The target's leader epoch at that time."""
    lost: tuple[int, int] | None = None
    """[first, next) of copied upstream offsets that the source was found to have lost, earlier in
    this generation.
    """
    may_lose_batches: bool = False
    """Whether the target topic is, or may be, compacted, so that not every batch need be there."""
    skips: tuple[Skip, ...] = ()
    """Upstream records to skip, as configured by the operator."""
    accepted: tuple[Accepted, ...] = ()
    """Foreign records in the target's log that were accepted and stay there."""
    most_reads: int | None = None
    """Maximum fetches after the mark of a shared topic, if other partitions wait for the same
    check; None: no limit.
    """
    accept_source_loss: bool = False
    """Continue after records that the source deleted before they were copied."""

    @property
    def asks_where(self) -> bool:
        """Whether only the source can determine where it begins."""
        return not self.runs and max(self.siblings_at, self.began_at, self.group_at) < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRules:
    """Settings of a flow for all its starts."""

    producer_id: int
    is_ours_alone: bool
    isolation: Isolation
    known_producers: frozenset[int] = frozenset()
    """Producer IDs of other known flows: their records are not foreign."""


def runs_for_start(known: PartitionMap, most: int) -> tuple[tuple[Run, ...], int]:
    """Return the part of a map that a start needs, and the ordinal from which on it is complete
    (-1: from the first).

    The part is the first run, which has K, and the newest runs: all of the newest chunk, and all
    from the last record before the mark on.
    """
    runs = known.runs
    begin = max(0, len(runs) - most)
    if known.open_from >= 0:
        begin = min(begin, max(0, following(runs, known.open_from, ORDINAL) - 1))
    if known.mark is not None:
        begin = min(begin, max(0, following(runs, known.mark.ordinal - 1, ORDINAL) - 1))
    if begin <= 1:
        return tuple(runs), -1
    newest = runs[begin:]
    return (runs[0], *newest), newest[0].ordinal
