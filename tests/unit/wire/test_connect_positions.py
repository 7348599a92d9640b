"""The positions of MirrorMaker 2 in Kafka Connect's offset storage, byte for byte."""

from __future__ import annotations

import pytest

from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import (
    PositionKey,
    decode_position,
    encode_position,
)

KEY = PositionKey(
    connector="MirrorSourceConnector", cluster="A", source=TopicPartition("orders", 0)
)
BYTES = b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"orders"}]'


def test_key() -> None:
    assert KEY.encode() == BYTES
    assert PositionKey.decode(BYTES) == KEY


def test_order_of_fields_does_not_matter_when_reading() -> None:
    other = b'["MirrorSourceConnector", {"topic":"orders","partition":0,"cluster":"A"}]'
    assert PositionKey.decode(other) == KEY


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"{",
        b'["MirrorCheckpointConnector",{"partition":0,"topic":"A.orders","group":"g1"}]',
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]',
        b'["file",{"filename":"x"}]',
    ],
)
def test_keys_of_other_connectors(key: bytes | None) -> None:
    assert PositionKey.decode(key) is None


def test_value() -> None:
    assert encode_position(41) == b'{"offset":41}'
    assert decode_position(b'{"offset":41}') == 41


@pytest.mark.parametrize("value", [None, b"", b'{"offset":-1}', b"{}", b'{"offset":"4"}'])
def test_invalid_values(value: bytes | None) -> None:
    assert decode_position(value) is None
