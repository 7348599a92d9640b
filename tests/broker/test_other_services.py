"""An address leads to another service than Kafka, or to another listener than configured. This is
reported immediately.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.certificates import shared_authority
from tests.support.stopwatch import Stopwatch
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings, parse_bootstrap
from twinlog.cluster.security.security_keys import load_security
from twinlog.config.load import load
from twinlog.control.check.mirror_check import GIVES_UP_S, check
from twinlog.errors import CorruptData, TwinlogError, Unreachable
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.layout import free_ports

pytestmark = [pytest.mark.broker]


@pytest.fixture
def web() -> Iterator[str]:
    """The address of a running web server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def settings(addresses: str, **keys: str) -> ClusterSettings:
    security = {key.replace("_", "."): value for key, value in keys.items()}
    return ClusterSettings(
        alias="A",
        bootstrap=parse_bootstrap(addresses),
        security=load_security(security, where="test") if security else None,
    )


def refusal(given: ClusterSettings) -> TwinlogError:
    with ClusterClient(given) as client, pytest.raises(TwinlogError) as caught:
        client.metadata([])
    return caught.value


def test_a_web_server_is_named_long_before_giving_up(web: str) -> None:
    with Stopwatch() as since:
        error = refusal(settings(web))
    assert since.seconds < GIVES_UP_S / 2
    assert (type(error), error.code) == (CorruptData, "NOT_KAFKA")
    assert f"{web} of cluster A responds like a web server (HTTP), not like Kafka" in error.message
    assert "check A.bootstrap.servers" in error.message


@pytest.mark.witness("a listener without TLS is reported")
def test_a_broker_without_tls_is_named_if_tls_is_configured(
    source_cluster: LocalCluster, tmp_path: Path
) -> None:
    issuer = tmp_path / "ca.pem"
    issuer.write_text(shared_authority().pem)
    keys = {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(issuer)}
    error = refusal(settings(source_cluster.bootstrap, security_protocol="SSL", **keys))
    assert error.code == "NOT_KAFKA"
    assert "uses Kafka's protocol without TLS" in error.message
    assert "A.security.protocol" in error.message


def test_one_broker_beside_a_web_server_is_enough(web: str, source_cluster: LocalCluster) -> None:
    for _ in range(4):  # several times, because the client tries the addresses in random order
        with ClusterClient(settings(f"{web},{source_cluster.bootstrap}")) as client:
            assert client.metadata([]).brokers


def test_an_address_without_a_broker_does_not_stop_the_attempts(web: str) -> None:
    (port,) = free_ports(1)
    given = settings(f"{web},127.0.0.1:{port}")
    with ClusterClient(given, api_timeout_s=5) as client, pytest.raises(Unreachable) as caught:
        client.metadata([])
    assert "responds like a web server (HTTP)" in caught.value.message


def test_check_names_it(web: str, source_cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"clusters = A, B\nA.bootstrap.servers = {web}\n"
        f"B.bootstrap.servers = {source_cluster.bootstrap}\nA->B.enabled = true\n"
    )
    (problem,) = check(load(file, environment={})).problems
    assert problem.code == "NOT_KAFKA"
