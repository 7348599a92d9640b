"""The maps that rows of an offset map make, in memory."""

from __future__ import annotations

from collections.abc import Iterable

from twinlog.mirror.map.offset_map import ChunkRow, PartitionKey, PartitionMap, StoredRow


def fold(rows: Iterable[ChunkRow | StoredRow]) -> dict[PartitionKey, PartitionMap]:
    """By partition that has a row; rows in log order."""
    maps: dict[PartitionKey, PartitionMap] = {}
    for row in rows:
        maps.setdefault(row.key, PartitionMap(key=row.key, topic=row.topic)).apply(row)
    return maps
