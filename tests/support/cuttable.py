"""A port between lanes and the driver's channel. It can end a connection on the driver's side
only.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from dataclasses import replace

from tests.support.lanes import ProcessLeases
from tests.support.mirror import Mirror

_HEAD = struct.Struct(">5xQIIQ")
"""Layout of a lane's first frame: length and kind are skipped, then lease, lane, attempt and
process ID.
"""


class Cuttable:
    """Forwards the bytes of connections in both directions. A connection that was cut is ended on
    the driver's side.
    """

    def __init__(self, mirror: Mirror, prelude: str = "") -> None:
        """Make the lanes of this mirror connect through this port. The mirror must not be started
        yet.
        """
        self._to = mirror.server.address.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        address = replace(mirror.server.address, port=self._listener.getsockname()[1])
        mirror.leases = ProcessLeases(address, mirror.server.secrets)
        mirror.leases.prelude = prelude
        self._far: dict[tuple[int, int], socket.socket] = {}
        self.pids: dict[tuple[int, int], int] = {}
        self._cut: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, lease: int, lane: int) -> None:
        """End a lane's connection on the driver's side. The lane's side stays open, so the lane
        notices nothing.
        """
        far = self._far[lease, lane]
        self._cut.add(far)
        far.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                threading.Thread(target=self._up, args=(near, far), daemon=True).start()
                threading.Thread(target=self._down, args=(far, near), daemon=True).start()

    def _up(self, near: socket.socket, far: socket.socket) -> None:
        head = b""
        with suppress(OSError):
            while data := near.recv(1 << 16):
                if len(head) < _HEAD.size:
                    head += data
                    if len(head) >= _HEAD.size:
                        lease, lane, _, pid = _HEAD.unpack_from(head)
                        self._far[lease, lane], self.pids[lease, lane] = far, pid
                if far not in self._cut:
                    far.sendall(data)
            if far not in self._cut:
                far.shutdown(socket.SHUT_WR)

    def _down(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(1 << 16):
                if far in self._cut:
                    return
                near.sendall(data)
        if far not in self._cut:
            with suppress(OSError):
                near.shutdown(socket.SHUT_WR)
