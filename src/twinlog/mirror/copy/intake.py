"""From fetched bytes to batches that can be sent: which pass as they are, which are re-encoded,
which are skipped.

| batch                                                  | what happens                      |
| ------------------------------------------------------ | --------------------------------- |
| v2, dense, CreateTime, fits the target                 | shallow: header rewritten in place |
| several such of a few records, one behind the other    | joined, where that is asked for   |
| such a one, where another codec is asked for           | its payload is packed again       |
| holes, LogAppendTime, too large, trimmed, sequence wrap | deep: taken apart, encoded again   |
| message format 0 or 1                                  | deep, as format 2                 |
| control batch, empty, aborted under read_committed     | skipped: a gap in the offset map  |
| with a record that somebody wants left out (`skips`)   | deep, without that record         |
| one that somebody wants left out as a whole            | skipped, its bytes not checked    |
| CRC mismatch, nonsense                                 | CorruptData: nothing of it is sent |

The CRC is checked before it is replaced: else a bit flipped at the source would be blessed on the
target.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from twinlog.errors import CorruptData, TwinlogError
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.skips import Skip, skipped
from twinlog.model import SEQUENCE_MODULUS, Isolation, sequence_of
from twinlog.wire.joining import FEW_RECORDS, join_run
from twinlog.wire.recompress import Recompression
from twinlog.wire.record_batch import (
    CODEC_MASK,
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
NOTHING_SKIPPED: Final[tuple[Skip, ...]] = ()
_BASE_OFFSET: Final = struct.Struct(">q")


class Aborted(Protocol):
    """A transaction that the broker says was rolled back."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


@dataclass(slots=True, kw_only=True)
class OutBatch:
    """A batch with our producer fields in its header, ready to be sent as often as needed."""

    ordinal: int
    count: int
    data: memoryview
    upstream: int
    """Upstream offset of its first record."""
    upstream_next: int
    """First upstream offset that is not done when this batch is."""
    runs: tuple[Run, ...]
    """What must stand in the offset map before this batch is sent."""
    fingerprint: int | None
    max_timestamp: int
    oldest_timestamp: int
    """Of records that another lane may send in a batch of their own. Of a batch that passes as it
    is only the first record's and the greatest are known.
    """
    leader_epoch: int
    sent: int = 0
    """How often it was sent."""
    offsets: array[int] | None = None
    """Upstream, of each record, where `runs` does not tell them (`fan_out`)."""

    @property
    def next_ordinal(self) -> int:
        return self.ordinal + self.count

    def upstream_at(self, index: int) -> int:
        """Upstream offset of the record of this index."""
        if self.offsets is not None:
            return self.offsets[index]
        ordinal = self.ordinal + index
        run = next((one for one in reversed(self.runs) if one.ordinal <= ordinal), None)
        return self.upstream + index if run is None else run.upstream_of(ordinal)


