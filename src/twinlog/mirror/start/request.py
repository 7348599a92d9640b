"""What is known of a partition before its logs are checked."""

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
    """One partition to be started, with all that is known of it."""

    runs: tuple[Run, ...]
    """The first one, and from ordinal `runs_from` on all."""
    runs_from: int = -1
    """-1: none is left out."""
    mark: Mark | None = None
    is_branch: bool = False
    """Its records are those of a source partition that belong here by key (`copy.fan_out`)."""
    had_row: bool = False
    """A row of this partition, between these two topics, was in the offset map."""
    fingerprints: Mapping[int, int] = field(default_factory=dict)
    our_producers: frozenset[int] = frozenset()
    """Producer ids under which records of ours may lie there, the present one among them."""
    start: StartAt = EARLIEST
    """Used once, when there is no row."""
    begin: int = -1
    """What `start` means in the log as it is: found once, and fixed by the first row."""
    group_at: int = -1
    """Where the source's consumer group stands: counts instead of `start`; -1: nowhere."""
    began_at: int = -1
    """Where the copy began in a target topic that was deleted since; -1 when there was none."""
    siblings_at: int = -1
    """Where the other branches of its source partition began; -1: none has."""
    former: tuple[int, ...] = ()
    """Target partitions that a source topic of this name was copied to which was deleted since."""
    is_another: bool = False
    """This partition was copied to this target topic before, from such a topic."""
    acked_ordinal: int = -1
    """The highest next ordinal that was acknowledged in this generation."""
    acked_epoch: int = -1
    """The target's leader epoch at that time."""
    lost: tuple[int, int] | None = None
    """[first, next) of copied upstream offsets that the source was found to have lost, earlier in
    this generation."""
    may_lose_batches: bool = False
    """The target topic is compacted, or may be: not every batch of ours need be there."""
    skips: tuple[Skip, ...] = ()
    """Upstream records that are left out since somebody wants it."""
    accepted: tuple[Accepted, ...] = ()
    """Records of somebody else in the target's log that stay there."""
    most_reads: int | None = None
    """Fetches behind the mark of a shared topic, where others wait for the same look; None: as many
    as it takes."""
    accept_source_loss: bool = False
    """Continue behind records that the source deleted before they were copied."""

    @property
    def asks_where(self) -> bool:
        """Only the source can say where it begins."""
        return not self.runs and max(self.siblings_at, self.began_at, self.group_at) < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRules:
    """What a flow decides for all its starts."""

    producer_id: int
    is_ours_alone: bool
    isolation: Isolation
    known_producers: frozenset[int] = frozenset()
    """Producer ids of other flows of ours: their records are not foreign."""


def runs_for_start(known: PartitionMap, most: int) -> tuple[tuple[Run, ...], int]:
    """What a start needs of a map: the first run, which knows K, and the newest ones, with all of
    the newest chunk and all from the last record before the mark on; and the ordinal from which on
    none is left out (-1: from the first).
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
