"""Results of comparing two logs: differing ranges, gaps that are no differences, and counts by day.

The counts have a digest that does not depend on order. The digest of a record is BLAKE2b of its
offset, its timestamp, and key, value and headers as stored in a batch. The digests of all records
of a day are added modulo 2^128. So sections and days can be combined in any order, and the position
of a record is part of its own digest. Equal records are digested with their source offset on both
sides, so both sums are equal exactly if nothing differs, whatever batches, codecs and offsets the
target has. The digest detects accidents, not forgeries.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from twinlog.mirror.findings import Span

DIGEST_BYTES: Final = 16
_MODULUS: Final = 1 << 8 * DIGEST_BYTES
_OFFSET_AND_TIME: Final = struct.Struct(">qq")

DAY_MS: Final = 86_400_000
NO_DAY: Final = -1
"""The number that stands for the day of records without a timestamp, and for all other days once
MOST_DAYS days have counts.
"""
MOST_DAYS: Final = 10_000
"""Maximum number of days with their own counts, because producers can set any timestamp."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Number of records, their bytes, and the sum of their digests modulo 2^128."""

    records: int = 0
    digested: int = 0
    """Number of the records whose digests are in `digest`."""
    batch_bytes: int = 0
    """Bytes of batches that were compared as stored."""
    record_bytes: int = 0
    """Bytes of decoded records: keys, values and headers."""
    digest: int = 0

    def add(self, other: Tally) -> None:
        """Add the counts that another section of the logs has."""
        self.records += other.records
        self.digested += other.digested
        self.batch_bytes += other.batch_bytes
        self.record_bytes += other.record_bytes
        self.digest = (self.digest + other.digest) % _MODULUS

    def add_batch(self, records: int, size: int) -> None:
        """Add a batch that was compared without decoding it."""
        self.records += records
        self.batch_bytes += size

    def add_records(self, records: int, size: int) -> None:
        """Add decoded records that are not digested."""
        self.records += records
        self.record_bytes += size

    def add_digest(self, offset: int, timestamp: int, rest: bytes) -> None:
        """Add a record and its digest. `rest`: key, value and headers, as stored in a batch."""
        self.records += 1
        self.digested += 1
        self.record_bytes += len(rest)
        head = _OFFSET_AND_TIME.pack(offset, timestamp)
        digest = blake2b(head + rest, digest_size=DIGEST_BYTES)
        self.digest = (self.digest + int.from_bytes(digest.digest(), "big")) % _MODULUS


@dataclass(slots=True, kw_only=True)
class Day:
    """The counts of one day, for both sides."""

    both: Tally = field(default_factory=Tally)
    """Counts of records that are equal on both sides."""
    source: Tally = field(default_factory=Tally)
    """Counts of source records that the target lacks, or whose counterpart on the target
    differs.
    """
    target: Tally = field(default_factory=Tally)

    def add(self, other: Day) -> None:
        """Add the counts that another section of the logs has for the same day."""
        self.both.add(other.both)
        self.source.add(other.source)
        self.target.add(other.target)


MOST_KEPT: Final = 10_000
"""Maximum number of differing ranges kept per partition. Ranges beyond it are only counted."""


class DifferenceKind(StrEnum):
    """How two logs differ."""

    MISSING = "missing"
    """The source has the records, the target does not."""
    EXTRA = "extra"
    """The target has records that are not copies of the source's."""
    DIFFERENT = "different"
    """Source and target have a record at the same position, but a consumer gets different
    contents.
    """
    REORDERED = "reordered"
    """Source and target have the same records in different orders."""
    SHIFTED = "shifted"
    """The target has equal records in the same order, but not at the offsets that the map has for
    them.
    """


