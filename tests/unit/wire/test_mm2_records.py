"""Records of MirrorMaker 2's internal topics are encoded and decoded."""

from __future__ import annotations

import pytest

from twinlog.errors import CorruptData
from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import Checkpoint, Heartbeat, OffsetSync

SYNC = OffsetSync(
    topic_partition=TopicPartition("orders", 3), upstream_offset=100, downstream_offset=200
)
CHECKPOINT = Checkpoint(
    group="g1",
    topic_partition=TopicPartition("A.orders", 3),
    upstream_offset=150,
    downstream_offset=201,
)
HEARTBEAT = Heartbeat(source_alias="A", target_alias="B", timestamp_ms=1_700_000_000_000)

EXAMPLES = (
    (SYNC, "00066f726465727300000003", "000000000000006400000000000000c8"),
    (
        CHECKPOINT,
        "000267310008412e6f726465727300000003",
        "0000000000000000009600000000000000c90000",
    ),
    (HEARTBEAT, "000141000142", "00000000018bcfe56800"),
)


@pytest.mark.parametrize(("record", "key", "value"), EXAMPLES)
def test_known_bytes_in_both_directions(
    record: OffsetSync | Checkpoint | Heartbeat, key: str, value: str
) -> None:
    assert (record.key().hex(), record.value().hex()) == (key, value)
    assert type(record).decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize(("record", "key", "value"), EXAMPLES)
def test_every_truncation_is_corrupt(
    record: OffsetSync | Checkpoint | Heartbeat, key: str, value: str
) -> None:
    whole_key, whole_value = bytes.fromhex(key), bytes.fromhex(value)
    for cut in range(len(whole_key)):
        with pytest.raises(CorruptData):
            type(record).decode(whole_key[:cut], whole_value)
    for cut in range(len(whole_value)):
        with pytest.raises(CorruptData):
            type(record).decode(whole_key, whole_value[:cut])


@pytest.mark.parametrize(("record", "key", "value"), EXAMPLES)
def test_more_bytes_after_the_fields_are_ignored(
    record: OffsetSync | Checkpoint | Heartbeat, key: str, value: str
) -> None:
    longer = bytes.fromhex(value) + b"more"
    assert type(record).decode(bytes.fromhex(key) + b"more", longer) == record


@pytest.mark.parametrize("kind", [OffsetSync, Checkpoint, Heartbeat])
def test_a_tombstone_is_corrupt(kind: type[OffsetSync | Checkpoint | Heartbeat]) -> None:
    with pytest.raises(CorruptData):
        kind.decode(SYNC.key(), None)
    with pytest.raises(CorruptData):
        kind.decode(None, SYNC.value())


def test_a_negative_length_is_corrupt() -> None:
    with pytest.raises(CorruptData):
        OffsetSync.decode(b"\xff\xff" + SYNC.key(), SYNC.value())


def test_another_version_is_read_as_version_0() -> None:
    assert Heartbeat.decode(HEARTBEAT.key(), b"\x00\x07" + HEARTBEAT.value()[2:]) == HEARTBEAT


def test_a_text_that_is_too_long_is_rejected() -> None:
    fits = Heartbeat(source_alias="a" * 32_767, target_alias="B", timestamp_ms=0)
    assert Heartbeat.decode(fits.key(), fits.value()) == fits
    with pytest.raises(CorruptData, match="32768 bytes"):
        Heartbeat(source_alias="a" * 32_768, target_alias="B", timestamp_ms=0).key()


def test_text_is_utf_8_and_its_length_is_in_bytes() -> None:
    checkpoint = Checkpoint(
        group="größe",
        topic_partition=TopicPartition("A.t", 0),
        upstream_offset=1,
        downstream_offset=2,
        metadata="数",
    )
    assert checkpoint.key().startswith(b"\x00\x07gr\xc3\xb6\xc3\x9fe")
    assert Checkpoint.decode(checkpoint.key(), checkpoint.value()) == checkpoint
