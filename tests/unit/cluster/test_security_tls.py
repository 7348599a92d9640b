"""Handshakes with a small TLS server: trusted certificates, rejected certificates, and the messages
about them.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.certificates import Issued, authority, shared_authority
from tests.support.eventually import PATIENCE_S
from twinlog.cluster.security import tls
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.cluster.security.tls import explain_tls_error, wrap_socket
from twinlog.errors import AuthenticationFailed, ClusterError, Fate, Unreachable

TRUSTING = SecuritySettings(protocol="SSL", ca_pem=shared_authority().pem)
LOCAL = ("localhost", "127.0.0.1", "::1")


@contextmanager
def serving(answer: Callable[[socket.socket], object]) -> Iterator[socket.socket]:
    """Yield a connected client socket. `answer` handles its other end in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            peer, _ = server.accept()
            with peer:
                peer.settimeout(10)
                answer(peer)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        client = socket.create_connection(server.getsockname()[:2], timeout=PATIENCE_S)
        try:
            yield client
        finally:
            client.close()
            thread.join(PATIENCE_S)


@pytest.fixture
def tls_server(
    tmp_path: Path,
) -> Callable[..., AbstractContextManager[socket.socket]]:
    """A function that starts a TLS server with a given certificate. The server echoes one byte."""

    def start(
        issued: Issued,
        *issuers: Issued,
        client_trust: str | None = None,
        setup: Callable[[ssl.SSLContext], object] = lambda _: None,
    ) -> AbstractContextManager[socket.socket]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        file = tmp_path / "server.pem"
        file.write_text(issued.key_pem + issued.pem + "".join(each.pem for each in issuers))
        context.load_cert_chain(file)
        if client_trust is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=client_trust)
        setup(context)

        def answer(peer: socket.socket) -> None:
            try:
                with context.wrap_socket(peer, server_side=True) as secured:
                    secured.sendall(secured.recv(1))
            except OSError:
                pass

        return serving(answer)

    return start


Server = Callable[..., AbstractContextManager[socket.socket]]


def talk(sock: socket.socket, settings: SecuritySettings, host: str = "localhost") -> ssl.SSLSocket:
    """Do a handshake, send one byte, and receive it again."""
    secured = wrap_socket(sock, host, settings)
    assert isinstance(secured, ssl.SSLSocket)
    with secured:
        secured.sendall(b"x")
        assert secured.recv(1) == b"x"
        return secured


def refusal(
    sock: socket.socket, settings: SecuritySettings, host: str = "localhost"
) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        wrap_socket(sock, host, settings)
    assert sock.fileno() == -1
    return caught.value


def test_without_tls_the_socket_is_returned_unchanged() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert wrap_socket(left, "x", SecuritySettings(protocol="SASL_PLAINTEXT")) is left


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "localhost."])
def test_names_and_addresses_of_the_certificate(tls_server: Server, host: str) -> None:
    with tls_server(shared_authority().issue("broker", hosts=LOCAL)) as sock:
        talk(sock, TRUSTING, host)


def test_common_name_is_used_without_alternative_names(tls_server: Server) -> None:
    with tls_server(shared_authority().issue("localhost")) as sock:
        talk(sock, TRUSTING)


@pytest.mark.parametrize("host", ["kafka.example.org", "10.1.2.3"])
def test_certificate_for_another_host(tls_server: Server, host: str) -> None:
    server = shared_authority().issue("broker", hosts=LOCAL)
    with tls_server(server) as sock:
        error = refusal(sock, TRUSTING, host)
    assert isinstance(error, AuthenticationFailed)
    assert f"is not for {host}" in error.message
    assert "ssl.endpoint.identification.algorithm" in error.message
    with tls_server(server) as sock:
        talk(sock, replace(TRUSTING, check_hostname=False), host)


def test_unknown_issuer(tls_server: Server) -> None:
    server = authority("Somebody").issue("broker", hosts=LOCAL)
    with tls_server(server) as sock:
        assert "ssl.truststore.* lacks the issuer" in refusal(sock, TRUSTING).message
    with tls_server(server) as sock:
        error = refusal(sock, SecuritySettings(protocol="SSL", check_hostname=False))
    assert isinstance(error, AuthenticationFailed)
    assert "set ssl.truststore.location" in error.message


@pytest.mark.parametrize(
    ("days", "hint"), [((-10, -1), "has expired"), ((1, 10), "not valid yet: compare the clocks")]
)
def test_expired_or_early_certificate(tls_server: Server, days: tuple[int, int], hint: str) -> None:
    with tls_server(shared_authority().issue("broker", hosts=LOCAL, days=days)) as sock:
        assert hint in refusal(sock, TRUSTING).message


