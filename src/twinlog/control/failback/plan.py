"""What would be so if clients went home now: the tail of each partition, what the source lost, what
keeps a run from beginning, and what the way back takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from twinlog.config.values.times import in_iso
from twinlog.control.failback.parting import Parting
from twinlog.control.failback.tail import TailCounts
from twinlog.model import TopicPartition
from twinlog.quantities import count, plural

MOST_LINES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """One partition: where its logs part, and what lies behind that on A."""

    parting: Parting
    counts: TailCounts

    @property
    def tp(self) -> TopicPartition:
        return self.parting.source

    @property
    def is_empty(self) -> bool:
        """A has no offset there that B lacks: not one, whatever it held."""
        parting = self.parting
        return parting.tail.first >= parting.tail.next and parting.deleted is None

    def lines(self) -> Iterator[str]:
        parting, counts = self.parting, self.counts
        if parting.problem is not None:
            yield f"  {self.tp}: {parting.problem}"
            return
        if not self.is_empty:
            what = f"{plural(counts.valid, 'record')} that never arrived"
            if counts.aborted:
                what += f", and {count(counts.aborted)} that were rolled back"
            if counts.records:
                when = f"{in_iso(counts.oldest_ms)} to {in_iso(counts.newest_ms)}"
                what += f", of {when}"
            never = "" if parting.copy is not None else "; nothing of it was ever copied"
            yield f"  {self.tp}: {parting.tail}: {what}{never}"
        if parting.deleted is not None:
            yield (
                f"  {self.tp}: {parting.deleted} never arrived, and the source's retention has "
                "deleted it since"
            )
        if parting.is_open:
            yield f"  {self.tp}: a transaction is open from offset {parting.stable} on"
        if parting.lost is not None:
            yield (
                f"  {self.tp}: the source lost {parting.lost}: the target has its "
                f"{plural(parting.lost_records, 'record')}"
            )
        if parting.copy is not None and not parting.is_compared and not self.is_empty:
            yield (
                f"  {self.tp}: none of the last common records is left on both sides: that the "
                "logs part here is said by the offset map alone"
            )

    def as_json(self) -> dict[str, Any]:
        return {**self.parting.as_json(), **self.counts.as_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackPlan:
    """Of one flow; computed from both clusters, and from nothing else."""

    flow: str
    promoted: str
    """By whom, when and why; empty: it was not."""
    tails: tuple[Tail, ...]
    way_back: tuple[str, ...] = ()
    """What the reverse flow takes, and what it cannot bring."""
    replayed: tuple[str, ...] = ()
    """How far a replay is."""

    @property
    def problems(self) -> list[str]:
        """What keeps a run from beginning."""
        out = []
        if not self.promoted:
            out.append(
                "it was not promoted: a failback is behind a failover; what the source has is "
                "copied by the mirror"
            )
        out += [f"{one.tp}: {one.parting.problem}" for one in self.tails if one.parting.problem]
        return out

    @property
    def open_transactions(self) -> list[Parting]:
        """Partitions whose tail is not decided yet."""
        return [one.parting for one in self.tails if one.parting.is_open]

    @property
    def is_open(self) -> bool:
        """A run could begin."""
        return not self.problems and not self.open_transactions

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.promoted:
            yield f"{self.flow}: promoted {self.promoted}"
        else:
            yield f"{self.flow}: {self.problems[0]}"
        empty = [one for one in self.tails if one.is_empty and not one.parting.problem]
        records = sum(one.counts.valid for one in self.tails)
        yield (
            f"{plural(len(empty), 'partition')} of {len(self.tails)} without a divergent tail; "
            f"{plural(records, 'record')} in all never arrived"
        )
        lines = [line for one in self.tails for line in one.lines()]
        yield from lines[:MOST_LINES]
        if len(lines) > MOST_LINES:
            yield f"  and {plural(len(lines) - MOST_LINES, 'more line')}: --format json"
        yield from self.replayed
        yield from self.way_back

    def as_json(self) -> dict[str, Any]:
        return {
            "flow": self.flow,
            "is_open": self.is_open,
            "promoted": self.promoted or None,
            "problems": self.problems,
            "records": sum(one.counts.valid for one in self.tails),
            "partitions": [one.as_json() for one in self.tails],
            "replayed": list(self.replayed),
            "way_back": list(self.way_back),
        }
