"""The offset map of one partition: runs that say which upstream record every ordinal is, and where
it lies.

    upstream   100 101 102  .  104 105  .   .  108        dots: markers, compacted, aborted
    ordinal      0   1   2       3   4           5        how many records this flow wrote before it
    downstream  70  71  72      73  74          75        K = 70 for ever (a topic of ours alone)

    runs: (0, 100, 70) (3, 104, 73) (5, 108, 75)

Rows are written to a compacted topic *ahead* of the data that they announce. A row is a chunk: all
runs from its first ordinal on, rewritten while it grows, so that compaction keeps one value a
chunk.

Rules:

A. The key is (topic ids, partition, term, chunk). A term is one cold start of the partition: the
   generation of the flow's leader and a number that leader never uses twice. Nobody but the holder
   of a term writes its keys.
B. A term's first row begins at the position it found, or before it where the map was wrong: that
   is the *cut*. Reading in log order, the first row of a newer term voids every run at or above its
   first ordinal, and any later row of an older term is void (a lane thought dead wrote it).
C. Within a term chunks only grow: a row of a lower chunk than one read before is void (a broker may
   still take a request of a connection that broke long ago; after a break the writer goes on in a
   new chunk that repeats the old one's runs).
D. Ordinals rise strictly within a partition once cut; upstream and downstream offsets rise with
   them.
E. A null value is never written.
F. The first row of all fixes where the copy began: `twinlog.start` is never asked again for this
   pair of logs, nor for this source log when its target is made anew. It is written at once, also
   where there is nothing to copy, before any record and before the partition is given back in
   order. A lane that dies before it leaves nothing behind, and the next one asks again, once
   nothing of the dead one can arrive any more (`control/takes.py`).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from twinlog.errors import CorruptData
from twinlog.mirror.earlier import Pair
from twinlog.model import TopicId, TopicPartition

ROW_VERSION: Final = 1
BRANCH_ROW_VERSION: Final = 2
"""Rows of a branch have longer keys, which the first release cannot read."""
RUNS_PER_CHUNK: Final = 400
"""About 4 KB of JSON: what one more gap costs to rewrite."""


class Run(NamedTuple):
    """From `ordinal` on, records follow one another without a gap on both sides."""

    ordinal: int
    upstream: int
    downstream: int

    def upstream_of(self, ordinal: int) -> int:
        return self.upstream + ordinal - self.ordinal

    def downstream_of(self, ordinal: int) -> int:
        return self.downstream + ordinal - self.ordinal

    def continues(self, other: Run) -> bool:
        """True when this run says nothing that `other` does not say already."""
        distance = self.ordinal - other.ordinal
        return (
            self.upstream - other.upstream == distance
            and self.downstream - other.downstream == distance
        )


class Term(NamedTuple):
    """One cold start of one partition; compared as a pair."""

    generation: int
    start: int


NO_TERM: Final = Term(-1, -1)


class PartitionKey(NamedTuple):
    """Which pair of logs a map belongs to: a re-created topic is another log."""

    source_topic_id: TopicId
    target_topic_id: TopicId
    partition: int
    branch: int = -1
    """The target partition, where a source partition goes to several by key (`fan_out`)."""
    branches: int = 0
    """Among how many: the same key goes elsewhere among more, so it is another map."""


class Mark(NamedTuple):
    """A point known to be reached: `ordinal` records are written, the last of them below
    `downstream`.
    """

    ordinal: int
    downstream: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow:
    """One row of the map topic."""

    key: PartitionKey
    term: Term
    chunk: int
    topic: str
    """The upstream topic, for people who read the map."""
    runs: tuple[Run, ...]
    mark: Mark | None = None
    fingerprint: int | None = None
    """CRC32C of the record that the last run announces (`wire.records.fingerprint`)."""
    producer_id: int = -1
    """Under which our records are written: known as ours even without the state topic."""
    before: tuple[Pair, ...] | None = None
    """What was on the target before the first run, by a MirrorMaker 2; None: it was nobody's."""

    def encode(self) -> tuple[bytes, bytes]:
        """(key, value) as compact JSON."""
        key: list[object] = [*self.key[:3], *self.term, self.chunk]
        if self.key.branches:
            key += self.key[3:]
        deltas: list[int] = []
        last = Run(0, 0, 0)
        for run in self.runs:
            deltas += (now - before for now, before in zip(run, last, strict=True))
            last = run
        version = BRANCH_ROW_VERSION if self.key.branches else ROW_VERSION
        value: dict[str, object] = {"v": version, "topic": self.topic, "runs": deltas}
        if self.mark is not None:
            value["mark"] = list(self.mark)
        if self.fingerprint is not None:
            value["crc"] = self.fingerprint
        if self.producer_id >= 0:
            value["pid"] = self.producer_id
        if self.before is not None:
            value["before"] = [offset for pair in self.before for offset in pair]
        return _json(key), _json(value)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> ChunkRow:
        """Read a row; CorruptData when it is none, or was written by a newer version."""
        try:
            fields = json.loads(value)
            version = fields["v"]  # first: a newer release may have other keys, too
            if version > BRANCH_ROW_VERSION:
                raise CorruptData(
                    f"an offset map row has version {version}, this release reads up to "
                    f"{BRANCH_ROW_VERSION}: upgrade Twinlog",
                    code="STATE_TOO_NEW",
                )
            source_id, target_id, partition, generation, start, chunk, *branch = json.loads(key)
            deltas, runs, last = fields["runs"], [], Run(0, 0, 0)
            for at in range(0, len(deltas), 3):
                do, du, dd = deltas[at : at + 3]
                last = Run(last.ordinal + do, last.upstream + du, last.downstream + dd)
                runs.append(last)
            mark, before = fields.get("mark"), fields.get("before")
            return cls(
                key=PartitionKey(TopicId(source_id), TopicId(target_id), partition, *branch),
                term=Term(generation, start),
                chunk=chunk,
                topic=fields["topic"],
                runs=tuple(runs),
                mark=None if mark is None else Mark(*mark),
                fingerprint=fields.get("crc"),
                producer_id=fields.get("pid", -1),
                before=None if before is None else _pairs(before),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptData(
                f"a row of the offset map cannot be read: {error!r}", code="STATE_CORRUPT"
            ) from error


def _pairs(offsets: Sequence[int]) -> tuple[Pair, ...]:
    return tuple(map(Pair, offsets[::2], offsets[1::2]))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@dataclass(slots=True)
class PartitionMap:
    """All that is known of one partition's offsets, folded from its rows in log order."""

    key: PartitionKey
    topic: str
    term: Term = NO_TERM
    chunk: int = -1
    runs: list[Run] = field(default_factory=list)
    fingerprints: dict[int, int] = field(default_factory=dict)
    """ordinal -> fingerprint, for runs that were announced last in their chunk."""
    mark: Mark | None = None
    producers: set[int] = field(default_factory=set)
    """Every producer id that wrote records of this partition for us."""
    before: tuple[Pair, ...] | None = None
    """Of what a MirrorMaker 2 had copied before the first run; None: nobody had."""

    def apply(self, row: ChunkRow) -> None:
        """Fold one row in (rules A to D)."""
        if (row.term, row.chunk) < (self.term, self.chunk) or not row.runs:
            return
        first = row.runs[0].ordinal
        self._cut(first)
        if row.term > self.term:
            self.term = row.term
            if self.mark is not None and self.mark.ordinal > first:
                self.mark = None
        self.chunk = row.chunk
        if row.before is not None:
            self.before = row.before
        self.runs.extend(row.runs)
        if row.producer_id >= 0:
            self.producers.add(row.producer_id)
        if row.mark is not None:
            self.mark = row.mark
        if row.fingerprint is not None:
            self.fingerprints[row.runs[-1].ordinal] = row.fingerprint

    def _cut(self, ordinal: int) -> None:
        at = bisect_right(self.runs, ordinal - 1, key=_ordinal)
        for run in self.runs[at:]:
            self.fingerprints.pop(run.ordinal, None)
        del self.runs[at:]

    def copy(self) -> PartitionMap:
        """One that may change while somebody reads this."""
        return replace(
            self,
            runs=list(self.runs),
            fingerprints=dict(self.fingerprints),
            producers=set(self.producers),
        )

    def tail(self, count: int) -> tuple[Run, ...]:
        """The newest runs, oldest first."""
        return tuple(self.runs[-count:])


def _ordinal(run: Run) -> int:
    return run.ordinal


def _upstream(run: Run) -> int:
    return run.upstream


def run_at(runs: Sequence[Run], ordinal: int) -> Run | None:
    """The run that holds this ordinal; None below the first."""
    at = bisect_right(runs, ordinal, key=_ordinal)
    return runs[at - 1] if at else None


def run_at_upstream(runs: Sequence[Run], upstream: int) -> Run | None:
    """The last run that begins at or below this upstream offset; None below the first."""
    at = bisect_right(runs, upstream, key=_upstream)
    return runs[at - 1] if at else None


def upstream_range(runs: Sequence[Run], ordinal: int, count: int) -> str:
    """The upstream offsets of `count` records from `ordinal` on, as `[first, next)` for a
    message.
    """
    first, last = run_at(runs, ordinal), run_at(runs, ordinal + count - 1)
    if first is None or last is None:
        return f"of ordinals [{ordinal}, {ordinal + count})"
    return f"[{first.upstream_of(ordinal)}, {last.upstream_of(ordinal + count - 1) + 1})"


def fold(rows: Iterable[ChunkRow]) -> dict[PartitionKey, PartitionMap]:
    """The maps of all partitions that have a row."""
    maps: dict[PartitionKey, PartitionMap] = {}
    for row in rows:
        known = maps.get(row.key)
        if known is None:
            known = maps[row.key] = PartitionMap(key=row.key, topic=row.topic)
        known.apply(row)
    return maps


@dataclass(slots=True)
class MapTail:
    """The end of a map as the lane that holds the term writes it: runs announced, and how many are
    durable.

    A lane hands its tail over with a release, so that the next one goes on with the same chunk.
    """

    key: PartitionKey
    topic: str
    term: Term
    chunk: int
    runs: list[Run]
    producer_id: int = -1
    mark: Mark | None = None
    fingerprint: int | None = None
    durable_ordinal: int = -1
    """Runs up to this ordinal are in the map topic; batches of later runs wait."""
    dirty: bool = False
    writing: int = 0
    """Writes of this tail that are on their way."""

    def announce(self, run: Run, fingerprint: int | None, *, always: bool = False) -> None:
        """Add a run that a batch about to be sent begins; `always`: even one that is known so."""
        if self.runs and run.continues(self.runs[-1]) and not always:
            return
        if self.runs and run.ordinal == self.runs[-1].ordinal:
            self.runs[-1] = run  # nothing was written for the announced one: this is what follows
        elif len(self.runs) >= RUNS_PER_CHUNK and self.durable_ordinal >= self.runs[-1].ordinal:
            self.chunk += 1
            self.runs = [run]
        else:
            self.runs.append(run)
        self.durable_ordinal = min(self.durable_ordinal, run.ordinal - 1)
        self.fingerprint = fingerprint
        self.dirty = True

    def row(self) -> ChunkRow:
        """The chunk as it is to be written now."""
        return ChunkRow(
            key=self.key,
            term=self.term,
            chunk=self.chunk,
            topic=self.topic,
            runs=tuple(self.runs),
            mark=self.mark,
            fingerprint=self.fingerprint,
            producer_id=self.producer_id,
        )

    def on_durable(self, run: Run) -> None:
        """A row that ended with this run is in the map topic."""
        held = run_at(self.runs, run.ordinal)
        if held == run or (held is None and run.ordinal < self.runs[0].ordinal):
            self.durable_ordinal = max(self.durable_ordinal, run.ordinal)

    def on_lost(self) -> None:
        """A write has an unknown outcome and may still arrive: go on under another key (rule C)."""
        self.chunk += 1
        self.dirty = True

    def place(self, mark: Mark) -> None:
        """Note how far the copy got, to be written with the next row or by itself."""
        if mark != self.mark:
            self.mark = mark
            self.dirty = True


def map_partition(topic: TopicPartition, partitions: int) -> int:
    """The partition of the map topic that holds a topic-partition's rows; the same for every
    writer.
    """
    value = 0
    for byte in topic.topic.encode():
        value = (value * 31 + byte) & 0x7FFFFFFF
    return (value + topic.partition) % partitions
