"""Messages of py4j about a JVM that is ending are not logged."""

import inspect
import logging
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError
from pyspark import accumulators

from twinlog.spark import session


@pytest.fixture
def dying_jvm() -> Iterator[int]:
    """The port of a server that accepts a command and closes the connection before it responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            peer.recv(100)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize("hushed", [False, True])
@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.0\r\n\r\n" + b"x" * 100])
def test_a_port_scan_of_pysparks_accumulators_is_no_traceback(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    said: bytes,
    hushed: bool,
) -> None:
    start: Callable[..., Any] = accumulators._start_update_server
    # a parameter since Spark 4.1
    kind = inspect.signature(start).parameters.keys() & {"is_unix_domain_sock"}
    server = start("t" * 64, **dict.fromkeys(kind, False))
    monkeypatch.setattr(type(server), "handle_error", socketserver.BaseServer.handle_error)
    if hushed:
        session.hush_libraries()
    try:
        # one thread serves all connections, so after the last response the others are done
        for last in (False, False, True):
            with socket.create_connection(server.socket.getsockname()) as stranger:
                stranger.sendall(said)
                if said or last:
                    stranger.shutdown(socket.SHUT_WR)
                    assert stranger.recv(1) == b""
                else:
                    stranger.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
    finally:
        server.shutdown()
    logged = capfd.readouterr().err
    assert ("Traceback" in logged) is not hushed
    assert said or ("ConnectionResetError" in logged) is not hushed


@pytest.mark.parametrize("hushed", [False, True])
def test_jvm_that_ends_within_a_call_is_raised_and_not_reported(
    dying_jvm: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    hushed: bool,
) -> None:
    # an earlier test's Spark session has hushed them for the whole process
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    for name in ("py4j", "pyspark"):
        caplog.set_level(logging.WARNING, name)
    if hushed:
        session.hush_libraries()
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=dying_jvm))
    with pytest.raises(Py4JError):
        gateway.jvm.java.lang.System.nanoTime()
    logging.getLogger().warning("others are heard")
    logged = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    noise = [] if hushed else ["Exception while sending command."]
    assert logged == [*noise, "others are heard"]
