"""A broker that lacks some requests. On a test's host, it is a proxy that removes these requests
from a real broker's ApiVersions responses.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tests.support.frames import read_frame, send_frame
from tests.support.hosts import Host

__all__ = ["lacking"]

API_VERSIONS: Final = 18
NOBODY: Final = 0x7000
"""Key of a request that no client knows. It replaces the removed keys."""


@contextmanager
def lacking(host: Host, bootstrap: str, *keys: int) -> Iterator[None]:
    """Run the proxy at the broker's own address on the host until the block ends. It hides the
    requests with these keys.
    """
    near, _, port = bootstrap.rpartition(":")
    listener = host.within(lambda: socket.create_server((near, int(port))))
    arguments = (listener, near, int(port), frozenset(keys))
    threading.Thread(target=_accept, args=arguments, daemon=True).start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _accept(listener: socket.socket, near: str, port: int, keys: Collection[int]) -> None:
    with suppress(OSError):  # the listener was closed
        while True:
            client, _ = listener.accept()
            broker = socket.create_connection((near, port))
            asked: dict[int, int] = {}
            threading.Thread(target=_ask, args=(client, broker, asked), daemon=True).start()
            threading.Thread(
                target=_answer, args=(broker, client, asked, keys), daemon=True
            ).start()


def _ask(client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
    """Forward requests. Store the version of each ApiVersions request by its correlation ID."""
    with suppress(OSError, EOFError):
        while True:
            frame = read_frame(client)
            key, version, correlation = struct.unpack_from(">hhi", frame)
            if key == API_VERSIONS:
                asked[correlation] = version
            send_frame(broker, frame)
    with suppress(OSError):
        broker.shutdown(socket.SHUT_WR)


def _answer(
    broker: socket.socket, client: socket.socket, asked: dict[int, int], keys: Collection[int]
) -> None:
    with suppress(OSError, EOFError):
        while True:
            frame = read_frame(broker)
            (correlation,) = struct.unpack_from(">i", frame)
            version = asked.pop(correlation, None)
            if version is not None:
                _hide(frame, version, keys)
            send_frame(client, frame)
    with suppress(OSError):
        client.shutdown(socket.SHUT_WR)


def _hide(frame: bytearray, version: int, keys: Collection[int]) -> None:
    """Hide requests in an ApiVersions response: correlation ID (4 bytes), error (2), then the
    array, which is compact and has tags from version 3 on.
    """
    at = 6
    if version >= 3:
        count, shift = 0, 0
        while True:
            byte = frame[at]
            count |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        count, step = count - 1, 7
    else:
        (count,) = struct.unpack_from(">i", frame, at)
        at, step = at + 4, 6
    for number in range(count):
        (key,) = struct.unpack_from(">h", frame, at + number * step)
        if key in keys:
            struct.pack_into(">h", frame, at + number * step, NOBODY)
