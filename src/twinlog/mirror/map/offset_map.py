"""The offset map of one partition: runs that give the upstream and target offset of every ordinal.

    upstream   100 101 102  .  104 105  .   .  108        dots: markers, compacted, aborted
    ordinal      0   1   2       3   4           5        number of this flow's records before it
    downstream  70  71  72      73  74          75        K = downstream - ordinal is 70 for all
    runs: (0, 100, 70) (3, 104, 73) (5, 108, 75)

**Problem.** Source and target offsets drift apart at every gap of the source. After a crash, the
next lane must know which source record follows the last one on the target, and a consumer group's
offset must be translated exactly, however old it is. The map is written by lanes that die or only
seem dead, to a topic that is compacted at any moment. No write of any lane must make the map wrong.

Rows are written to the compacted topic *ahead* of the data that they announce (`lane.map_writer`).
A row is a chunk: all runs from its first ordinal on. It is rewritten while it grows, so compaction
keeps one value per chunk.

**Rules**

A. The key is (topic IDs, partition, term, chunk). A term is one cold start of the partition. It
   consists of the generation of the flow's leader and a number that this leader never uses twice.
   Only the lane that has a term writes its keys.
B. The map follows from its *table* alone: the newest value of each key, which compaction keeps.
   Chunks are applied in the order of (term, chunk), and the first run of each voids every run at or
   above its ordinal in earlier chunks. The order in which rows arrived, their distribution over the
   topic's partitions, and the progress of the cleaner make no difference.
C. A new term's first chunk is its *cut*. The cut repeats the runs of the newest chunk that was
   read, up to the position that the start has found (or to the point where the map was wrong). So
   the cut begins at or before any chunk that a lane of the previous term may still write. Such a
   late row, written by a seemingly dead lane, changes only the value of its own key, and everything
   in it that could be wrong is above the cut's first ordinal. Repeating the newest chunk is enough
   for two reasons: a lane writes the first row of a chunk after the last row of the previous chunk,
   and it repeats the content of a lost write under higher chunk numbers. So if the newest chunk of
   a term was read, a lower chunk can change only if the newest chunk repeats its content.
D. Within a term, chunks only grow, and the first ordinal of a chunk never changes. A write with an
   unknown outcome is never repeated under its key. Runs that are not known to be durable go into
   new chunks instead.
E. Ordinals rise strictly within a partition after the cut. Upstream and downstream offsets rise
   with them.
F. A null value deletes a chunk. It is written if both logs have deleted the records of the chunk's
   runs or, for a branch (`mirror.copy.fan_out`), if the runs are below the branch's `Mark`. The
   first chunk of the copy is never deleted (`control.duties.own_topics`).
G. The very first row fixes where the copy began. `twinlog.start` is never evaluated again for this
   pair of logs, nor for this source log if its target is created again. The row is written before
   any record, and before the partition is released cleanly, even if there is nothing to copy. If a
   lane dies before it writes the row, it has written nothing. The next lane evaluates the start
   again, as soon as no request of the dead lane can arrive any more (`control/lanes/takes.py`).

**What a generation voids.** Terms are compared as (generation, start). So the rows of a newer
generation are above all rows of older generations, no matter when the older rows are written. The
claim of a generation voids nothing. The rows of the generation do, partition by partition: the
first row of a term voids the runs at or above its first ordinal, and no runs below it. Records in
the logs are never void. The target's log counts them, whichever generation wrote them.

    term, chunk   ordinals of the runs
    (3, 0), 4         200 230 260 290       a lane announces these, and dies; the log ends at 250
    (4, 0), 0         200 230 | 250         the cut: repeats chunk 4 up to the position, 250
    (3, 0), 4         200 230 260 290 310   a late row of the same key: void from ordinal 200 on
    the map       ... 200 230   250 ...

**What may fail at a row**

- *The lane dies before the row is written*: no batch that needs the row was sent. The next term
  reads the map without the row.
- *The response to the row is lost*: all runs that are not durable are written to chunks with new
  numbers. The lost row may arrive at any time.
- *A lane that was thought dead writes the row late*: the newer term's first chunk voids the row.
- *The row arrives after the next term has read the map and before that term's first row*: the first
  row voids the late row, too, because it repeats the newest chunk that was read.
- *The cleaner runs at any moment*: the table is the same before and after.
- *The map's partition loses its newest rows*: running lanes write their rows again
  (`lane.map_writer`). A start detects the loss by comparing records (`mirror.start.resume_point`).

**Rejected:** to apply the rows in log order. The cleaner removes a valid row if a late row with the
same key follows, so the same log had another meaning after compaction (ADR 17). Also rejected: a
separate record for a cut, because it could exist without the row that it belongs to (ADR 2).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Final, NamedTuple

from twinlog.errors import CorruptData
from twinlog.mirror.map.mm2_offsets import Pair
from twinlog.mirror.map.runs import (
    PackedChunk,
    PackedRuns,
    Run,
    deltas_of,
    run_at,
    run_at_upstream,
    upstream_range,
)
from twinlog.model import TopicId, TopicPartition

__all__ = [
    "NO_TERM",
    "ChunkRow",
    "Mark",
    "PartitionKey",
    "PartitionMap",
    "Run",
    "StoredRow",
    "Term",
    "map_home",
    "map_homes",
    "map_partition",
    "row_key",
    "run_at",
    "run_at_upstream",
    "tombstone_key",
    "upstream_range",
]

ROW_VERSION: Final = 1
BRANCH_ROW_VERSION: Final = 2
"""Version of the rows of branches (`mirror.copy.fan_out`), whose keys are longer. The first release
cannot read such rows.
"""
TRANSFORM_ROW_VERSION: Final = 3
"""Version of rows of transformed records. A release without transforms must reject such rows.
Otherwise it would copy the next records untransformed, and report the transformed ones as
different.
"""
END_OF_MAP: Final = (1 << 63) - 1

MAP_PARTITIONS: Final = 8
"""Partition count with which the map topic is created."""

MOST_REPEATED: Final = 1_000
"""If the newest chunk has more runs than this, the next term does not repeat its runs (rule C).
`mirror.map.map_tail` writes chunks of less than half this size.
"""

RUNS_KEY: Final = b'"runs":'


class Term(NamedTuple):
    """The identity of one cold start of a partition: the generation of the flow's leader, and a
    number that this leader uses once. Terms are compared as (generation, start).
    """

    generation: int
    start: int


NO_TERM: Final = Term(-1, -1)


class PartitionKey(NamedTuple):
    """The pair of logs to which a map belongs. A re-created topic is a different log."""

    source_topic_id: TopicId
    target_topic_id: TopicId
    partition: int
    branch: int = -1
    """The target partition if records are distributed by key (`mirror.copy.fan_out`), else -1."""
    branches: int = 0
    """Number of target partitions, or 0 without distribution by key. If the number changes, a
    record's key may belong to another partition, so this number is a part of the map's identity.
    """


class Mark(NamedTuple):
    """A point that the copy has reached: the flow has written `ordinal` records to the target
    partition, all below target offset `downstream`.
    """

    ordinal: int
    downstream: int
    is_final: bool = False
    """Whether nothing was in flight when the mark was made, so that no record of this flow is at or
    after `downstream`. Before a lane sends another batch, it writes a row with a mark that is not
    final.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class _MapRow:
    """The fields of a row of the map topic, except the runs."""

    key: PartitionKey
    term: Term
    chunk: int
    topic: str
    """Name of the upstream topic."""
    mark: Mark | None = None
    fingerprint: int | None = None
    """CRC32C of the first record of the last run in the row (`wire.records.fingerprint`), or None
    if unknown.
    """
    producer_id: int = -1
    """Producer ID under which this flow writes, to recognize its records even if the state topic is
    lost. -1 if none.
    """
    before: tuple[Pair, ...] | None = None
    """Offsets of records that MirrorMaker 2 copied before the first run; None if it copied none."""
    transform: str = ""
    """Digest of the transform that made the records of the runs, or empty if they are unchanged."""

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _MapRow.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow(_MapRow):
    """A row of the map topic to be written, with its runs as objects."""

    runs: tuple[Run, ...]

    def encode(self) -> tuple[bytes, bytes]:
        """Return the row's key and value as compact JSON."""
        version = BRANCH_ROW_VERSION if self.key.branches else ROW_VERSION
        if self.transform:
            version = TRANSFORM_ROW_VERSION
        value: dict[str, object] = {"v": version, "topic": self.topic, "runs": deltas_of(self.runs)}
        if self.mark is not None:
            value["mark"] = [self.mark.ordinal, self.mark.downstream]
            if self.mark.is_final:
                value["final"] = True
        if self.fingerprint is not None:
            value["crc"] = self.fingerprint
        if self.producer_id >= 0:
            value["pid"] = self.producer_id
        if self.before is not None:
            value["before"] = [offset for pair in self.before for offset in pair]
        if self.transform:
            value["transform"] = self.transform
        return _key(self.key, self.term, self.chunk), _json(value)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> ChunkRow:
        """Read a row. Raises CorruptData if it is invalid or was written by a newer version."""
        return StoredRow.decode(key, value).unpacked()

    def stored(self) -> StoredRow:
        """Return the row with packed runs, as readers of the map topic store it."""
        runs = PackedChunk.of(self.runs) if self.runs else None
        return StoredRow(runs=runs, **self._fields())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow(_MapRow):
    """A row of the map topic as it was read. Its runs stay packed until they are used."""

    runs: PackedChunk | None
    """The packed runs, or None for a row without runs, which is ignored."""

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> StoredRow:
        """Read a row. Raises CorruptData if it is invalid or was written by a newer version."""
        try:
            fields = json.loads(value)
            # checked first, because rows of newer releases may lack the other keys
            version = fields["v"]
            if version > TRANSFORM_ROW_VERSION:
                raise CorruptData(
                    f"an offset map row has version {version}, this release reads up to "
                    f"{TRANSFORM_ROW_VERSION}: upgrade Twinlog",
                    code="STATE_TOO_NEW",
                )
            partition, term, chunk = row_key(key)
            mark, before = fields.get("mark"), fields.get("before")
            return cls(
                key=partition,
                term=term,
                chunk=chunk,
                topic=fields["topic"],
                runs=_packed(fields["runs"], value),
                mark=None if mark is None else Mark(mark[0], mark[1], bool(fields.get("final"))),
                fingerprint=fields.get("crc"),
                producer_id=fields.get("pid", -1),
                before=None if before is None else _pairs(before),
                transform=fields.get("transform", ""),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptData(
                f"a row of the offset map cannot be read: {error!r}", code="STATE_CORRUPT"
            ) from error

    def unpacked(self) -> ChunkRow:
        """Return the row with its runs as objects."""
        runs = () if self.runs is None else tuple(self.runs.unpacked())
        return ChunkRow(runs=runs, **self._fields())


def row_key(key: bytes) -> tuple[PartitionKey, Term, int]:
    """Return (partition, term, number of the chunk) of a row's key. Raises ValueError or TypeError
    if the key is invalid.
    """
    source_id, target_id, partition, generation, start, chunk, *branch = json.loads(key)
    known = PartitionKey(TopicId(source_id), TopicId(target_id), partition, *branch)
    return known, Term(generation, start), chunk


def tombstone_key(key: PartitionKey, term: Term, chunk: int) -> bytes:
    return _key(key, term, chunk)


def _key(key: PartitionKey, term: Term, chunk: int) -> bytes:
    parts: list[object] = [*key[:3], *term, chunk]
    if key.branches:
        parts += key[3:]
    return _json(parts)


def _packed(deltas: Any, value: bytes) -> PackedChunk | None:
    if len(deltas) % 3 or not {int}.issuperset(map(type, deltas)):
        raise ValueError("its runs are not triples of integers")
    if not deltas:
        return None
    begin = value.find(RUNS_KEY)
    end = value.find(b"]", begin)
    raw = value[begin + len(RUNS_KEY) : end + 1]
    is_ours = raw.startswith(b"[") and raw.count(b",") + 1 == len(deltas)
    return PackedChunk(deltas, raw if begin >= 0 and is_ours else None)


def _pairs(offsets: Sequence[int]) -> tuple[Pair, ...]:
    return tuple(map(Pair, offsets[::2], offsets[1::2]))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class _Entry(NamedTuple):
    """A chunk of the table (rule B), without the runs that later chunks void."""

    term: Term
    chunk: int
    runs: PackedChunk
    fingerprint: int | None
    """Fingerprint of the last run's first record, or None if unknown or if the last run is void."""
    transform: str


def _id(entry: _Entry) -> tuple[Term, int]:
    return entry.term, entry.chunk


def _first_ordinal(entry: _Entry) -> int:
    return entry.runs.first.ordinal


@dataclass(slots=True)
class PartitionMap:
    """The offset map of one partition, computed from the table of its rows (rule B)."""

    key: PartitionKey
    topic: str
    term: Term = NO_TERM
    """Term of the newest chunk."""
    chunk: int = -1
    mark: Mark | None = None
    producers: set[int] = field(default_factory=set)
    """All producer IDs under which this flow wrote records of this partition."""
    before: tuple[Pair, ...] | None = None
    """Offsets of records that MirrorMaker 2 copied before the first run; None if it copied none."""
    _entries: list[_Entry] = field(default_factory=list)
    """Chunks that are not entirely void, in rising order of (term, chunk) and of first ordinal."""
    _runs: PackedRuns | None = None
    """The runs of the entries, built on the first access after a change."""

    @property
    def runs(self) -> Sequence[Run]:
        """All runs that are not void. A returned sequence never changes."""
        runs = self._runs
        if runs is None:
            runs = self._runs = PackedRuns([entry.runs for entry in self._entries])
        return runs

    @property
    def fingerprints(self) -> dict[int, int]:
        """Fingerprints of records by ordinal. Each chunk has at most one: that of the first record
        of its last run.
        """
        return {
            entry.runs.last_ordinal: entry.fingerprint
            for entry in self._entries
            if entry.fingerprint is not None
        }

    @property
    def transform(self) -> str:
        """Digest of the transform of the newest chunk, or an empty string if it has none."""
        return self._entries[-1].transform if self._entries else ""

    @property
    def transform_begins(self) -> int:
        """Lowest ordinal from which on all chunks have the transform of the newest chunk."""
        newest = takewhile(lambda entry: entry.transform == self.transform, self._entries[::-1])
        return min(map(_first_ordinal, newest), default=0)

    @property
    def transformed(self) -> tuple[tuple[int, int], ...]:
        """Ranges [first, next) of the ordinals of transformed records. The last range ends at
        END_OF_MAP if the newest chunk has transformed records.
        """
        spans: list[tuple[int, int]] = []
        ends = [*map(_first_ordinal, self._entries[1:]), END_OF_MAP]
        for entry, end in zip(self._entries, ends, strict=False):
            if not entry.transform:
                continue
            begin = _first_ordinal(entry)
            if spans and spans[-1][1] == begin:
                begin = spans.pop()[0]
            spans.append((begin, end))
        return tuple(spans)

    @property
    def open_from(self) -> int:
        """First ordinal of the newest chunk, which the next term repeats (rule C).

        -1 if there is no chunk, or if the newest chunk has more than MOST_REPEATED runs, as only
        earlier releases wrote.
        """
        newest = self._entries[-1] if self._entries else None
        is_ours = newest is not None and newest.runs.count <= MOST_REPEATED
        return _first_ordinal(newest) if newest is not None and is_ours else -1

    def apply(self, row: ChunkRow | StoredRow) -> None:
        """Apply one row to the table (rules A to D)."""
        stored = row.stored() if isinstance(row, ChunkRow) else row
        if stored.producer_id >= 0:
            # added even if the row is void, because the flow may have written records under this ID
            self.producers.add(stored.producer_id)
        if stored.runs is None:
            return
        if stored.before is not None:
            self.before = stored.before
        self._note_mark(stored, stored.runs.first.ordinal)
        self.term, self.chunk = max((stored.term, stored.chunk), (self.term, self.chunk))
        self._store_entry(
            _Entry(stored.term, stored.chunk, stored.runs, stored.fingerprint, stored.transform)
        )

    def _note_mark(self, row: StoredRow, first: int) -> None:
        if (row.term, row.chunk) >= (self.term, self.chunk):
            if row.term > self.term and self.mark is not None and self.mark.ordinal > first:
                self.mark = None
            if row.mark is not None:
                self.mark = row.mark

    def _store_entry(self, entry: _Entry) -> None:
        entries, first = self._entries, _first_ordinal(entry)
        index = bisect_left(entries, _id(entry), key=_id)
        if index < len(entries) and _id(entries[index]) == _id(entry):
            del entries[index]
        if index < len(entries):
            until = _first_ordinal(entries[index])
            if first >= until:
                self._runs = None
                return  # newer chunks void all runs of this one
            entry = _without_runs_from(entry, until)
        begin = bisect_left(entries, first, hi=index, key=_first_ordinal)
        kept = [_without_runs_from(entries[begin - 1], first)] if begin else []
        entries[max(begin - 1, 0) : index] = [*kept, entry]
        self._runs = None

    def remove(self, term: Term, chunk: int) -> None:
        """Remove a chunk after a null value for its key was read (rule F)."""
        at = bisect_left(self._entries, (term, chunk), key=_id)
        if 0 < at < len(self._entries) and _id(self._entries[at]) == (term, chunk):
            del self._entries[at]
            self._runs = None

    def prunable(self, ordinal: int) -> list[tuple[Term, int]]:
        """Return (term, number) of each chunk that may be deleted because its records have ordinals
        below `ordinal`. The first and the newest chunk are never included.
        """
        next_entry = self._entries[1:-1]
        following = self._entries[2:]
        return [
            _id(entry)
            for entry, after in zip(next_entry, following, strict=True)
            if _first_ordinal(after) <= ordinal
        ]

    def copy(self) -> PartitionMap:
        """Return a copy, which can be changed while other threads read this map."""
        return replace(self, producers=set(self.producers), _entries=list(self._entries))


def _without_runs_from(entry: _Entry, ordinal: int) -> _Entry:
    """Return the entry without its runs that begin at or above `ordinal`."""
    runs = entry.runs.below(ordinal)
    return entry if runs is entry.runs else entry._replace(runs=runs, fingerprint=None)


def map_partition(topic: TopicPartition, partitions: int) -> int:
    """Return the partition of the map topic to which the rows of `topic` belong, if the map topic
    has `partitions` partitions.
    """
    value = 0
    for byte in topic.topic.encode():
        value = (value * 31 + byte) & 0x7FFFFFFF
    return (value + topic.partition) % partitions


def map_home(topic: TopicPartition, partitions: int) -> int:
    """Return the partition of the map topic to which lanes write the rows of `topic`. `partitions`:
    partition count of the map topic.

    Partitions that were added to the map topic later are not used, so that all rows of `topic` are
    in the same partition. Rows in several partitions would do no harm, either (rule B).
    """
    return map_partition(topic, min(partitions, MAP_PARTITIONS))


def map_homes(topic: TopicPartition, partitions: int) -> frozenset[int]:
    """Return all partitions of the map topic in which `topic` can have rows. `partitions`:
    partition count of the map topic.
    """
    fewest = min(partitions, MAP_PARTITIONS)
    return frozenset(map_partition(topic, count) for count in range(fewest, partitions + 1))
