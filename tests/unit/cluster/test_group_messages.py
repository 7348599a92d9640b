"""Group messages that the client library lacks equal bytes that were written by hand."""

from __future__ import annotations

import pytest

from twinlog.cluster.group_messages import (
    AlterShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from twinlog.cluster.net import protocol
from twinlog.errors import CorruptData

HEAD = b"\0\0\0\7" + b"\0\1c" + b"\0"
"""The rest of a header after key and version: correlation ID 7, client "c", no tags."""

TOPIC_ID = bytes(range(16))
PARTITION = b"\2" + b"\0\0\0\3" + b"\0\0\0\0\0\0\1\1" + b"\0\0\0\5"
"""One partition: number 3, start offset 257, leader epoch 5."""
LAG = b"\0\0\0\0\0\0\0\2"
NO_ERROR = b"\0\0" + b"\0" + b"\0"


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def test_requests_have_these_bytes() -> None:
    of_group = DescribeShareGroupOffsetsRequest.DescribedGroup
    describe = DescribeShareGroupOffsetsRequest(groups=[of_group(group_id="g", topics=None)])
    group = b"\2" + b"\2g" + b"\0" + b"\0"  # one group, its name, all topics, no tags
    for version in (0, 1):
        expected = sized(b"\0\x5a\0" + bytes([version]) + HEAD + group + b"\0")
        assert protocol.encode_request(describe, version, 7, "c") == expected

    of_topic = AlterShareGroupOffsetsRequest.AlteredTopic
    one = of_topic.AlteredPartition(partition_index=3, start_offset=257)
    alter = AlterShareGroupOffsetsRequest(
        group_id="g", topics=[of_topic(topic_name="t", partitions=[one])]
    )
    topic = b"\2" + b"\2t" + b"\2" + b"\0\0\0\3" + b"\0\0\0\0\0\0\1\1" + b"\0" + b"\0"
    expected = sized(b"\0\x5b\0\0" + HEAD + b"\2g" + topic + b"\0")
    assert protocol.encode_request(alter, 0, 7, "c") == expected


@pytest.mark.parametrize(("version", "lag"), [(0, b""), (1, LAG)])
def test_responses_are_decoded(version: int, lag: bytes) -> None:
    topic = b"\2" + b"\2t" + TOPIC_ID + PARTITION + lag + NO_ERROR + b"\0"
    body = b"\0\0\0\0" + b"\2" + b"\2g" + topic + NO_ERROR + b"\0"
    answer = protocol.decode_response(90, version, memoryview(body))
    (group,) = answer.groups
    (found,) = group.topics
    (one,) = found.partitions
    assert (group.group_id, group.error_code, found.topic_name) == ("g", 0, "t")
    assert (one.partition_index, one.start_offset, one.error_code) == (3, 257, 0)
    assert one.lag == (2 if version else -1)
    for size in range(len(body)):
        with pytest.raises(CorruptData):
            protocol.decode_response(90, version, memoryview(body[:size]))


def test_response_to_altered_offsets_is_decoded() -> None:
    refused = b"\0\3" + b"\4why" + b"\0"
    topic = b"\2" + b"\2t" + TOPIC_ID + b"\2" + b"\0\0\0\3" + refused + b"\0"
    body = b"\0\0\0\0" + b"\0\0" + b"\0" + topic + b"\0"
    answer = protocol.decode_response(91, 0, memoryview(body))
    (found,) = answer.responses
    (one,) = found.partitions
    assert (answer.error_code, found.topic_name) == (0, "t")
    assert (one.partition_index, one.error_code, one.error_message) == (3, 3, "why")


@pytest.mark.parametrize("number", [69, 77], ids=["consumer", "share"])
def test_members_of_a_group_are_decoded(number: int) -> None:
    is_share = number == 77
    assigned = b"\2" + TOPIC_ID + b"\2t" + b"\2" + b"\0\0\0\3" + b"\0" + b"\0"
    member = b"\2m" + (b"" if is_share else b"\0") + b"\0" + b"\0\0\0\1" + b"\5shop" + b"\3/h"
    member += b"\2\2t" + (b"" if is_share else b"\0") + assigned
    member += b"" if is_share else assigned + b"\1"  # the assignment's type, from version 1 on
    members = b"\2" + member + b"\0"
    group = b"\0\0\0" + b"\2g" + b"\7Stable" + b"\0\0\0\1" * 2 + b"\2u" + members
    body = b"\0\0\0\0" + b"\2" + group + b"\0\0\0\0" + b"\0" + b"\0"
    answer = protocol.decode_response(number, 1, memoryview(body))
    (found,) = answer.groups
    (one,) = found.members
    assert (found.group_id, found.group_state) == ("g", "Stable")
    assert (one.client_id, one.client_host) == ("shop", "/h")
    (topic,) = one.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("t", [3])
