"""Turns fetched bytes into batches that can be sent.

| batch                                                   | handling                           |
| ------------------------------------------------------- | ---------------------------------- |
| v2, dense, CreateTime, within the target's size limit   | shallow: header rewritten in place |
| several of these, small and contiguous                  | joined, if configured              |
| one of these, if another codec is configured            | payload recompressed               |
| holes, LogAppendTime, too large, trimmed, sequence wrap | deep: decoded and re-encoded       |
| message format 0 or 1                                   | deep, as format 2                  |
| control batch, empty, aborted under read_committed      | skipped: a gap in the offset map   |
| contains a record to skip (`skips`)                     | deep, without that record          |
| to be skipped as a whole                                | skipped without checking its bytes |
| CRC mismatch, invalid data                              | CorruptData: nothing of it is sent |

A shallow batch keeps its payload, so it is never decompressed. Only its header changes: producer
ID, epoch and sequence, and the CRC over them. The source's CRC is checked before it is replaced.
Otherwise a bit flipped at the source would get a valid CRC on the target.

Consecutive shallow batches are rewritten by one call of a kernel (`Kernels.rewrite`), which stops
before the first batch that needs anything else. `_next` handles that batch. It can handle every
batch, and does so if there are no compiled kernels.

Records get their ordinals here, in the order of the source. The ordinal is the number of records
that the flow wrote before (`mirror.start_point`). A skipped record gets none, so a skip looks like
a gap of the source, after which the next record begins a run of the offset map.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from msgspec import Struct

from twinlog.errors import CorruptData, TwinlogError
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.skips import Skip, skip_at
from twinlog.model import SEQUENCE_MODULUS, Isolation, sequence_of
from twinlog.wire.compression import Recompression
from twinlog.wire.joining import FEW_RECORDS, join_run
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.shapes import BatchRewrite
from twinlog.wire.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Codec,
    read_headers,
    rewrite_header,
    verify_crc,
)
from twinlog.wire.records import (
    Rows,
    control_type,
    decode_legacy,
    decode_rows,
    encode_sized,
    fingerprint,
    first_record,
    rows_of,
)

MAGIC_V2: Final = 2
REWRITTEN_TOGETHER: Final = 256
"""Maximum number of batches that one call of the kernel rewrites."""
_BASE_OFFSET: Final = struct.Struct(">q")
_BEGIN_AND_COUNT: Final = struct.Struct(">qi45xi")
"""Base offset, length and record count in the header of a batch."""


class Aborted(Protocol):
    """An aborted transaction, as the broker lists it in a Fetch response."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class OutBatch(Struct, kw_only=True):
    """A batch to be sent, maybe several times. Its header has this flow's producer fields, and
    `ordinal` is the number of records that the flow writes to the target partition before this
    batch.
    """

    ordinal: int
    count: int
    data: memoryview
    upstream: int
    """Upstream offset of the batch's first record."""
    upstream_next: int
    """First upstream offset after this batch."""
    runs: tuple[Run, ...]
    """Runs of the offset map (`mirror.map.runs.Run`) that begin in this batch. Their rows must be
    durable before the batch is sent.
    """
    fingerprint: int | None
    max_timestamp: int
    oldest_timestamp: int
    """Oldest known timestamp of the batch's records. If it is old, the whole batch counts as old,
    because another lane may send that record alone (`batch_sizes`). For a batch that passes
    unchanged, it is the lower of the first record's timestamp and the maximum.
    """
    leader_epoch: int
    sent: int = 0
    """Number of times the batch was sent."""
    offsets: array[int] | None = None
    """Upstream offset of each record, or None if `upstream` and `runs` determine these offsets. Set
    in copies whose records are distributed by key or transformed.
    """

    @property
    def next_ordinal(self) -> int:
        return self.ordinal + self.count

    def upstream_at(self, index: int) -> int:
        """Return the upstream offset of the record at this index."""
        if self.offsets is not None:
            return self.offsets[index]
        ordinal = self.ordinal + index
        run = next((run for run in reversed(self.runs) if run.ordinal <= ordinal), None)
        return self.upstream + index if run is None else run.upstream_of(ordinal)


