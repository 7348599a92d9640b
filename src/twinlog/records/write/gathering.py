"""Rows of partitions, gathered until they fill batches."""

from __future__ import annotations

from typing import Final

from twinlog.model import TopicPartition
from twinlog.wire.record_batch import HEADER_BYTES
from twinlog.wire.rows import Part, Rows

HELD_BYTES: Final = 16 << 20
"""Of rows that wait for more of their partition, all together."""

KEPT_BYTES: Final = 64 << 20
"""Of all tables of which a row waits: a partition with few rows keeps those of the others."""

Cuts = dict[TopicPartition, list[Rows]]
"""Rows of partitions, those of each batch."""


class Gatherer:
    """Holds rows of each partition until there are enough for a batch; then they are due."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: of a batch, not compressed, with its header; a row alone may be larger."""
        self._max_payload = max(1, max_bytes - HEADER_BYTES)
        self._waiting: dict[TopicPartition, list[Part]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._held = 0
        self._tables: dict[int, int] = {}
        """Bytes of the tables of rows that wait, by identity; of more, until nothing waits."""

    def add(self, tp: TopicPartition, rows: Rows) -> Cuts:
        """Rows behind those that were added before; what is due now."""
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
        """What waits of one partition."""
        if tp not in self._waiting:
            return {}
        self._held -= self._sizes.pop(tp)
        rows = Rows(self._waiting.pop(tp))
        if not self._waiting:
            self._tables.clear()
        return {tp: self._cut(rows)}

    def take_all(self) -> Cuts:
        """What waits of any."""
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