class GapCause(StrEnum):
    """Valid reasons why records of one side are not on the other side, or are not compared."""

    BEFORE_COPY = "before the copy began"
    BEFORE_MAP = "on the target before the offset map begins"
    SOURCE_DELETED = "deleted on the source since"
    TARGET_DELETED = "deleted on the target since"
    SOURCE_CLEANED = "compacted away on the source"
    TARGET_CLEANED = "compacted away on the target"
    MARKERS = "transaction markers"
    ABORTED = "of aborted transactions"
    SKIPPED = "skipped by a person"
    ACCEPTED = "of other clients, accepted by an operator"
    OTHERS = "of other clients, in a shared topic"
    OWN_TIME = "with the target's own timestamp"


class Difference(Struct, frozen=True, kw_only=True):
    """One range of differing records."""

    kind: DifferenceKind
    source: Span | None
    target: Span | None
    records: int
    why: str = ""


@dataclass(slots=True, kw_only=True)
class Compared:
    """The result for one partition, filled while both logs are walked."""

    differences: list[Difference] = field(default_factory=list)
    unlisted_count: int = 0
    """Number of differences after the first MOST_KEPT, which are not in the list."""
    equal: int = 0
    """Number of records that are equal and at the offsets in the map."""
    by_bytes: int = 0
    """Number of compared records whose batches are byte-equal, so that nothing was decoded."""
    bytes: int = 0
    """Bytes of the target's batches that were read."""
    gaps: Counter[GapCause] = field(default_factory=Counter)
    """Number of records that one side lacks for a valid reason, by cause. Of deleted records and
    markers, the offsets are counted.
    """
    pending: Span | None = None
    """Source offsets from the first record that is not copied yet to the log's end, or None."""
    days: dict[int, Day] = field(default_factory=dict)
    """Counts by the UTC day of the records' timestamps, as days since 1970, or NO_DAY."""
    _is_open: bool = False
    """Whether the next difference may continue the last one, because no equal record is between
    them.
    """

    @property
    def is_identical(self) -> bool:
        return not self.differences

    def add_equal(self, count: int) -> None:
        """Count equal records."""
        self.equal += count
        self._is_open = False

    def day(self, timestamp_ms: int) -> Day:
        """Return the counts for the day of a record's timestamp."""
        number = NO_DAY if timestamp_ms < 0 else timestamp_ms // DAY_MS
        if number not in self.days and len(self.days) >= MOST_DAYS:
            number = NO_DAY
        day = self.days.get(number)
        if day is None:
            day = self.days[number] = Day()
        return day

    def add(self, following: Compared) -> None:
        """Add the result for the next section of the partition."""
        room = MOST_KEPT - len(self.differences)
        self.differences += following.differences[:room]
        self.unlisted_count += following.unlisted_count + len(following.differences[room:])
        self.equal += following.equal
        self.by_bytes += following.by_bytes
        self.bytes += following.bytes
        self.gaps.update(following.gaps)
        self.pending = following.pending if self.pending is None else self.pending
        for number, day in following.days.items():
            self.days.setdefault(number, Day()).add(day)

    def add_difference(
        self,
        kind: DifferenceKind,
        source: Span | None,
        target: Span | None,
        records: int,
        why: str = "",
    ) -> None:
        """Report a difference. If it continues the last one, both are merged."""
        difference = Difference(kind=kind, source=source, target=target, records=records, why=why)
        last = self.differences[-1] if self.differences else None
        joined = None if last is None or not self._is_open else _merged(last, difference)
        self._is_open = True
        if joined is not None:
            self.differences[-1] = joined
        elif len(self.differences) < MOST_KEPT:
            self.differences.append(difference)
        else:
            self.unlisted_count += 1


def _merged(last: Difference, difference: Difference) -> Difference | None:
    if (last.kind, last.why) != (
        difference.kind,
        difference.why,
    ) or last.kind is DifferenceKind.REORDERED:
        return None
    one_sided = (last.source is None, last.target is None)
    if one_sided != (difference.source is None, difference.target is None):
        return None
    source = _merged_span(last.source, difference.source)
    target = _merged_span(last.target, difference.target)
    return replace(last, source=source, target=target, records=last.records + difference.records)


def _merged_span(last: Span | None, span: Span | None) -> Span | None:
    if last is None or span is None:
        return None
    return Span(min(last.first, span.first), max(last.next, span.next))