class Intake:
    """The intake of one partition: where to read next (`position`), and the next record's ordinal
    (the number of records that the flow wrote before).
    """

    def __init__(  # noqa: PLR0913 (keyword-only)
        self,
        *,
        position: int,
        ordinal: int,
        k: int,
        last_run: Run | None,
        producer_id: int,
        isolation: Isolation,
        limit_bytes: int,
        last_fetched_epoch: int = -1,
        recompression: Recompression | None = None,
        skips: Sequence[Skip] = (),
        join_bytes: int = 0,
    ) -> None:
        self.position = position
        self.ordinal = ordinal
        self.k = k
        self.limit_bytes = limit_bytes
        self.last_fetched_epoch = last_fetched_epoch
        """Source leader epoch of offset `position` - 1, or -1 if unknown. Each Fetch names this
        epoch. If the epoch ended before the position, the source responds that its log was
        truncated.
        """
        self.jumps: list[tuple[int, int]] = []
        """Ranges [first, next) of source offsets without a batch, as seen in Fetch responses. The
        lane reads and empties the list.
        """
        self.applied_skips: list[tuple[int, int]] = []
        """Ranges [first, next) of source offsets that were skipped at an operator's request
        (`skips`). The lane reads and empties the list.
        """
        self.batches = 0
        """Number of batches that were read and not skipped."""
        self.deep_batches = 0
        self.packed_batches = 0
        """Number of batches whose payload was recompressed with another codec."""
        self._last_run = last_run
        self._producer_id = producer_id
        self._reads_committed = isolation is Isolation.READ_COMMITTED
        self._recompression = recompression
        self._skips = tuple(skips)
        self._rewrites = type(self) is Intake
        """Whether batches may pass unchanged or be joined. Subclasses decode every batch."""
        self._codecs_kept = _kept_codecs(recompression)
        self.join_bytes = min(join_bytes, limit_bytes) if self._rewrites else 0
        """Maximum size of a joined batch in bytes; 0 disables joining."""

    def take(self, records: memoryview, aborted: Iterable[Aborted], end: int) -> list[OutBatch]:
        """Return the batches of one Fetch response that begin below `end`.

        If a batch is bad (corrupt, or not to be decoded), the batches before it are returned, and
        the next response begins with the bad one. If the first batch is bad, a TwinlogError with
        its offset is raised.
        """
        out: list[OutBatch] = []
        rolled_back = RolledBack(aborted if self._reads_committed else ())
        at: int | None = 0
        good = self.ordinal, self.last_fetched_epoch, self._last_run
        try:
            while at is not None and at < len(records):
                next_at = self._rewritten(records, at, end, rolled_back, out)
                at = next_at or self._next(records, at, end, rolled_back, out)
                good = self.ordinal, self.last_fetched_epoch, self._last_run
        except TwinlogError:
            self.ordinal, self.last_fetched_epoch, self._last_run = good
            if not out:
                raise
        return out

    def _rewritten(
        self,
        records: memoryview,
        start: int,
        end: int,
        rolled_back: RolledBack,
        batches: list[OutBatch],
    ) -> int:
        """Append to `batches` those from byte `start` on that pass unchanged, up to the first one
        that does not.

        Return the position in `records` of the first batch that does not pass, or 0 if no batch was
        appended.
        """
        position, ordinal, run = self.position, self.ordinal, self._last_run
        if not self._rewrites or position >= end or _is_alone(position, self._skips, rolled_back):
            return 0
        if self.join_bytes and _is_followed(records, start):
            return 0
        attributes = records[start + ATTRIBUTES_POSITION + 1 : start + ATTRIBUTES_POSITION + 2]
        if not attributes or not self._codecs_kept >> (attributes[0] & CODEC_MASK) & 1:
            return 0  # this batch must be recompressed, so the kernel would return 0, too
        begins = run is None or not Run(ordinal, position, self.k + ordinal).continues(run)
        rewrite = BatchRewrite(
            start,
            position,
            self.last_fetched_epoch,
            begins,
            end,
            self.limit_bytes,
            FEW_RECORDS if self.join_bytes else 0,
            self._codecs_kept,
            self._producer_id,
            sequence_of(ordinal),
        )
        most = min(REWRITTEN_TOGETHER, (len(records) - start) // HEADER_BYTES)
        rewritten = CHOSEN.kernels.rewrite(records, rewrite, most)
        for begin, length, base, count, first, latest, epoch, mark in rewritten.rows:
            begun = None if mark < 0 else self._run(ordinal, base)
            batches.append(
                OutBatch(
                    ordinal=ordinal,
                    count=count,
                    data=records[begin : begin + length],
                    upstream=base,
                    upstream_next=base + count,
                    runs=() if begun is None else (begun,),
                    fingerprint=None if begun is None else mark,
                    max_timestamp=latest,
                    oldest_timestamp=min(first, latest),
                    leader_epoch=epoch,
                )
            )
            ordinal += count
            self.batches += 1
        self.ordinal, self.position = ordinal, rewritten.next_offset
        self.last_fetched_epoch = rewritten.leader_epoch
        return rewritten.at if rewritten.at > start else 0

    def _next(
        self,
        records: memoryview,
        start: int,
        end: int,
        rolled_back: RolledBack,
        batches: list[OutBatch],
    ) -> int | None:
        """Handle the batch at byte `start`, or several that are joined, and append the results to
        `batches`.

        Return the position in `records` of the next batch, or None if nothing more of the response
        is to be read.
        """
        header, _ = next(read_headers(records, start), (None, start))
        if header is None:
            if start:
                return None
            # a broker always sends the first batch whole, whatever its size
            raise CorruptData(
                f"the source returned only {len(records)} bytes of the batch at offset "
                f"{self.position}, less than the length in the batch's header"
            )
        next_at = start + header.length
        batch = records[start:next_at]
        if header.next_offset <= self.position:
            rolled_back.skip(header, batch)
            return next_at
        if header.base_offset >= end:
            return None
        if header.base_offset > self.position and header.magic >= MAGIC_V2:
            self.jumps.append((self.position, header.base_offset))
        if self._skips and self._is_left_out(header, batch):
            # stop here, because the skipped batch may contain an abort marker, so that
            # `rolled_back` may be wrong for later batches; the next response lists the aborted
            # transactions again
            return None
        joined = self._joined(header, records, start, end, rolled_back)
        if joined is not None:
            batches.append(joined[0])
            return joined[1]
        batches += self._convert_batch(header, records, start, rolled_back)
        return next_at

    def _joined(
        self,
        header: BatchHeader,
        records: memoryview,
        start: int,
        end: int,
        rolled_back: RolledBack,
    ) -> tuple[OutBatch, int] | None:
        """Join small batches from the one at byte `start` on.

        Return (joined batch, position in `records` of the batch after it), or None if the batch at
        `start` must be handled alone.
        """
        if not self.join_bytes or not _is_followed(records, start):
            return None
        if header.magic < MAGIC_V2 or header.base_offset < self.position:
            return None
        is_alone = _is_alone(header.base_offset, self._skips, rolled_back)
        if is_alone or header.attributes & CODEC_MASK > max(Codec):
            return None
        joined = join_run(
            records,
            start,
            header,
            end=end,
            most_bytes=self.join_bytes,
            most_records=SEQUENCE_MODULUS - sequence_of(self.ordinal),
            codec=self._joined_codec(header),
        )
        if joined is None:
            return None
        out = self._next_batch(
            header,
            memoryview(joined.data),
            records[start : start + header.length],
            count=joined.records,
            upstream_next=joined.next_offset,
            stamps=(joined.least_timestamp, joined.most_timestamp),
        )
        self.batches += joined.batches
        if self._joined_codec(header) is not header.codec:
            self.packed_batches += joined.batches
        self.last_fetched_epoch = header.leader_epoch
        return out, joined.next_at

    def _joined_codec(self, header: BatchHeader) -> Codec:
        wanted = self._recompression
        if wanted is None or (header.codec is not Codec.NONE and not wanted.every):
            return header.codec
        return wanted.codec

    def _convert_batch(
        self, header: BatchHeader, records: memoryview, start: int, rolled_back: RolledBack
    ) -> Sequence[OutBatch]:
        try:
            out = self._decode(header, records[start : start + header.length], rolled_back)
        except CorruptData as error:
            error.poison = self._bounds(header, records, start)
            raise
        # `position` is now right after this batch, so the batch's epoch is that of offset
        # `position` - 1; it is -1 for old message formats
        self.last_fetched_epoch = header.leader_epoch
        return out

    def _bounds(
        self, header: BatchHeader, records: memoryview, start: int
    ) -> tuple[int, int] | None:
        """Return the source offsets [first, next) of a batch that cannot be decoded, or None if its
        end is unknown.

        The batch's own header may be wrong, but the base offset of the next batch also shows where
        it ends. If there is no next batch, the header must at least be consistent. Otherwise the
        end is unknown, and a guess could skip records that are still to come.
        """
        next_at = start + header.length
        following = header.next_offset
        if next_at + _BASE_OFFSET.size <= len(records):
            (begin,) = _BASE_OFFSET.unpack_from(records, next_at)
            following = min(following, begin)
        elif header.magic >= MAGIC_V2 and not header.is_dense:
            return None
        first = max(header.base_offset, self.position)
        return first, max(first + 1, following)

    def _is_left_out(self, header: BatchHeader, batch: memoryview) -> bool:
        """If a batch is to be skipped as a whole (`Skip.is_batch`), skip it without decoding it,
        and return True. Else return False.
        """
        skip = skip_at(self._skips, max(header.base_offset, self.position))
        if skip is None or not skip.is_batch:
            return False
        if header.next_offset > skip.next and _is_sound(header, batch):
            # the batch is damaged only on another replica, and valid here, so only its records at
            # the skipped offsets are left out
            return False
        self.applied_skips.append((skip.first, skip.next))
        self.position = skip.next
        # unknown, because the epoch in the damaged batch may be wrong, too
        self.last_fetched_epoch = -1
        return True

    def _rows_to_copy(self, rows: Rows) -> Rows:
        """Return the rows at or after the position, without skipped ones."""
        fresh = rows.at_or_after(self.position)
        return fresh.with_offsets(self._is_kept) if self._skips else fresh

    def _is_kept(self, offset: int) -> bool:
        skip = skip_at(self._skips, offset)
        if skip is None:
            return True
        if (skip.first, skip.next) not in self.applied_skips:
            self.applied_skips.append((skip.first, skip.next))
        return False

    def _decode(
        self, header: BatchHeader, batch: memoryview, rolled_back: RolledBack
    ) -> Sequence[OutBatch]:
        if header.magic < MAGIC_V2:
            self.batches += 1
            return self._deep(header, rows_of(decode_legacy(batch)))
        verify_crc(batch, 0, header)
        if rolled_back.skip(header, batch) or header.count == 0 or header.is_control:
            self.position = header.next_offset
            return ()
        self.batches += 1
        if self._is_shallow(header):
            if self._recompression is not None:
                as_it_came = batch
                batch = self._recompression.of(header, batch, self.limit_bytes)
                self.packed_batches += batch is not as_it_came
            stamps = min(header.base_timestamp, header.max_timestamp), header.max_timestamp
            out = self._next_batch(
                header,
                batch,
                batch,
                count=header.count,
                upstream_next=header.next_offset,
                stamps=stamps,
            )
            return (out,)
        return self._deep(header, decode_rows(batch))

    def _is_shallow(self, header: BatchHeader) -> bool:
        return (
            self._rewrites
            and header.is_dense
            and not header.is_log_append_time
            and header.base_offset >= self.position
            and header.length <= self.limit_bytes
            and sequence_of(self.ordinal) + header.count <= SEQUENCE_MODULUS
            and not has_skipped(header, self._skips)
        )

    def _next_batch(
        self,
        header: BatchHeader,
        data: memoryview,
        first: memoryview,
        *,
        count: int,
        upstream_next: int,
        stamps: tuple[int, int],
    ) -> OutBatch:
        """Return `data`, a batch without gaps, as the next batch to send, and move past it.

        `header` and `first`: the source's first batch in it. `stamps`: its oldest and its greatest
        timestamp.
        """
        run = self._run(self.ordinal, header.base_offset)
        # the first record is decoded only if it begins a run, whose map row needs its fingerprint
        mark = None if run is None else fingerprint(first_record(first))
        rewrite_header(data, producer_id=self._producer_id, base_sequence=sequence_of(self.ordinal))
        out = OutBatch(
            ordinal=self.ordinal,
            count=count,
            data=data,
            upstream=header.base_offset,
            upstream_next=upstream_next,
            runs=() if run is None else (run,),
            fingerprint=mark,
            max_timestamp=stamps[1],
            oldest_timestamp=stamps[0],
            leader_epoch=header.leader_epoch,
        )
        self.ordinal += count
        self.position = upstream_next
        return out

    def _deep(self, header: BatchHeader, rows: Rows) -> list[OutBatch]:
        self.deep_batches += 1
        out: list[OutBatch] = []
        for group in self._before_wrap(self._rows_to_copy(rows)):
            out += self._encoded(header, group)
        self.position = max(self.position, header.next_offset)
        if out:
            out[-1].upstream_next = self.position
        return out

    def _before_wrap(self, rows: Rows) -> Iterator[Rows]:
        """Yield the records in one or two groups, so that no batch spans the wrap of sequences
        (2^31), because Redpanda rejects such a batch.
        """
        room = SEQUENCE_MODULUS - sequence_of(self.ordinal)
        if len(rows) > room:
            yield rows.slice(0, room)
            rows = rows.slice(room, len(rows))
        if rows:
            yield rows

    def _encoded(self, header: BatchHeader, rows: Rows) -> Iterator[OutBatch]:
        codec = header.codec if header.magic >= MAGIC_V2 else Codec.NONE
        if self._recompression is not None:
            codec = self._recompression.codec
        done = 0
        for encoded in encode_sized(rows, codec=codec, limit_bytes=self.limit_bytes):
            view, part = memoryview(encoded.data), encoded.rows
            done += len(part)
            rewrite_header(
                view, producer_id=self._producer_id, base_sequence=sequence_of(self.ordinal)
            )
            runs, marked = self._runs(part)
            yield OutBatch(
                ordinal=self.ordinal,
                count=len(part),
                data=view,
                upstream=part.offset(0),
                upstream_next=part.offset(-1) + 1,
                runs=runs,
                fingerprint=None if marked is None else fingerprint(part.record(marked)),
                max_timestamp=encoded.most_timestamp,
                oldest_timestamp=encoded.least_timestamp,
                leader_epoch=header.leader_epoch,
            )
            self.ordinal += len(part)
        if done != len(rows):
            raise CorruptData(f"only {done} of {len(rows)} records were encoded")

    def _runs(self, rows: Rows) -> tuple[tuple[Run, ...], int | None]:
        """Return (runs, index). `runs`: the runs of the offset map that begin in these records.
        `index`: that of the record at which the last one begins, or None if none begins.

        A run can begin at the first record, and begins at every record whose offset does not follow
        the previous one. Half of the records of a compacted log may begin a run, so there is no
        function call per record.
        """
        (_, upstream), *others = rows.run_starts()
        ordinal, k = self.ordinal, self.k
        run = self._run(ordinal, upstream)
        runs = [] if run is None else [run]
        marked = None if run is None else 0
        if others:
            runs += [Run(ordinal + at, up, k + ordinal + at) for at, up in others]
            self._last_run, marked = runs[-1], others[-1][0]
        return tuple(runs), marked

    def shift(self, distance: int) -> None:
        """Raise the planned target offsets of all records that are not read yet by `distance`,
        because other clients wrote that many records.
        """
        self.k += distance
        if (last := self._last_run) is not None:
            self._last_run = last._replace(downstream=last.downstream + distance)

    def _run(self, ordinal: int, upstream: int) -> Run | None:
        """Return the run of the offset map that begins with this record, or None if the record
        continues the last run.
        """
        run = Run(ordinal, upstream, self.k + ordinal)
        if self._last_run is not None and run.continues(self._last_run):
            return None
        self._last_run = run
        return run


def has_skipped(header: BatchHeader, skips: Iterable[Skip]) -> bool:
    """Return True if records of this batch are skipped."""
    return any(skip.first < header.next_offset and header.base_offset < skip.next for skip in skips)


def _is_followed(records: memoryview, start: int) -> bool:
    """Return True if the batch at `start` is small and the next batch is contiguous with it."""
    if len(records) - start < HEADER_BYTES:
        return False
    offset, length, count = _BEGIN_AND_COUNT.unpack_from(records, start)
    if not 0 < count <= FEW_RECORDS:
        return False
    next_at = start + LENGTH_PREFIX_BYTES + length
    following = (offset + count).to_bytes(9, "big", signed=True)[1:]  # the sum may exceed 63 bits
    is_next: bool = records[next_at : next_at + 8] == following
    return is_next


def _is_alone(offset: int, skips: Iterable[Skip], rolled_back: RolledBack) -> bool:
    """Return True if batches from this source offset on may contain skipped or aborted records.
    They must then be checked one by one.
    """
    return not rolled_back.is_empty or any(skip.next > offset for skip in skips)


def _kept_codecs(recompression: Recompression | None) -> int:
    """Return the codecs whose batches are not recompressed, as a bit mask by codec number."""
    if recompression is None:
        return 0xFF
    kept = [recompression.codec] if recompression.every else [*Codec][1:]
    return sum(1 << codec for codec in {*kept, recompression.codec})


def _is_sound(header: BatchHeader, batch: memoryview) -> bool:
    try:
        verify_crc(batch, 0, header)
    except CorruptData:
        return False
    return True


class RolledBack:
    """Finds the batches of aborted transactions in one Fetch response.

    It works like the Java consumer. The broker lists (producer ID, first offset) of aborted
    transactions. That producer's batches from that offset to its next abort marker are aborted.
    """

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._pending = sorted(aborted, key=lambda aborted: aborted.first_offset, reverse=True)
        self._open: set[int] = set()

    @property
    def is_empty(self) -> bool:
        """Whether no batch that is still to be read in this response can be aborted."""
        return not self._pending and not self._open

    def skip(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return True if this batch was aborted, or is an abort marker. Must be called for every
        batch, in order.
        """
        while self._pending and self._pending[-1].first_offset <= header.last_offset:
            self._open.add(self._pending.pop().producer_id)
        if header.magic < MAGIC_V2 or header.producer_id not in self._open:
            return False
        if header.is_control:
            if control_type(batch) == "abort":
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional
