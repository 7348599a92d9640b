"""H9: the source has a gap after every record. The offset map stays small, and the copy keeps
up.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.support.client import eventually, producer, read_all
from tests.support.eventually import PATIENCE_S
from tests.support.rig import COUNTS_ROUNDS, MAP_PARTITIONS, Rig
from tests.support.topics import apply_topic_configs, offset_map_topic
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.mirror.map.map_tail import RUNS_PER_CHUNK

pytestmark = [pytest.mark.faults, pytest.mark.broker]

RECORDS = 20_000
PER_BATCH = 100
VALUE_BYTES = 200
AGE_MS = RECORDS * 1_000
"""Age of the first record in milliseconds. The time for 300 transactions depends on the machine, so
the tests limit no time and check only the target's content.
"""

CLEAN_SOON = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}


def map_rows(rig: Rig) -> list[tuple[bytes, int]]:
    """Return the key and the size in bytes of every row of the map topic."""
    return [
        (record.key, len(record.key) + len(record.value))
        for partition in range(MAP_PARTITIONS)
        for record in read_to_end(rig.target_client, offset_map_topic(rig.alias), partition)
        if record.key is not None and record.value is not None
    ]


def newest(rows: list[tuple[bytes, int]]) -> Mapping[bytes, int]:
    return dict(rows)


def test_compacted_source_with_a_gap_after_every_record(rig: Rig, tmp_path: Path) -> None:
    rig.create(cleanup_policy="compact", **{k.replace(".", "_"): v for k, v in CLEAN_SOON.items()})
    # the key of every other record is written again, so the cleaner removes the record
    again = dict.fromkeys(range(1, RECORDS, 2), RECORDS * 10)
    for start in range(0, RECORDS, PER_BATCH):
        numbers = range(start, start + PER_BATCH)
        rig.put(numbers, age_ms=AGE_MS, size=VALUE_BYTES, keys=again)
    rig.put([RECORDS], age_ms=AGE_MS)
    left = RECORDS // 2 + 2
    eventually(lambda: len(rig.on_source()) <= left, what="a compacted source")
    counter = tmp_path / "rounds"
    rig.copy_once(prelude=COUNTS_ROUNDS.format(path=str(counter)))
    rig.same()
    rig.offsets_are_exact()
    assert counter.stat().st_size < RECORDS // 20, "one round trip for every gap, it seems"

    known = rig.map()
    assert len(known.runs) >= RECORDS // 2
    rows = map_rows(rig)
    data = left * (VALUE_BYTES + 20)
    assert sum(size for _, size in rows) < data / 3, "before compaction"
    assert len(newest(rows)) <= len(known.runs) // RUNS_PER_CHUNK + 2, "one value for each chunk"
    assert sum(newest(rows).values()) < data / 12, "after compaction"
    # also check that the log cleaner itself reduces the map to this size
    apply_topic_configs(rig.target, offset_map_topic(rig.alias), CLEAN_SOON)
    rig.put(range(RECORDS + 1, RECORDS + 11), age_ms=AGE_MS)
    rig.copy_once()
    eventually(
        lambda: len(map_rows(rig)) <= len(newest(map_rows(rig))) + 2, 20, what="a compacted map"
    )
    rig.copy_once()
    rig.offsets_are_exact()


def transactional(rig: Rig) -> Producer:
    """Return a client with the transactional ID. If the previous client has left a transaction
    open, the start of the new client aborts it.
    """
    client = producer(rig.source, linger_ms=0, config={"transactional.id": f"pairs-{rig.alias}"})
    client.init_transactions(PATIENCE_S)
    return client


@pytest.mark.witness("H9: a transaction marker after every two records")
def test_transactional_source_with_a_marker_after_every_pair(rig: Rig) -> None:
    rig.create()
    transactions = 300
    client = transactional(rig)
    with rig.mirror() as mirror:
        for at in range(transactions):
            client.begin_transaction()
            for number in (2 * at, 2 * at + 1):
                out = rig.outgoing(number)
                client.produce(rig.topic, out.value, out.key, 0, timestamp=out.timestamp)
            try:
                if at % 10 == 9:
                    client.abort_transaction(PATIENCE_S)
                else:
                    client.commit_transaction(PATIENCE_S)
            except KafkaException:
                # a new client continues, whether or not the transaction was committed
                client = transactional(rig)
        # the records of an aborted transaction may or may not have reached the source
        rig.copied(len(read_all(rig.source, rig.topic, isolation="read_committed")))
        mirror.eventually(lambda parts: parts[0].lag == 0)
        mirror.stop()
    rig.same()
    rig.offsets_are_exact()
    # a running copy writes a chunk (a map row that grows) once per round of requests. Compaction
    # keeps only the newest value of each chunk
    assert sum(newest(map_rows(rig)).values()) < 30 * transactions
