"""Keeps a flow's offset map as it stands in its topic: read once, then only what was added
since.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.internal_log import ends_of_logs, read_to_end
from twinlog.mirror.offset_map import ChunkRow, PartitionKey, PartitionMap
from twinlog.model import TopicPartition

log = logging.getLogger(__name__)


class MapReader:
    """Folds the rows of all partitions of one map topic; one reading at a time."""

    def __init__(self, client: ClusterClient, topic: str, partitions: int) -> None:
        self._client = client
        self._topic = topic
        self._next = dict.fromkeys(range(partitions), 0)
        self._maps: dict[PartitionKey, PartitionMap] = {}
        self._lock = threading.Lock()

    def read(self) -> Mapping[PartitionKey, PartitionMap]:
        """The map up to this moment; later readings leave it as it is, for other threads use it."""
        with self._lock:
            fresh: set[PartitionKey] = set()
            tps = [TopicPartition(self._topic, partition) for partition in self._next]
            ends = ends_of_logs(self._client, tps)
            if any(end < self._next[tp.partition] for tp, end in ends.items()):
                log.warning("%s lost its newest rows: reading it anew", self._topic)
                self._next, self._maps = dict.fromkeys(self._next, 0), {}
            for tp, end in ends.items():
                partition, offset = tp.partition, self._next[tp.partition]
                for record in read_to_end(self._client, self._topic, partition, offset, end=end):
                    self._next[partition] = record.offset + 1
                    if record.key is None or record.value is None:
                        continue
                    row = ChunkRow.decode(record.key, record.value)
                    if row.key not in fresh:
                        fresh.add(row.key)
                        self._maps[row.key] = self._to_change(row)
                    self._maps[row.key].apply(row)
            return dict(self._maps)

    def _to_change(self, row: ChunkRow) -> PartitionMap:
        known = self._maps.get(row.key)
        return PartitionMap(key=row.key, topic=row.topic) if known is None else known.copy()
