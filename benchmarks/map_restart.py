"""Measures how long a flow with a large offset map takes to restart: `python -m
benchmarks.map_restart`.

500 partitions are copied. Then each partition's map is rewritten as 20,000 runs, as after as many
commits, and every source partition gets new records. The mirror is started again (the command, with
Spark). Printed is the time from the start of the process until all new records are on the target.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import LATEST, list_offsets
from twinlog.cluster.logs.raw_log import produce_batch
from twinlog.cluster.net.settings import ClusterSettings, parse_bootstrap
from twinlog.cluster.topics.internal_log import append
from twinlog.cluster.topics.topic_admin import create_topic, wait_for_topic
from twinlog.errors import TwinlogError
from twinlog.mirror.map.map_tail import RUNS_PER_CHUNK
from twinlog.mirror.map.offset_map import (
    MAP_PARTITIONS,
    ChunkRow,
    PartitionKey,
    PartitionMap,
    Run,
    Term,
    map_home,
)
from twinlog.mirror.names.naming import map_topic_of
from twinlog.model import Flow, TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.survey.map_reader import MapReader
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

PARTITIONS: Final = 500
RUNS: Final = 20_000
NEW: Final = 20
PER_BATCH: Final = 20
LAST: Final = 200
TOPIC: Final = "orders"
REMOTE: Final = f"A.{TOPIC}"
GOAL_S: Final = 30.0
PATIENT_S: Final = 300.0
TWINLOG: Final = str(Path(sys.executable).with_name("twinlog"))


def client_of(cluster: LocalCluster) -> ClusterClient:
    return ClusterClient(
        ClusterSettings(alias=cluster.name, bootstrap=parse_bootstrap(cluster.bootstrap))
    )


def put(source: ClusterClient, count: int) -> None:
    """Write `count` records to each partition. The last ones are in small batches, as applications
    send them.
    """
    sizes = [
        *([count - LAST] if count > LAST else []),
        *[PER_BATCH] * (min(count, LAST) // PER_BATCH),
    ]
    now_ms = int(time.time() * 1000)
    for size in sizes:
        records = [Record(n, now_ms, b"k", b"v") for n in range(size)]
        batch = encode_batch(records, codec=Codec.ZSTD)
        for partition in range(PARTITIONS):
            produce_batch(source, TopicPartition(TOPIC, partition), batch)


def copied(target: ClusterClient) -> int:
    """Return the number of records on the target."""
    tps = [TopicPartition(REMOTE, partition) for partition in range(PARTITIONS)]
    found = list_offsets(target, tps, LATEST)
    return sum(0 if isinstance(end, TwinlogError) else end.offset for end in found.values())


def mirror(config: Path, target: ClusterClient, wanted: int) -> float:
    """Run the mirror. Return the seconds from its start until the target has `wanted` records."""
    began = time.monotonic()
    with subprocess.Popen([TWINLOG, "mirror", str(config)]) as run:
        try:
            while (there := _count(target)) < wanted:
                if time.monotonic() - began > PATIENT_S or run.poll() is not None:
                    sys.exit(f"{there} of {wanted} records after {time.monotonic() - began:.0f} s")
                time.sleep(0.1)
            took = time.monotonic() - began
        finally:
            run.terminate()
    return took


def _count(target: ClusterClient) -> int:
    try:
        return copied(target)
    except TwinlogError:
        return 0  # the topic is just being created


def as_many_runs(known: PartitionMap, producer_id: int) -> Iterator[ChunkRow]:
    """Yield rows of the next term for the same map, in which each record is a run."""
    term = Term(known.term.generation, known.term.start + 1)
    key: PartitionKey = known.key
    first = known.runs[0]
    for chunk, begin in enumerate(range(0, RUNS, RUNS_PER_CHUNK)):
        yield ChunkRow(
            key=key,
            term=term,
            chunk=chunk,
            topic=known.topic,
            runs=tuple(
                Run(at, first.upstream_of(at), first.downstream_of(at))
                for at in range(begin, begin + RUNS_PER_CHUNK)
            ),
            producer_id=producer_id,
        )


def main() -> None:
    """Run the benchmark with two brokers."""
    with (
        TemporaryDirectory(prefix="twinlog-restart-") as folder,
        LocalCluster("source", heap_mb=1024) as a,
        LocalCluster("target", heap_mb=1024) as b,
        client_of(a) as source,
        client_of(b) as target,
    ):
        create_topic(source, TOPIC, partitions=PARTITIONS, replication_factor=1, configs={})
        wait_for_topic(source, TOPIC, partitions=PARTITIONS)
        config = Path(folder) / "mm2.properties"
        config.write_text(
            f"clusters = A, B\nA.bootstrap.servers = {a.bootstrap}\n"
            f"B.bootstrap.servers = {b.bootstrap}\nA->B.enabled = true\nA->B.topics = {TOPIC}\n"
            "replication.factor = 1\nemit.heartbeats.enabled = false\n"
            "twinlog.state.topic.replication.factor = 1\n",
            encoding="utf-8",
        )
        put(source, RUNS + 1)
        first = mirror(config, target, PARTITIONS * (RUNS + 1))
        print(f"first copy of {PARTITIONS * (RUNS + 1):,} records: {first:.1f} s", flush=True)
        topic = map_topic_of(Flow("A", "B"))
        for known in MapReader(target, topic, MAP_PARTITIONS).read().values():
            here = TopicPartition(TOPIC, known.key.partition)
            home = TopicPartition(topic, map_home(here, MAP_PARTITIONS))
            for row in as_many_runs(known, max(known.producers)):
                key, value = row.encode()
                append(target, home, [Record(0, int(time.time() * 1000), key, value)])
        maps = MapReader(target, topic, MAP_PARTITIONS).read()
        runs = sum(len(known.runs) for known in maps.values())
        print(f"{runs:,} runs of {len(maps)} partitions in the map", flush=True)
        put(source, NEW)
        took = mirror(config, target, PARTITIONS * (RUNS + 1 + NEW))
        met = "met" if took < GOAL_S else "MISSED"
        print(f"restarted and copied after {took:.1f} s (goal {GOAL_S:.0f} s: {met})")


if __name__ == "__main__":
    main()
