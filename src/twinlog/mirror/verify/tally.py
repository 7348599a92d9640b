"""What was compared, counted by the day of its records, with a digest that needs no order.

The digest of a record is BLAKE2b of its offset, timestamp, and key, value and headers as a batch
holds them. Those of all records of a day are added up modulo 2^128, so sections and days are put
together in any order, and the record's place is in its own digest. Equal records have their offset
of the source on both sides: so both sides' sums are equal exactly if nothing differs, whatever
batches, codecs and offsets the target has them in. It shows accidents, not forgeries.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Sized
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol

DIGEST_BYTES: Final = 16
_MODULUS: Final = 1 << 8 * DIGEST_BYTES
_OFFSET_AND_TIME: Final = struct.Struct(">qq")

DAY_MS: Final = 86_400_000
NO_DAY: Final = -1
"""Of records without a time, and of those of further days where there are too many."""
MOST_DAYS: Final = 10_000
"""Timestamps are anybody's."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Some records of one side."""

    records: int = 0
    digested: int = 0
    """Of these, those that are in the digest."""
    batch_bytes: int = 0
    """Of batches that were compared as bytes, as they are stored."""
    record_bytes: int = 0
    """Of records that were decoded: keys, values and headers."""
    digest: int = 0

    def add(self, other: Tally) -> None:
        """Those of another section."""
        self.records += other.records
        self.digested += other.digested
        self.batch_bytes += other.batch_bytes
        self.record_bytes += other.record_bytes
        self.digest = (self.digest + other.digest) % _MODULUS

    def add_batch(self, records: int, size: int) -> None:
        """A batch that was not decoded."""
        self.records += records
        self.batch_bytes += size

    def add_records(self, records: int, size: int) -> None:
        """Decoded ones that are not digested."""
        self.records += records
        self.record_bytes += size

    def add_digest(self, offset: int, timestamp: int, rest: bytes) -> None:
        """A record; `rest`: key, value and headers, as a batch holds them."""
        self.records += 1
        self.digested += 1
        self.record_bytes += len(rest)
        head = _OFFSET_AND_TIME.pack(offset, timestamp)
        found = blake2b(head + rest, digest_size=DIGEST_BYTES)
        self.digest = (self.digest + int.from_bytes(found.digest(), "big")) % _MODULUS


@dataclass(slots=True, kw_only=True)
class Day:
    """Of both sides."""

    both: Tally = field(default_factory=Tally)
    """Records that are equal."""
    source: Tally = field(default_factory=Tally)
    """Records of the source that are not."""
    target: Tally = field(default_factory=Tally)

    def add(self, other: Day) -> None:
        """The same day of another section."""
        self.both.add(other.both)
        self.source.add(other.source)
        self.target.add(other.target)


class _Days(Container[int], Sized, Protocol): ...


def day_of(timestamp_ms: int, known: _Days) -> int:
    """Days since 1970, in UTC."""
    if timestamp_ms < 0:
        return NO_DAY
    number = timestamp_ms // DAY_MS
    return number if number in known or len(known) < MOST_DAYS else NO_DAY
