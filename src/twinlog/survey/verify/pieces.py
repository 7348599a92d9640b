"""Reads a log batch by batch, with the batches that no reader sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, list_offsets
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_partition
from twinlog.errors import TwinlogError
from twinlog.mirror.copy.intake import RolledBack
from twinlog.mirror.verify.difference import GapCause
from twinlog.mirror.verify.side import Piece
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.error_codes import OFFSET_NOT_AVAILABLE, error_for
from twinlog.wire.record_batch import read_headers

READ_BYTES: Final = 4 << 20


@dataclass(slots=True, kw_only=True)
class VerifiedLog:
    """One partition's log. `start` rises if retention deletes records before they are read."""

    client: ClusterClient
    tp: TopicPartition
    start: int
    end: int
    """Queried once: later records are not read."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    read_bytes: int = READ_BYTES
    """Maximum bytes per fetch."""
    bytes: int = 0
    """Bytes of the batches that were read."""
    _asked_end: int = field(init=False)
    """The log certainly reached this offset, even if `end` is raised."""

    def __post_init__(self) -> None:
        self._asked_end = self.end

    def pieces(self, begin: int) -> Iterator[Piece]:
        """Yield all batches that begin below the end, from the one with offset `begin` on.

        Raises TwinlogError if the cluster cannot be queried, and CorruptData if a header is
        invalid. The caller verifies checksums.
        """
        position = begin
        while position < self.end:
            answer = self._fetch(position)
            if answer is None:
                position = max(position, self.start)
                continue
            before = position
            rolled_back = RolledBack(answer.aborted)
            for header, at in read_headers(answer.records):
                batch = answer.records[at : at + header.length]
                is_gone = rolled_back.skip(header, batch)
                if header.next_offset <= before:
                    continue
                if header.base_offset >= self.end:
                    return
                position = max(position, header.next_offset)
                self.bytes += header.length
                if header.is_control:
                    yield Piece(header, batch, GapCause.MARKERS)
                else:
                    yield Piece(header, batch, GapCause.ABORTED if is_gone else None)
            if position == before:
                return  # cleaned up to the end

    def _require_whole(self, answer: FetchedRecords, position: int) -> None:
        """Raise if the response is shorter than the log is known to be.

        A new leader returns nothing until it knows again how far the log is committed. One that
        lost the log's end never does. In a compacted topic both would look like a cleaned log.
        """
        is_committed = self.isolation is Isolation.READ_COMMITTED
        end = answer.last_stable_offset if is_committed else answer.high_watermark
        if not answer.records and end < self._asked_end and position < self._asked_end:
            raise error_for(
                OFFSET_NOT_AVAILABLE,
                cluster=self.client.alias,
                doing=f"reading {self.tp} at offset {position}",
                detail=f"its log ended at {self._asked_end} before, and ends at {end} now",
            )

    def _fetch(self, position: int) -> FetchedRecords | None:
        """Return the records at a position, or None if they were just deleted."""

        def ask() -> FetchedRecords:
            answer = fetch_partition(
                self.client, self.tp, position, self.read_bytes, isolation=self.isolation
            )
            self._require_whole(answer, position)
            return answer

        try:
            return self.client.retrying(ask)
        except TwinlogError as error:
            if error.code != "OFFSET_OUT_OF_RANGE":
                raise
            found = list_offsets(self.client, [self.tp], EARLIEST)[self.tp]
            if isinstance(found, TwinlogError) or found.offset <= position:
                raise
            self.start = found.offset
            return None