def test_intermediate_and_own_certificates_can_be_trusted_as_in_java(tls_server: Server) -> None:
    middle = shared_authority().issue("Middle", is_authority=True)
    server = middle.issue("broker", hosts=LOCAL)
    for trusted in (middle, server):
        with tls_server(server) as sock:
            talk(sock, replace(TRUSTING, ca_pem=trusted.pem))
    with tls_server(server, middle) as sock:
        talk(sock, TRUSTING)


def test_client_certificate_is_accepted(tls_server: Server) -> None:
    server = shared_authority().issue("broker", hosts=LOCAL)
    middle = shared_authority().issue("Middle", is_authority=True)
    me = middle.issue("me")
    settings = replace(
        TRUSTING, private_key_pem=me.key_pem, certificate_chain_pem=me.pem + middle.pem
    )
    with tls_server(server, client_trust=shared_authority().pem) as sock:
        talk(sock, settings)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("certificate", "hint"),
    [
        (None, "ssl.keystore"),
        (authority("Stranger").issue("me"), "issuer of the client certificate (ssl.keystore.*)"),
        (shared_authority().issue("me", days=(-9, -1)), "client certificate as expired"),
    ],
)
def test_client_certificate_is_missing_or_rejected(
    tls_server: Server, version: ssl.TLSVersion, certificate: Issued | None, hint: str
) -> None:
    settings = TRUSTING
    if certificate is not None:
        settings = replace(
            TRUSTING, private_key_pem=certificate.key_pem, certificate_chain_pem=certificate.pem
        )
    server = shared_authority().issue("broker", hosts=LOCAL)

    def cap(context: ssl.SSLContext) -> None:
        context.maximum_version = version

    with tls_server(server, client_trust=shared_authority().pem, setup=cap) as sock:
        try:
            secured = wrap_socket(sock, "localhost", settings)
            # with TLS 1.3, only the first read reports the rejection
            with secured, pytest.raises(OSError) as caught:
                secured.recv(1)
            error = explain_tls_error(caught.value, "localhost", settings)
        except ClusterError as refused:
            error = refused
    assert isinstance(error, AuthenticationFailed)
    assert hint in error.message


def test_no_common_version(tls_server: Server) -> None:
    def old(context: ssl.SSLContext) -> None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2

    with tls_server(shared_authority().issue("broker", hosts=LOCAL), setup=old) as sock:
        error = refusal(sock, replace(TRUSTING, tls_versions=("TLSv1.3",)))
    assert "ssl.enabled.protocols" in error.message


def test_chosen_cipher_suite(tls_server: Server) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    used: list[object] = []
    with tls_server(shared_authority().issue("broker", hosts=LOCAL)) as sock:
        secured = wrap_socket(sock, "localhost", replace(TRUSTING, cipher_suites=(suite,)))
        assert isinstance(secured, ssl.SSLSocket)
        with secured:
            used.append(secured.cipher())
            secured.sendall(b"x")
    assert used == [("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)]


def test_only_suites_of_tls_1_3_disable_tls_1_2(tls_server: Server) -> None:
    def old(context: ssl.SSLContext) -> None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2

    settings = replace(TRUSTING, cipher_suites=("TLS_AES_256_GCM_SHA384",))
    with tls_server(shared_authority().issue("broker", hosts=LOCAL)) as sock:
        talk(sock, settings)
    with tls_server(shared_authority().issue("broker", hosts=LOCAL), setup=old) as sock:
        assert isinstance(refusal(sock, settings), AuthenticationFailed)


def test_plain_text_listener() -> None:
    with serving(lambda peer: peer.sendall(b"\0\0\0\x10 this is no TLS")) as sock:
        error = refusal(sock, TRUSTING)
    assert isinstance(error, AuthenticationFailed)
    assert "plain text, check security.protocol" in error.message


def test_connection_closed_in_the_handshake_is_retriable() -> None:
    with serving(lambda peer: peer.recv(1)) as sock:
        error = refusal(sock, TRUSTING)
    assert isinstance(error, Unreachable)
    assert error.fate is Fate.RETRIABLE


def test_handshake_without_response_is_retriable() -> None:
    done = threading.Event()
    with serving(lambda _: done.wait(10)) as sock:
        sock.settimeout(0.1)
        error = refusal(sock, TRUSTING)
        done.set()
    assert isinstance(error, Unreachable)
    assert "in time" in error.message


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ],
)
def test_java_names_of_cipher_suites(java: str, openssl: str) -> None:
    assert tls.openssl_name(java) == openssl
    assert tls.unknown_suites([java, "TLS_AES_128_GCM_SHA256"]) == []


def test_the_private_key_leaves_no_file_behind(
    tls_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    me = shared_authority().issue("me")
    settings = replace(TRUSTING, private_key_pem=me.key_pem, certificate_chain_pem=me.pem)
    with tls_server(
        shared_authority().issue("broker", hosts=LOCAL), client_trust=shared_authority().pem
    ) as sock:
        talk(sock, settings)
    assert [each.name for each in tmp_path.iterdir()] == ["server.pem"]
