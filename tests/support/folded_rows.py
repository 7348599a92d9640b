"""Builds the maps of partitions from rows of an offset map, in memory."""

from __future__ import annotations

from collections.abc import Iterable

from twinlog.mirror.map.offset_map import ChunkRow, PartitionKey, PartitionMap, StoredRow


def fold(rows: Iterable[ChunkRow | StoredRow]) -> dict[PartitionKey, PartitionMap]:
    """Return the map of each partition that has rows. The rows must be in log order."""
    maps: dict[PartitionKey, PartitionMap] = {}
    for row in rows:
        maps.setdefault(row.key, PartitionMap(key=row.key, topic=row.topic)).apply(row)
    return maps