class Intake:
    """One partition's way in: where to read next, and which ordinal the next record gets."""

    def __init__(  # noqa: PLR0913 (all of it is known at once, by name)
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
        skips: Sequence[Skip] = NOTHING_SKIPPED,
        join_bytes: int = 0,
    ) -> None:
        self.position = position
        self.ordinal = ordinal
        self.k = k
        self.limit_bytes = limit_bytes
        self.last_fetched_epoch = last_fetched_epoch
        """Source leader epoch of offset `position` - 1; -1 when it is not known. A source that is
        asked with an epoch that ends before the position answers that its log was cut there."""
        self.jumps: list[tuple[int, int]] = []
        """[first, next) of offsets that the source left out between batches; to be emptied."""
        self.left_out: list[tuple[int, int]] = []
        """[first, next) of `skips` that were met; to be emptied."""
        self.batches = 0
        """Taken in, without those that are left out."""
        self.deep_batches = 0
        self.packed_batches = 0
        """Whose payload was packed with another codec."""
        self._last_run = last_run
        self._producer_id = producer_id
        self._reads_committed = isolation is Isolation.READ_COMMITTED
        self._recompression = recompression
        self._skips = tuple(skips)
        self.join_bytes = min(join_bytes, limit_bytes)
        """Up to which small batches are joined; 0: not at all."""

    def take(self, records: memoryview, aborted: Iterable[Aborted], end: int) -> list[OutBatch]:
        """Batches of one Fetch answer that begin below `end`.

        What stands before a bad batch is returned, and the next answer begins with that one:
        TwinlogError, which names its offset, is raised only when nothing is in front of it.
        """
        out: list[OutBatch] = []
        rolled_back = RolledBack(aborted) if self._reads_committed else None
        is_whole = not records  # a broker sends the first batch as a whole, whatever its size
        good = self.ordinal, self.last_fetched_epoch, self._last_run
        try:
            headers = read_headers(records)
            while (found := next(headers, None)) is not None:
                header, at = found
                is_whole = True
                if header.next_offset <= self.position:
                    if rolled_back is not None:
                        rolled_back.skip(header, records[at : at + header.length])
                    continue
                if header.base_offset >= end:
                    break
                self._note_jump(header)
                if self._skips and self._is_left_out(header, records[at : at + header.length]):
                    # the end of what was rolled back may be in it: the next answer says it again
                    good = self.ordinal, self.last_fetched_epoch, self._last_run
                    break
                joined = self._joined(header, records, at, end, rolled_back)
                if joined is not None:
                    batch, behind = joined
                    out.append(batch)
                    headers = read_headers(records, behind)
                else:
                    out += self._one(header, records, at, rolled_back)
                good = self.ordinal, self.last_fetched_epoch, self._last_run
        except TwinlogError:
            if not out:
                raise
            self.ordinal, self.last_fetched_epoch, self._last_run = good
        if not is_whole:
            raise CorruptData(
                f"batch at offset {self.position}: its length is more than the {len(records)} "
                "bytes that the source has of it"
            )
        return out

    def _note_jump(self, header: BatchHeader) -> None:
        if header.base_offset > self.position and header.magic >= MAGIC_V2:
            self.jumps.append((self.position, header.base_offset))

    def _joined(
        self,
        header: BatchHeader,
        records: memoryview,
        at: int,
        end: int,
        rolled_back: RolledBack | None,
    ) -> tuple[OutBatch, int] | None:
        """Small batches from here on as one, and where the next begins; None: take this alone."""
        if not self.join_bytes or not 0 < header.count <= FEW_RECORDS:
            return None
        if header.magic < MAGIC_V2 or header.base_offset < self.position:
            return None
        behind = at + header.length
        if records[behind : behind + 8] != header.next_offset.to_bytes(8, "big"):
            return None  # what comes next does not follow it, or nothing comes
        # what is left out, or may have been rolled back, is checked batch by batch
        is_alone = any(skip.next > header.base_offset for skip in self._skips)
        is_alone |= rolled_back is not None and not rolled_back.is_empty
        if is_alone or header.attributes & CODEC_MASK > max(Codec):
            return None
        joined = join_run(
            records,
            at,
            header,
            end=end,
            most_bytes=self.join_bytes,
            most_records=SEQUENCE_MODULUS - sequence_of(self.ordinal),
            codec=self._joined_codec(header),
        )
        if joined is None:
            return None
        run = self._run(self.ordinal, header.base_offset)
        mark = None
        if run is not None:
            mark = fingerprint(first_record(records[at : at + header.length]))
        view = memoryview(joined.data)
        rewrite_header(
            view,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=sequence_of(self.ordinal),
        )
        out = OutBatch(
            ordinal=self.ordinal,
            count=joined.records,
            data=view,
            upstream=header.base_offset,
            upstream_next=joined.next_offset,
            runs=() if run is None else (run,),
            fingerprint=mark,
            max_timestamp=joined.most_timestamp,
            oldest_timestamp=joined.least_timestamp,
            leader_epoch=header.leader_epoch,
        )
        self.batches += joined.batches
        if self._joined_codec(header) is not header.codec:
            self.packed_batches += joined.batches
        self.ordinal += joined.records
        self.position = joined.next_offset
        self.last_fetched_epoch = header.leader_epoch
        return out, joined.behind

    def _joined_codec(self, header: BatchHeader) -> Codec:
        wanted = self._recompression
        if wanted is None or (header.codec is not Codec.NONE and not wanted.every):
            return header.codec
        return wanted.codec

    def _one(
        self, header: BatchHeader, records: memoryview, at: int, rolled_back: RolledBack | None
    ) -> Sequence[OutBatch]:
        try:
            out = self._taken_in(header, records[at : at + header.length], rolled_back)
        except CorruptData as error:
            error.poison = self._bounds(header, records, at)
            raise
        # that of the offset before the position, which has just moved behind this batch; messages
        # of old formats have none (-1)
        self.last_fetched_epoch = header.leader_epoch
        return out

    def _bounds(self, header: BatchHeader, records: memoryview, at: int) -> tuple[int, int] | None:
        """Offsets of a batch that cannot be read. Its own header may be wrong: where the next
        batch begins can be seen by that one, too. Where there is none yet, the header must at least
        agree with itself, else nobody knows: records that are still to come would be left out."""
        behind = at + header.length
        following = header.next_offset
        if behind + _BASE_OFFSET.size <= len(records):
            (begin,) = _BASE_OFFSET.unpack_from(records, behind)
            following = min(following, begin)
        elif header.magic >= MAGIC_V2 and not header.is_dense:
            return None
        first = max(header.base_offset, self.position)
        return first, max(first + 1, following)

    def _is_left_out(self, header: BatchHeader, batch: memoryview) -> bool:
        """A batch that somebody wants left out as a whole: nothing of it is decoded."""
        skip = skipped(self._skips, max(header.base_offset, self.position))
        if skip is None or not skip.is_batch:
            return False
        if header.next_offset > skip.next and _is_sound(header, batch):
            return False  # another replica has it whole: only the records of these offsets go
        self.left_out.append((skip.first, skip.next))
        self.position = skip.next
        self.last_fetched_epoch = -1  # of bytes that are wrong the epoch may be wrong, too
        return True

    def _fresh(self, rows: Rows) -> Rows:
        """Those from the position on that nobody wants left out."""
        fresh = rows.behind(self.position)
        return fresh.where(self._keeps) if self._skips else fresh

    def _keeps(self, offset: int) -> bool:
        skip = skipped(self._skips, offset)
        if skip is None:
            return True
        if (skip.first, skip.next) not in self.left_out:
            self.left_out.append((skip.first, skip.next))
        return False

    def _taken_in(
        self, header: BatchHeader, batch: memoryview, rolled_back: RolledBack | None
    ) -> Sequence[OutBatch]:
        if header.magic < MAGIC_V2:
            self.batches += 1
            return self._deep(header, rows_of(decode_legacy(batch)))
        verify_crc(batch, 0, header)
        drop = header.count == 0 or header.is_control
        if rolled_back is not None:
            drop = rolled_back.skip(header, batch) or drop
        if drop:
            self.position = header.next_offset
            return ()
        self.batches += 1
        if self._passes(header):
            if self._recompression is not None:
                as_it_came = batch
                batch = self._recompression.of(header, batch, self.limit_bytes)
                self.packed_batches += batch is not as_it_came
            return (self._shallow(header, batch),)
        return self._deep(header, decode_rows(batch))

    def _passes(self, header: BatchHeader) -> bool:
        return (
            header.is_dense
            and not header.is_log_append_time
            and header.base_offset >= self.position
            and header.length <= self.limit_bytes
            and sequence_of(self.ordinal) + header.count <= SEQUENCE_MODULUS
            and not any(
                one.first < header.next_offset and header.base_offset < one.next
                for one in self._skips
            )
        )

    def _shallow(self, header: BatchHeader, batch: memoryview) -> OutBatch:
        run = self._run(self.ordinal, header.base_offset)
        # only a gap needs the first record itself: its fingerprint goes into the map row
        mark = None if run is None else fingerprint(first_record(batch))
        rewrite_header(
            batch,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=sequence_of(self.ordinal),
        )
        out = OutBatch(
            ordinal=self.ordinal,
            count=header.count,
            data=batch,
            upstream=header.base_offset,
            upstream_next=header.next_offset,
            runs=() if run is None else (run,),
            fingerprint=mark,
            max_timestamp=header.max_timestamp,
            oldest_timestamp=min(header.base_timestamp, header.max_timestamp),
            leader_epoch=header.leader_epoch,
        )
        self.ordinal += header.count
        self.position = header.next_offset
        return out

    def _deep(self, header: BatchHeader, rows: Rows) -> list[OutBatch]:
        self.deep_batches += 1
        out: list[OutBatch] = []
        for group in self._before_wrap(self._fresh(rows)):
            out += self._encoded(header, group)
        self.position = max(self.position, header.next_offset)
        if out:
            out[-1].upstream_next = self.position
        return out

    def _before_wrap(self, rows: Rows) -> Iterator[Rows]:
        """Groups that do not span the sequence wrap (Redpanda refuses such a batch)."""
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
                view,
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=sequence_of(self.ordinal),
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
            raise CorruptData(f"{len(rows)} records were encoded as {done}")

    def _runs(self, rows: Rows) -> tuple[tuple[Run, ...], int | None]:
        """Runs that these records begin, and which record begins the last of them.

        Only the first record, and one that does not follow the record before it, can begin one: the
        latter always does. Half of a compacted log's records are such, so no call is made for each.
        """
        (_, upstream), *others = rows.breaks()
        ordinal, k = self.ordinal, self.k
        run = self._run(ordinal, upstream)
        runs = [] if run is None else [run]
        marked = None if run is None else 0
        if others:
            runs += [Run(ordinal + at, up, k + ordinal + at) for at, up in others]
            self._last_run, marked = runs[-1], others[-1][0]
        return tuple(runs), marked

    def moved(self, distance: int) -> None:
        """Records lie further on the target from the last one that was acknowledged on."""
        self.k += distance
        if (last := self._last_run) is not None:
            self._last_run = last._replace(downstream=last.downstream + distance)

    def _run(self, ordinal: int, upstream: int) -> Run | None:
        """A new run, when this record does not continue the last one."""
        run = Run(ordinal, upstream, self.k + ordinal)
        if self._last_run is not None and run.continues(self._last_run):
            return None
        self._last_run = run
        return run


def _is_sound(header: BatchHeader, batch: memoryview) -> bool:
    try:
        verify_crc(batch, 0, header)
    except CorruptData:
        return False
    return True


class RolledBack:
    """Which transactional batches of one Fetch answer belong to aborted transactions.

    As the Java consumer does it: the broker lists (producer id, first offset); a producer's batches
    from there to its next abort marker are not data.
    """

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._pending = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()

    @property
    def is_empty(self) -> bool:
        """No transaction was, in what is left of this answer."""
        return not self._pending and not self._open

    def skip(self, header: BatchHeader, batch: memoryview) -> bool:
        """True when this batch was rolled back; to be asked for every batch, in order."""
        while self._pending and self._pending[-1].first_offset <= header.last_offset:
            self._open.add(self._pending.pop().producer_id)
        if header.magic < MAGIC_V2 or header.producer_id not in self._open:
            return False
        if header.is_control:
            if control_type(batch) == "abort":
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional
