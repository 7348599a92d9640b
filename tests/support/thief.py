"""A thief on the same machine: a process of another user that speaks Spark's protocol to a port. It
has no secret.

It requests a block from a block manager, as any executor does for the code of its task. It sends
OpenBlocks, which is answered by a stream, and then requests the stream's first chunk.

    frame       length of the whole (8 bytes), type (1 byte), the rest
    type 3, 4   a request, its response: request ID (8), length of the body (4), body
    type 5      a request failed: request ID (8), length of the reason (4), reason
    type 0, 1   a chunk is requested, is returned: stream ID (8), index (4), (only 1:) body
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.eventually import PATIENCE_S

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

PROGRAM = """
import encodings.idna, os, socket, struct, sys  # the library of root is closed afterwards
nobody = int(sys.argv[1])
os.setgroups([])
os.setresgid(nobody, nobody, nobody)
os.setresuid(nobody, nobody, nobody)

def text(of):
    return struct.pack(">i", len(of)) + of.encode()

def tell(sock, kind, rest):
    sock.sendall(struct.pack(">qB", 9 + len(rest), kind) + rest)

def exactly(sock, count):
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            sys.exit("closed")
        data += more
    return data

def hear(sock):
    length, kind = struct.unpack(">qB", exactly(sock, 9))
    if length > 1 << 26:
        sys.exit("not Spark")
    return kind, exactly(sock, length - 9)

try:
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=15)
    body = b"\\0" + text("app") + text("1") + struct.pack(">i", 1) + text(sys.argv[3])
    tell(sock, 3, struct.pack(">qi", 1, len(body)) + body)
    kind, rest = hear(sock)
    if kind != 4:
        sys.exit(rest[12:400].decode("utf-8", "replace").splitlines()[0])
    tell(sock, 0, rest[13:21] + struct.pack(">i", 0))
    kind, rest = hear(sock)
    if kind != 1:
        sys.exit(f"type {kind}")
except OSError as error:
    sys.exit(str(error) or type(error).__name__)
sys.stdout.buffer.write(rest[12:])
"""


class Refused(Exception):
    """Raised if the thief got no block. Its text is the response that the thief got."""


def steal(port: int, block: str) -> bytes:
    """Return the block as Spark stores it, usually compressed. Raises Refused."""
    found = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, str(NOBODY), str(port), block],
        capture_output=True,
        check=False,
        cwd="/",
        env={},
        timeout=PATIENCE_S,
    )
    if found.returncode:
        raise Refused(found.stderr.decode("utf-8", "replace").strip())
    return found.stdout
