"""Counts compared records by day, with a digest that does not depend on order.

The digest of a record is BLAKE2b of its offset, its timestamp, and key, value and headers as stored
in a batch. The digests of all records of a day are added modulo 2^128. So sections and days can be
combined in any order, and the position of a record is part of its own digest. Equal records are
digested with their source offset on both sides, so both sums are equal exactly if nothing differs,
whatever batches, codecs and offsets the target has. The digest detects accidents, not forgeries.
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
"""The day of records without a timestamp, and of all further days if there are too many."""
MOST_DAYS: Final = 10_000
"""Maximum number of days, because producers may set any timestamp."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts for some records of one side."""

    records: int = 0
    digested: int = 0
    """Number of records that are in the digest."""
    batch_bytes: int = 0
    """Bytes of batches that were compared as stored."""
    record_bytes: int = 0
    """Bytes of decoded records: keys, values and headers."""
    digest: int = 0

    def add(self, other: Tally) -> None:
        """Add the counts of another section."""
        self.records += other.records
        self.digested += other.digested
        self.batch_bytes += other.batch_bytes
        self.record_bytes += other.record_bytes
        self.digest = (self.digest + other.digest) % _MODULUS

    def add_batch(self, records: int, size: int) -> None:
        """Count a batch that was not decoded."""
        self.records += records
        self.batch_bytes += size

    def add_records(self, records: int, size: int) -> None:
        """Count decoded records without a digest."""
        self.records += records
        self.record_bytes += size

    def add_digest(self, offset: int, timestamp: int, rest: bytes) -> None:
        """Count a record with its digest. `rest`: key, value and headers, as stored in a batch."""
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
    """Records that are equal."""
    source: Tally = field(default_factory=Tally)
    """Source records that are not equal."""
    target: Tally = field(default_factory=Tally)

    def add(self, other: Day) -> None:
        """Add the same day of another section."""
        self.both.add(other.both)
        self.source.add(other.source)
        self.target.add(other.target)


class _Days(Container[int], Sized, Protocol): ...


def day_of(timestamp_ms: int, known: _Days) -> int:
    """Return the number of days since 1970, in UTC, or NO_DAY."""
    if timestamp_ms < 0:
        return NO_DAY
    number = timestamp_ms // DAY_MS
    return number if number in known or len(known) < MOST_DAYS else NO_DAY
