"""Joins and leaves a group of Kafka Streams' own protocol (KIP-1071)."""

from __future__ import annotations

import socket
import struct
import uuid
from typing import Final

from tests.support.eventually import PATIENCE_S, eventually
from twinlog.sandbox import LocalCluster

__all__ = ["join_streams_group", "leave_streams_group"]

STREAMS_GROUP_HEARTBEAT: Final = 88
JOINS, LEAVES = 0, -1
NULL, NO_STRUCT, NO_ELEMENTS = b"\x00", b"\xff", b"\x01"


def join_streams_group(cluster: LocalCluster, group: str, topic: str) -> str:
    """Join the group, and return the member's ID after the coordinator has accepted it."""
    member = uuid.uuid4().hex
    eventually(lambda: _heartbeat(cluster, group, member, JOINS, topic) == 0)
    return member


def leave_streams_group(cluster: LocalCluster, group: str, member: str) -> None:
    assert _heartbeat(cluster, group, member, LEAVES, "") == 0


def _heartbeat(cluster: LocalCluster, group: str, member: str, epoch: int, topic: str) -> int:
    """Send a heartbeat to a cluster of one broker, and return the error code of the response."""
    is_new = epoch == JOINS
    topology = (
        struct.pack(">bi", 1, 1) + _array(_subtopology(topic)) + NULL if is_new else NO_STRUCT
    )
    tasks = NO_ELEMENTS if is_new else NULL
    body = b"".join(
        (
            _string(group),
            _string(member),
            struct.pack(">ii", epoch, 0),
            NULL * 2,  # instance, rack
            struct.pack(">i", 60_000 if is_new else -1),
            topology,
            tasks * 3,  # active, standby and warm-up tasks
            _string("process") if is_new else NULL,
            NO_STRUCT,  # endpoint
            NULL * 3,  # client tags, offsets and end offsets of tasks
            b"\x00",  # shuts the application down
            NULL,
        )
    )
    head = struct.pack(">hhih", STREAMS_GROUP_HEARTBEAT, 0, 1, 4) + b"test" + NULL
    host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(size)
    # after the correlation ID, the tags and the throttle time
    error: int = struct.unpack_from(">h", answer, 4 + 1 + 4)[0]
    return error


def _subtopology(topic: str) -> bytes:
    """Return an encoded subtopology that reads one topic."""
    return _string("0") + _array(_string(topic)) + NO_ELEMENTS * 5 + NULL


def _string(text: str) -> bytes:
    encoded = text.encode()
    return bytes([len(encoded) + 1]) + encoded


def _array(*elements: bytes) -> bytes:
    return bytes([len(elements) + 1]) + b"".join(elements)
