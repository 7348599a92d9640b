"""Gathers rows of partitions until they fill batches."""

from __future__ import annotations

from typing import Final

from twinlog.model import TopicPartition
from twinlog.wire.record_batch import HEADER_BYTES
from twinlog.wire.rows import Part, Rows

HELD_BYTES: Final = 16 << 20
"""Maximum bytes of waiting rows, over all partitions."""

KEPT_BYTES: Final = 64 << 20
"""Maximum bytes of all tables with a waiting row: a row keeps its table, with other partitions'
rows.
"""

Cuts = dict[TopicPartition, list[Rows]]
"""Rows of partitions, separately for each batch."""


class Gatherer:
    """Holds the rows of each partition until they fill a batch."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: of a batch with its header, uncompressed; a single row may be larger."""
        self._max_payload = max(1, max_bytes - HEADER_BYTES)
        self._waiting: dict[TopicPartition, list[Part]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._held = 0
        self._tables: dict[int, int] = {}
        """Bytes of the tables of waiting rows, by identity. Entries are only removed when nothing
        waits.
        """

    def add(self, tp: TopicPartition, rows: Rows) -> Cuts:
        """Add rows after those added before, and return full batches."""
        size, _, _ = rows.measure()
        self._waiting.setdefault(tp, []).extend(rows.parts)
        self._sizes[tp] = self._sizes.get(tp, 0) + size
        self._held += size
        for table, _ in rows.parts:
            self._tables[id(table)] = len(table.data) + 8 * len(table.cells)
        if self._held >= HELD_BYTES or sum(self._tables.values()) >= KEPT_BYTES:
            return self.take_all()
        return self.take(tp) if self._sizes[tp] >= self._max_payload else {}

    def take(self, tp: TopicPartition) -> Cuts:
        """Return the waiting rows of one partition."""
        if tp not in self._waiting:
            return {}
        self._held -= self._sizes.pop(tp)
        rows = Rows(self._waiting.pop(tp))
        if not self._waiting:
            self._tables.clear()
        return {tp: self._cut(rows)}

    def take_all(self) -> Cuts:
        """Return all waiting rows."""
        cuts: Cuts = {}
        for tp in list(self._waiting):
            cuts |= self.take(tp)
        return cuts

    def _cut(self, rows: Rows) -> list[Rows]:
        size, _, _ = rows.measure()
        if size <= self._max_payload or len(rows) == 1:
            return [rows]
        middle = len(rows) // 2
        return self._cut(rows.slice(0, middle)) + self._cut(rows.slice(middle, len(rows)))
