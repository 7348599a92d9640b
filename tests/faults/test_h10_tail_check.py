"""H10: a target that recompresses batches, sets its own timestamps, or was compacted must not be
reported as DIVERGED.
"""

from __future__ import annotations

import pytest

from tests.support import raw
from tests.support.client import eventually
from tests.support.rig import Numbered, Rig
from tests.support.topics import apply_topic_configs, create_topic, delete_records
from twinlog.cluster.logs.raw_log import fetch_records
from twinlog.errors import TwinlogError
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, encode_batch

pytestmark = [pytest.mark.faults, pytest.mark.broker]

NOT_UTF8 = "\udcff\udcfe"
HOUR_MS = 3_600_000
FOUR_KEYS = {n: n % 4 for n in range(100)}


def without_time(records: list[Numbered]) -> list[Numbered]:
    return [record._replace(timestamp=-1) for record in records]


def payloads(rig: Rig) -> tuple[bytes, bytes]:
    """Return the bytes after the header of the last batch of the source and of the target. A naive
    check would compare these.
    """
    found = []
    for client, tp in ((rig.source_client, rig.here), (rig.target_client, rig.there)):
        answer = fetch_records(client, {tp: (0, 1 << 20)})[tp]
        assert not isinstance(answer, TwinlogError)
        header, at = list(read_headers(answer.records))[-1]
        found.append(bytes(answer.records[at + 61 : at + header.length]))
    return found[0], found[1]


@pytest.mark.witness("H10: a target that recompresses batches does not cause DIVERGED")
def test_target_that_compresses_again(rig: Rig) -> None:
    rig.create()
    create_topic(rig.target, rig.remote, configs={"compression.type": "gzip"})
    rig.put(range(50))
    odd = [
        rig.record(n)._replace(headers=((NOT_UTF8, b"1"), ("n", b"%d" % n), ("\ufffd", None)))
        for n in range(50, 60)
    ]
    raw.send(rig.source_client, rig.here, encode_batch(odd, codec=Codec.NONE)).expect_ok()
    rig.copy_once()
    here, there = payloads(rig)
    assert here != there, "the naive comparison says DIVERGED"
    rig.put(range(60, 80))
    rig.copy_once()
    # read raw values, because the independent client rejects header keys that are not UTF-8
    assert raw.values(rig.target_client, rig.there, 0) == [b"u%d" % n for n in range(80)]


def test_target_that_stamps_its_own_time(rig: Rig) -> None:
    rig.create()
    create_topic(rig.target, rig.remote, configs={"message.timestamp.type": "LogAppendTime"})
    rig.put(range(50))
    rig.copy_once()
    with rig.mirror() as mirror:
        # timestamps ahead of the target's clock, so that the target's response looks like the one
        # to a repeated batch
        for start in range(50, 100, 10):
            rig.put(range(start, start + 10), age_ms=-HOUR_MS // 2)
        rig.copied(100)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        mirror.stop()
    assert not any("OTHER_WRITER" in p.code for one in mirror.snapshots for p in one.partitions)
    assert without_time(rig.on_target()) == without_time(rig.on_source())
    rig.copy_once()


def test_target_that_was_compacted(rig: Rig) -> None:
    rig.create()
    rig.put(range(40), keys=FOUR_KEYS)
    rig.copy_once()
    apply_topic_configs(
        rig.target,
        rig.remote,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "100",
            "delete.retention.ms": "0",
        },
    )
    rig.put([40], keys=FOUR_KEYS)
    rig.copy_once()  # closes the segment before, so that the cleaner can compact it
    eventually(lambda: len(rig.on_target()) < 20, what="a cleaned target")
    rig.put(range(41, 61), keys=FOUR_KEYS)
    rig.copy_once()
    rig.put([61], keys=FOUR_KEYS)
    rig.copy_once()
    there = rig.on_target()
    latest = {record.key: record for record in rig.on_source()}
    assert {record.key: record for record in there} == latest
    assert rig.end() == 62
    rig.offsets_are_exact()


def test_source_that_was_compacted(rig: Rig) -> None:
    rig.create(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="100")
    rig.put(range(40), keys=FOUR_KEYS)
    rig.copy_once()
    rig.put([40], keys=FOUR_KEYS)
    eventually(lambda: len(rig.on_source()) < 20, what="a cleaned source")
    rig.copy_once()
    # the target has the same cleanup policy, and may or may not have compacted already
    here, there = rig.on_source(), rig.on_target()
    assert {r.key: r for r in there} == {r.key: r for r in here}
    assert rig.end() == 41
    rig.offsets_are_exact()


@pytest.mark.witness("H10: a different tail causes DIVERGED")
def test_really_another_tail(rig: Rig) -> None:
    """Another client has written different records under the flow's producer ID, with the sequences
    that the flow would use. The start must report them with DIVERGED.
    """
    rig.create()
    rig.put(range(30))
    with rig.mirror(once=True) as mirror:
        mirror.wait()
    us = rig.claim().producer_id
    forged: list[Record] = [rig.record(n + 1000) for n in range(30, 40)]
    writer = raw.Writer(rig.target_client, rig.there, us)
    writer.send(forged, 30).expect_ok()
    rig.put(range(30, 60))
    code, message = rig.fail_once()
    assert code == "DIVERGED"
    assert "target offsets [30, 40)" in message
    assert f"upstream records [30, 40) of {rig.topic}-0" in message
    assert rig.end() == 40


def test_constant_records_do_not_hide_a_divergence(rig: Rig) -> None:
    """All records are equal, so records that another client appends also equal the copy's last
    ones. They lack this flow's sequence numbers, so the start reports EXTRA_RECORDS.
    """
    rig.create()
    same = [rig.record(0)._replace(offset=n) for n in range(60)]
    raw.send(rig.source_client, rig.here, encode_batch(same, codec=Codec.NONE)).expect_ok()
    rig.copy_once()
    raw.Writer(rig.target_client, rig.there, -1).send(same[:5], -1)
    code, message = rig.fail_once()
    assert code == "EXTRA_RECORDS"
    assert "60" in message


def test_tail_whose_source_records_are_gone(rig: Rig) -> None:
    rig.create()
    rig.put(range(30))
    rig.copy_once()
    delete_records(rig.source, rig.topic)
    rig.put(range(30, 40))
    rig.copy_once()
    assert rig.numbers() == list(range(40))
