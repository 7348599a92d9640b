"""Queries a broker for the brokers that it knows: the check for readiness.

It sends hand-written requests over a blocking socket, because the sandbox must not depend on the
client that it is used to test. An open port is not enough, because a KRaft broker listens before it
has joined the cluster.
"""

from __future__ import annotations

import socket
import struct

from twinlog.sandbox.layout import HOST

_METADATA, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 3, 17, 36


def known_brokers(
    port: int, credentials: tuple[str, str] | None = None, *, timeout: float = 2.0
) -> set[int]:
    """Return the IDs of brokers that this one lists as alive. Raises OSError until it responds."""
    with socket.create_connection((HOST, port), timeout=timeout) as connection:
        if credentials is not None:
            _log_in(connection, *credentials)
        # version 9 (Kafka 2.4), header version 2: no topics, no creation, no authorized operations
        # of cluster or topics, no tags
        answer = _ask(connection, _METADATA, 9, b"\x00" + b"\x01\x00\x00\x00\x00")
        return _broker_ids(answer[1:])  # response header version 1 ends with its tags


def listens(port: int) -> bool:
    """Return whether connections are accepted on this port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _log_in(connection: socket.socket, user: str, password: str) -> None:
    mechanism = b"PLAIN"
    answer = _ask(connection, _SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
    _refuse_errors(answer)
    token = f"\0{user}\0{password}".encode()
    _refuse_errors(_ask(connection, _SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token))


def _refuse_errors(answer: bytes) -> None:
    (code,) = struct.unpack_from(">h", answer)
    if code:
        raise OSError(f"the broker rejected the readiness probe's log-in with error {code}")


def _ask(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    client = b"sandbox"
    request = struct.pack(">hhih", api, version, 7, len(client)) + client + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, size)[4:]  # without the correlation ID


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("the broker closed the readiness probe's connection")
        received += piece
    return bytes(received)


def _broker_ids(body: bytes) -> set[int]:
    """Parse the throttle time, then a compact array of (id, compact host, port, compact rack,
    tags).
    """
    position = 4
    count, position = _unsigned_varint(body, position)
    found = set()
    for _ in range(count - 1):
        found.add(struct.unpack_from(">i", body, position)[0])
        host, position = _unsigned_varint(body, position + 4)
        rack, position = _unsigned_varint(body, position + host - 1 + 4)
        position += max(rack - 1, 0) + 1  # no tags
    return found


def _unsigned_varint(body: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
