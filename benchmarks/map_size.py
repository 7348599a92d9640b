"""Measures how large an offset map gets, and what reading it costs: `python -m
benchmarks.map_size`.

If an application commits ten transactions a second, the source's log has a gap after each commit,
and the map has a run for each. The rows of such a map are written to a broker, and another process
reads them as a starting driver does. The size after a year is calculated, with and without
retention.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings, parse_bootstrap
from twinlog.cluster.topics.internal_log import append
from twinlog.cluster.topics.topic_admin import create_topic, wait_for_topic
from twinlog.mirror.map.map_tail import RUNS_PER_CHUNK
from twinlog.mirror.map.offset_map import ChunkRow, PartitionKey, Run, Term
from twinlog.model import TopicId, TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.survey.map_reader import MapReader
from twinlog.wire.records import Record

TOPIC: Final = "map-size"
RUNS: Final = 10_000_000
PARTITIONS: Final = 50
COMMITS_PER_S: Final = 10
RECORDS_PER_COMMIT: Final = 30
RETENTION_DAYS: Final = 7
DAY_S: Final = 86_400


def chunk(partition: int, number: int) -> ChunkRow:
    """Return a chunk of runs for a source with a transaction marker after each commit."""
    first = number * RUNS_PER_CHUNK
    return ChunkRow(
        key=PartitionKey(TopicId("a" * 32), TopicId("b" * 32), partition),
        term=Term(7, 0),
        chunk=number,
        topic="orders",
        runs=tuple(
            Run(at * RECORDS_PER_COMMIT, at * (RECORDS_PER_COMMIT + 1), at * RECORDS_PER_COMMIT)
            for at in range(first, first + RUNS_PER_CHUNK)
        ),
        fingerprint=0xDEADBEEF,
        producer_id=4001,
    )


def client_of(bootstrap: str) -> ClusterClient:
    return ClusterClient(ClusterSettings(alias="b", bootstrap=parse_bootstrap(bootstrap)))


def write(client: ClusterClient, runs: int) -> int:
    """Write the rows of all partitions. Returns the size of their keys and values in bytes."""
    create_topic(
        client,
        TOPIC,
        partitions=1,
        replication_factor=1,
        configs={"cleanup.policy": "compact", "segment.bytes": str(50 << 20)},
    )
    wait_for_topic(client, TOPIC)
    size = 0
    for number in range(runs // RUNS_PER_CHUNK // PARTITIONS):
        records = []
        for partition in range(PARTITIONS):
            key, value = chunk(partition, number).encode()
            size += len(key) + len(value)
            records.append(Record(partition, int(time.time() * 1000), key, value))
        append(client, TopicPartition(TOPIC, 0), records)
    return size


def read(bootstrap: str) -> None:
    """Read all rows, and print the time and memory that this took. Runs in its own process."""
    before = _resident_mb()
    began = time.monotonic()
    maps = MapReader(client_of(bootstrap), TOPIC, 1).read()
    took = time.monotonic() - began
    runs = sum(len(known.runs) for known in maps.values())
    print(
        f"read {runs:,} runs of {len(maps)} partitions in {took:.1f} s: {_resident_mb():.0f} MB "
        f"resident, {before:.0f} MB before"
    )


def _resident_mb() -> float:
    with Path("/proc/self/status").open(encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def year() -> None:
    """Print the size of one partition's map after a year."""
    per_day = COMMITS_PER_S * DAY_S
    key, value = chunk(0, 365 * per_day // RUNS_PER_CHUNK).encode()
    per_chunk = len(key) + len(value)
    for what, days in (("all of it", 365), (f"retention of {RETENTION_DAYS} days", RETENTION_DAYS)):
        chunks = days * per_day // RUNS_PER_CHUNK
        print(
            f"a year at {COMMITS_PER_S} commits/s, {what}: {chunks * RUNS_PER_CHUNK:,} runs, "
            f"{chunks * per_chunk / 1e6:,.0f} MB a partition ({per_chunk / RUNS_PER_CHUNK:.1f} "
            "bytes a run)"
        )
    print(
        "bound by what both logs still hold (null values for chunks behind both log starts); "
        "beside it, per partition of the topic, two segments of 50 MB that wait for the cleaner"
    )


def main() -> None:
    """Run the benchmark with one broker, or only `read` in the second process."""
    if sys.argv[1:2] == ["read"]:
        read(sys.argv[2])
        return
    year()
    with LocalCluster("map-size") as cluster:
        size = write(client_of(cluster.bootstrap), RUNS)
        print(f"{RUNS:,} runs in {size / 1e6:.0f} MB of rows")
        command = [sys.executable, "-m", "benchmarks.map_size", "read", cluster.bootstrap]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
