"""From fetched bytes to batches that can be sent: which pass as they are, which are re-encoded,
which are skipped.

| batch                                                  | what happens                      |
| ------------------------------------------------------ | --------------------------------- |
| v2, dense, CreateTime, fits the target                 | shallow: header rewritten in place |
| such a one, where another codec is asked for           | its payload is packed anew        |
| holes, LogAppendTime, too large, trimmed, sequence wrap | deep: decoded and encoded again   |
| message format 0 or 1                                  | deep, as format 2                 |
| control batch, empty, aborted under read_committed     | skipped: a gap in the offset map  |
| CRC mismatch, nonsense                                 | CorruptData: nothing of it is sent |

The CRC is checked before it is replaced: else a bit flipped at the source would be blessed on the
target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from twinlog.errors import CorruptData, TwinlogError
from twinlog.mirror.map.offset_map import Run
from twinlog.model import SEQUENCE_MODULUS, sequence_of
from twinlog.wire.recompress import Recompression
from twinlog.wire.record_batch import (
    BatchHeader,
    Codec,
    read_headers,
    rewrite_header,
    verify_crc,
)
from twinlog.wire.records import (
    Record,
    control_type,
    decode_batch,
    decode_legacy,
    encode_sized,
    fingerprint,
    first_record,
)

MAGIC_V2: Final = 2


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
    """Of records that another lane may send in a batch of their own. A batch that passes as it is
    has the source's bounds: there it is `max_timestamp`.
    """
    leader_epoch: int
    sent: int = 0
    """How often it was sent."""

    @property
    def next_ordinal(self) -> int:
        return self.ordinal + self.count


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
        read_committed: bool,
        limit_bytes: int,
        last_fetched_epoch: int = -1,
        recompression: Recompression | None = None,
    ) -> None:
        self.position = position
        self.ordinal = ordinal
        self.k = k
        self.limit_bytes = limit_bytes
        self.last_fetched_epoch = last_fetched_epoch
        """Source leader epoch of offset `position` - 1; -1 when it is not known. A source that is
        asked with an epoch that ends before the position answers that its log was cut there."""
        self.skipped_records = 0
        self.jumps: list[tuple[int, int]] = []
        """[first, next) of offsets that the source left out between batches; to be emptied."""
        self.deep_batches = 0
        self._last_run = last_run
        self._producer_id = producer_id
        self._read_committed = read_committed
        self._recompression = recompression

    def take(self, records: memoryview, aborted: Iterable[Aborted], end: int) -> list[OutBatch]:
        """Batches of one Fetch answer that begin below `end`.

        What stands before a bad batch is returned, and the next answer begins with that one:
        TwinlogError, which names its offset, is raised only when nothing is in front of it.
        """
        out: list[OutBatch] = []
        rolled_back = RolledBack(aborted) if self._read_committed else None
        is_whole = not records  # a broker sends the first batch as a whole, whatever its size
        good = self.ordinal, self.last_fetched_epoch, self._last_run
        try:
            for header, at in read_headers(records):
                is_whole = True
                if header.next_offset <= self.position:
                    if rolled_back is not None:
                        rolled_back.skip(header, records[at : at + header.length])
                    continue
                if header.base_offset >= end:
                    break
                if header.base_offset > self.position and header.magic >= MAGIC_V2:
                    self.jumps.append((self.position, header.base_offset))
                out += self._one(header, records[at : at + header.length], rolled_back)
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

    def _one(
        self, header: BatchHeader, batch: memoryview, rolled_back: RolledBack | None
    ) -> Sequence[OutBatch]:
        out = self._taken_in(header, batch, rolled_back)
        # that of the offset before the position, which has just moved behind this batch; messages
        # of old formats have none (-1)
        self.last_fetched_epoch = header.leader_epoch
        return out

    def _taken_in(
        self, header: BatchHeader, batch: memoryview, rolled_back: RolledBack | None
    ) -> Sequence[OutBatch]:
        if header.magic < MAGIC_V2:
            return self._deep(header, decode_legacy(batch))
        verify_crc(batch, 0, header)
        drop = header.count == 0 or header.is_control
        if rolled_back is not None:
            drop = rolled_back.skip(header, batch) or drop
        if drop:
            self.skipped_records += header.count
            self.position = header.next_offset
            return ()
        if self._passes(header):
            if self._recompression is not None:
                batch = self._recompression.of(header, batch, self.limit_bytes)
            return (self._shallow(header, batch),)
        return self._deep(header, decode_batch(batch))

    def _passes(self, header: BatchHeader) -> bool:
        return (
            header.is_dense
            and not header.is_log_append_time
            and header.base_offset >= self.position
            and header.length <= self.limit_bytes
            and sequence_of(self.ordinal) + header.count <= SEQUENCE_MODULUS
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
            oldest_timestamp=header.max_timestamp,
            leader_epoch=header.leader_epoch,
        )
        self.ordinal += header.count
        self.position = header.next_offset
        return out

    def _deep(self, header: BatchHeader, records: Sequence[Record]) -> list[OutBatch]:
        self.deep_batches += 1
        kept = [record for record in records if record.offset >= self.position]
        out: list[OutBatch] = []
        for group in self._before_wrap(kept):
            out += self._encoded(header, group)
        self.position = max(self.position, header.next_offset)
        if out:
            out[-1].upstream_next = self.position
        return out

    def _before_wrap(self, records: Sequence[Record]) -> Iterator[Sequence[Record]]:
        """Groups that do not span the sequence wrap (Redpanda refuses such a batch)."""
        room = SEQUENCE_MODULUS - sequence_of(self.ordinal)
        if len(records) > room:
            yield records[:room]
            records = records[room:]
        if records:
            yield records

    def _encoded(self, header: BatchHeader, records: Sequence[Record]) -> Iterator[OutBatch]:
        codec = header.codec if header.magic >= MAGIC_V2 else Codec.NONE
        if self._recompression is not None:
            codec = self._recompression.codec
        done = 0
        for encoded in encode_sized(records, codec=codec, limit_bytes=self.limit_bytes):
            view = memoryview(encoded)
            ((fresh, _),) = read_headers(view)
            part = records[done : done + fresh.count]
            done += fresh.count
            rewrite_header(
                view,
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=sequence_of(self.ordinal),
            )
            runs, marked = [], None
            for index, record in enumerate(part):
                run = self._run(self.ordinal + index, record.offset)
                if run is not None:
                    runs.append(run)
                    marked = record
            yield OutBatch(
                ordinal=self.ordinal,
                count=len(part),
                data=view,
                upstream=part[0].offset,
                upstream_next=part[-1].offset + 1,
                runs=tuple(runs),
                fingerprint=None if marked is None else fingerprint(marked),
                max_timestamp=max(record.timestamp for record in part),
                oldest_timestamp=min(record.timestamp for record in part),
                leader_epoch=header.leader_epoch,
            )
            self.ordinal += len(part)
        if done != len(records):
            raise CorruptData(f"{len(records)} records were encoded as {done}")

    def _run(self, ordinal: int, upstream: int) -> Run | None:
        """A new run, when this record does not continue the last one."""
        run = Run(ordinal, upstream, self.k + ordinal)
        if self._last_run is not None and run.continues(self._last_run):
            return None
        self._last_run = run
        return run


class RolledBack:
    """Which transactional batches of one Fetch answer belong to aborted transactions.

    As the Java consumer does it: the broker lists (producer id, first offset); a producer's batches
    from there to its next abort marker are not data.
    """

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._pending = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()

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
