"""Batches that cannot be copied unchanged are decoded and written again. Every record arrives
unchanged and in order.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from tests.support import raw
from tests.support.client import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    Outgoing,
    produce,
    produce_transaction,
    read_all,
)
from tests.support.rig import Rig
from tests.support.topics import alter_topic_configs, create_topic
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import encode_batch

pytestmark = [pytest.mark.faults, pytest.mark.broker]

AN_HOUR_AGO = int(time.time() * 1000) - 3_600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def records(count: int, *, size: int = 0, first: int = 0) -> list[Outgoing]:
    """Return records that differ in everything that a record can have, including null keys and
    tombstones.
    """
    return [
        Outgoing(
            key=None if n % 7 == 3 else b"k%d" % n,
            value=None if n % 11 == 5 else b"v%d" % n + b"\x00\xff." * (size // 3),
            headers=(("h", b"%d" % n), ("h", None), ("", b"")) if n % 2 else (),
            timestamp=AN_HOUR_AGO + n,
            partition=0,
        )
        for n in range(first, first + count)
    ]


@pytest.mark.witness("records keep their LogAppendTime on the target", case="none")
@pytest.mark.parametrize("codec", CODECS)
def test_brokers_time_at_the_source_is_the_records_own_on_the_target(rig: Rig, codec: str) -> None:
    rig.create(message_timestamp_type="LogAppendTime")
    for first in range(0, 60, 20):
        produce(rig.source, rig.topic, records(20, first=first), codec=codec)
    with rig.mirror(once=True) as mirror:
        ((part,),) = [flow.partitions for flow in mirror.wait()]
    assert (part.state, part.code) == ("DONE", "")
    assert part.batches == part.recoded > 0, "the lane has counted them"
    here, there = read_all(rig.source, rig.topic), read_all(rig.target, rig.remote)
    assert len(here) == 60
    assert {r.timestamp_type for r in here} == {LOG_APPEND_TIME}
    assert {r.timestamp_type for r in there} == {CREATE_TIME}
    assert [r._replace(timestamp_type=LOG_APPEND_TIME) for r in there] == here
    rig.copy_once()  # the next start compares the last records of both logs, and finds them equal


@pytest.mark.witness("batches over the target's limit are split", case="lz4")
@pytest.mark.parametrize("codec", CODECS)
def test_batches_over_the_targets_limit_are_split(rig: Rig, codec: str) -> None:
    rig.create()
    produce(rig.source, rig.topic, records(200, size=300), codec=codec, linger_ms=100)
    create_topic(rig.target, rig.remote, configs={"max.message.bytes": "1000"})
    rig.copy_once()
    there = read_all(rig.target, rig.remote)
    assert len(there) == 200
    assert there == read_all(rig.source, rig.topic)
    assert len(raw.batches(rig.target_client, rig.there)) > 1
    rig.copy_once()


@pytest.mark.witness("read_uncommitted copies aborted records")
def test_aborted_data_is_copied_where_the_flow_reads_uncommitted(rig: Rig) -> None:
    rig.create()
    for at, commit in enumerate((True, False, True)):
        produce_transaction(rig.source, rig.topic, records(10, first=10 * at), commit=commit)
    rig.copy_once({f"{rig.alias}.consumer.isolation.level": "read_uncommitted"})
    rig.same(isolation="read_uncommitted")
    assert rig.end() == 30, "and no marker"


@pytest.mark.witness("a batch that is too large after re-encoding on the target is split")
def test_batch_that_outgrows_the_limit_where_the_target_compresses_again(rig: Rig) -> None:
    rig.create()
    rig.put(range(5))
    rig.copy_once()
    outgrows = {"compression.type": "uncompressed", "max.message.bytes": "5000"}
    alter_topic_configs(rig.target, rig.remote, outgrows)
    for first in (5, 45, 85):
        packed(rig, range(first, first + 40), size=500)
    with rig.mirror(once=True) as mirror:
        ((part,),) = [flow.partitions for flow in mirror.wait()]
        errors = dict(mirror.snapshots[0].errors)
    assert (part.state, part.code, errors) == ("DONE", "", {})
    assert rig.numbers() == list(range(125))
    rig.same()
    rig.offsets_are_exact()
    packed(rig, [125], size=10)
    packed(rig, [126], size=8000)
    code, message = rig.fail_once()
    assert code == "RECORD_TOO_LARGE"
    assert "upstream offset 126" in message
    assert rig.numbers() == list(range(126)), "and what stands before it is copied"


def packed(rig: Rig, numbers: Iterable[int], *, size: int) -> None:
    """Write one batch that is within the target's size limit in its compressed form, as it is
    fetched.
    """
    batch = encode_batch([rig.record(n, size=size) for n in numbers], codec=Codec.ZSTD)
    assert len(batch) < 5000
    raw.send(rig.source_client, rig.here, batch).expect_ok()
