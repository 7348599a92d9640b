"""Which clients are admitted over HTTP: their tokens, certificates, roles and origins, and the
number of their connections.
"""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.certificates import shared_authority
from tests.support.dripping import dripping
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.rest import Rest, rest_of
from tests.support.snapshots import flow, partition
from twinlog.addresses import Address
from twinlog.cli.main import run
from twinlog.config.load import load
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web import open_requests
from twinlog.control.web.address import CannotListen, ListenUnguarded
from twinlog.control.web.server import WebServer
from twinlog.errors import ConfigError

EVERYWHERE = Address("0.0.0.0", 0)  # noqa: S104 (what is tried)
LOCAL = Address("127.0.0.1", 0)
A_B = "/api/v1/flows/A-%3EB"
JSON = {"Content-Type": "application/json"}

Serve = Callable[..., AbstractContextManager[Rest]]
Token = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    def serve(address: Address, *lines: str) -> AbstractContextManager[Rest]:
        file = tmp_path / "mm2.properties"
        servers = "".join(f"{one}.bootstrap.servers = 127.0.0.1:1\n" for one in "AB")
        file.write_text(
            f"clusters = A, B\n{servers}A->B.enabled = true\n" + "".join(f"{x}\n" for x in lines)
        )
        monitor = Monitor()
        monitor.update([flow(partition())])
        return rest_of(load(file, environment={}), file, monitor, address)

    return serve


@pytest.fixture
def token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Token:
    def token(name: str = "oncall", role: str = "operate") -> str:
        capsys.readouterr()
        assert run(["token", "new", str(tmp_path / "tokens"), "--name", name, "--role", role]) == 0
        return capsys.readouterr().out.strip()

    return token


def here(rest: Rest) -> Rest:
    """Return the server under an address to which clients on this host can connect."""
    address = Address("127.0.0.1", rest.address.port)
    return Rest(address=address, events=rest.events, current=rest.current)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_without_authentication_other_hosts_get_only_metrics_and_probes(serve: Serve) -> None:
    with serve(EVERYWHERE, "twinlog.rest.monitoring.open = true") as rest:
        for path in ("/metrics", "/healthz", "/readyz"):
            assert here(rest).ask(path).status == 200
        for path in ("/api/v1/flows", "/connectors", "/api/v1/openapi.json"):
            answer = here(rest).ask(path)
            assert (answer.status, answer.json["code"]) == (403, "REST_UNGUARDED")
            assert "twinlog.rest.tokens.file" in answer.json["do"]
        assert here(rest).ask(f"{A_B}/pause", "POST", {}).status == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "no.such.host.invalid", "a..b"])  # noqa: S104
def test_nothing_is_served_to_others_that_no_key_allows(serve: Serve, host: str) -> None:
    message = (
        r"9405: other machines reach this address.*"
        r"twinlog\.rest\.monitoring\.open = true.*127\.0\.0\.1"
    )
    with pytest.raises(ListenUnguarded, match=message), serve(Address(host, 9405)):
        pass


def test_a_name_that_none_can_be_stops_no_copy(serve: Serve) -> None:
    guard = "twinlog.rest.monitoring.open = true"
    with pytest.raises(CannotListen), serve(Address("a..b", 9405), guard):
        pass


def test_a_mirror_whose_address_others_reach_unguarded_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mm2.properties"
    servers = "".join(f"{one}.bootstrap.servers = 127.0.0.1:1\n" for one in "AB")
    file.write_text(f"clusters = A, B\n{servers}A->B.enabled = true\n")
    assert run(["mirror", str(file), "--listen", "0.0.0.0:0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("twinlog: 0.0.0.0:0: other machines reach this address")
    assert line.endswith("[LISTEN_UNGUARDED]")


@pytest.mark.parametrize("address", [EVERYWHERE, LOCAL], ids=["everywhere", "local"])
def test_with_tokens_every_request_needs_one(
    serve: Serve, token: Token, tmp_path: Path, address: Address
) -> None:
    good = token()
    with serve(address, f"twinlog.rest.tokens.file = {tmp_path / 'tokens'}") as server:
        rest = here(server)
        wrong = {"Authorization": f"Basic {good}"}
        for headers in ({}, bearer("x"), bearer(good[:-1]), bearer(f"{good}x"), wrong):
            for path in ("/api/v1/flows", "/connectors", "/metrics", "/healthz", "/nothing"):
                answer = rest.ask(path, headers=headers)
                assert (answer.status, answer.json["code"]) == (401, "TOKEN_NEEDED"), path
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                assert good not in answer.body.decode()
        for path in ("/api/v1/codes", "/connectors", "/metrics", "/healthz"):
            assert rest.ask(path, headers=bearer(good)).status == 200


def test_probes_are_open_by_a_key(serve: Serve, token: Token, tmp_path: Path) -> None:
    token()
    keys = (
        f"twinlog.rest.tokens.file = {tmp_path / 'tokens'}",
        "twinlog.rest.monitoring.open = true",
    )
    with serve(EVERYWHERE, *keys) as rest:
        assert here(rest).ask("/metrics").status == here(rest).ask("/readyz").status == 200
        assert here(rest).ask("/api/v1/codes").status == 401


def test_a_reader_may_not_operate(serve: Serve, token: Token, tmp_path: Path) -> None:
    reads = bearer(token("grafana", "read"))
    with serve(LOCAL, f"twinlog.rest.tokens.file = {tmp_path / 'tokens'}") as rest:
        assert rest.ask("/api/v1/codes", headers=reads).status == 200
        for path, method in (
            (f"{A_B}/pause", "POST"),
            (f"{A_B}/limit", "POST"),
            (f"{A_B}/topics/release", "POST"),
            ("/connectors/MirrorSourceConnector/stop", "PUT"),
            ("/A/B/connectors/MirrorSourceConnector/resume", "PUT"),
        ):
            answer = rest.ask(path, method, {}, reads)
            assert (answer.status, answer.json["code"]) == (403, "ROLE_TOO_SMALL"), path
            assert "grafana may read" in answer.json["what"]


def test_a_line_that_is_removed_shuts_its_client_out(
    serve: Serve, token: Token, tmp_path: Path
) -> None:
    first, second, file = token("one"), token("two"), tmp_path / "tokens"
    assert first not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    with serve(LOCAL, f"twinlog.rest.tokens.file = {file}") as rest:
        lines = file.read_text().splitlines()
        assert rest.ask("/api/v1/codes", headers=bearer(first)).status == 200
        file.write_text(f"{lines[1]}\n")
        assert rest.ask("/api/v1/codes", headers=bearer(first)).status == 401
        assert rest.ask("/api/v1/codes", headers=bearer(second)).status == 200
        file.write_text("rubbish\n")
        assert rest.ask("/api/v1/codes", headers=bearer(second)).status == 401
        file.unlink()
        assert rest.ask("/api/v1/codes", headers=bearer(second)).status == 401


def test_a_line_that_is_removed_ends_its_streams(
    serve: Serve, token: Token, tmp_path: Path
) -> None:
    first, _, file = token("one"), token("two"), tmp_path / "tokens"
    with serve(LOCAL, f"twinlog.rest.tokens.file = {file}") as rest:
        connection = http.client.HTTPConnection(*rest.address, timeout=PATIENCE_S)
        connection.request("GET", "/api/v1/stream", headers=bearer(first))
        answer = connection.getresponse()
        assert answer.readline() == b"event: flows\n"
        file.write_text(f"{file.read_text().splitlines()[1]}\n")
        while answer.readline():
            pass
        connection.close()


def test_a_file_that_was_mended_by_its_mode_alone_is_read_again(
    serve: Serve, token: Token, tmp_path: Path
) -> None:
    good, file = token(), tmp_path / "tokens"
    with serve(LOCAL, f"twinlog.rest.tokens.file = {file}") as rest:
        for mode, status in ((0o620, 401), (0o600, 200)):
            file.chmod(mode)
            assert rest.ask("/api/v1/codes", headers=bearer(good)).status == status


def test_a_file_that_could_not_be_opened_once_is_read_again(
    token: Token,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from twinlog.control.web.tokens import Tokens

    def too_many_files(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    good, file = token(), tmp_path / "tokens"
    tokens = Tokens(file)
    file.touch()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", too_many_files)
        assert [tokens.client(good) for _ in range(3)] == [None] * 3
    assert capsys.readouterr().err.count("all HTTP clients are refused") == 1
    assert tokens.client(good) is not None


def test_a_token_has_a_name_of_its_own_and_a_dry_run_makes_none(
    token: Token, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "tokens")
    assert run(["token", "new", file, "--name", "a", "--dry-run"]) == 0
    assert not Path(file).exists()
    token("a")
    capsys.readouterr()
    assert run(["token", "new", file, "--name", "b", "-q"]) == 0
    # also printed with -q, because a token that was not printed could never be used
    assert capsys.readouterr().out.strip()
    assert run(["token", "new", file, "--name", "a"]) == 2
    assert "already has a token named a" in capsys.readouterr().err
    assert run(["token", "new", file, "--name", "a:b"]) == 2
    assert "is not a valid name" in capsys.readouterr().err


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_other_clients_may_write_is_refused(
    token: Token, tmp_path: Path, mode: int
) -> None:
    from twinlog.control.web.tokens import Tokens

    token()
    (tmp_path / "tokens").chmod(mode)
    with pytest.raises(ConfigError, match="other users may write to it"):
        Tokens(tmp_path / "tokens")


@pytest.mark.parametrize(("text", "said"), [("", "has no token"), ("x\n", ":1: is not a line")])
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str, said: str) -> None:
    from twinlog.control.web.tokens import Tokens

    path = tmp_path / "tokens"
    with pytest.raises(ConfigError, match="twinlog token new"):
        Tokens(path)
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        Tokens(path)
    with pytest.raises(ConfigError, match="Is a directory; name a file"):
        Tokens(tmp_path)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_get_nothing(serve: Serve, headers: dict[str, str]) -> None:
    with serve(LOCAL) as rest:
        for path, method in (
            ("/api/v1/flows", "GET"),
            (f"{A_B}/pause", "POST"),
            ("/connectors/MirrorSourceConnector/pause", "PUT"),
        ):
            answer = rest.ask(path, method, None if method == "GET" else {}, headers)
            assert (answer.status, answer.json["code"]) == (403, "FOREIGN_ORIGIN")
            assert "Access-Control-Allow-Origin" not in answer.headers


def test_pages_from_here_may_ask(serve: Serve) -> None:
    with serve(LOCAL) as rest:
        headers = {"Origin": f"http://{rest.address}", "Sec-Fetch-Site": "same-origin"}
        assert rest.ask("/api/v1/codes", headers=headers).status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_request_that_a_form_can_send_changes_nothing(serve: Serve, kind: str) -> None:
    with serve(LOCAL) as rest:
        answer = rest.ask(f"{A_B}/pause", "POST", b"{}", {"Content-Type": kind})
        assert (answer.status, answer.json["code"]) == (400, "REQUEST_INVALID")


def test_a_foreign_name_gets_nothing(serve: Serve) -> None:
    with serve(LOCAL) as rest:
        answer = rest.ask("/api/v1/flows", headers={"Host": "evil.example"})
        assert (answer.status, answer.json["code"]) == (421, "FOREIGN_HOST")


@pytest.mark.parametrize("head", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_body_that_drips_has_the_same_deadline(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    monkeypatch.setattr(open_requests, "WITHIN_S", 1.0)
    with serve(LOCAL) as rest, socket.create_connection(rest.address) as slow:
        request = f"POST {A_B}/pause HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n"
        slow.sendall(request.encode())
        slow.settimeout(0.1)

        def is_closed() -> bool:
            try:
                slow.sendall(b"1\r\na\r\n")
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        eventually(is_closed)


def test_slow_clients_keep_no_other_client_from_rest(serve: Serve) -> None:
    with serve(LOCAL) as rest, dripping(rest.address, 16) as drippers:
        eventually(lambda: drippers.rounds >= 2)
        assert rest.ask("/api/v1/codes").status == 200
        assert rest.ask("/healthz").status == 200


def test_long_headers_are_refused(serve: Serve) -> None:
    with serve(LOCAL) as rest, socket.create_connection(rest.address) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000)
        assert client.makefile("rb").readline().split()[1] in (b"400", b"431")


def trusting(authority: str) -> ssl.SSLContext:
    """Return the TLS context of a client that, unlike Python 3.13's default, does not require key
    identifiers in certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority)
    return context


def test_certificates_replace_tokens(serve: Serve, tmp_path: Path) -> None:
    authority = shared_authority()
    server, client = tmp_path / "server.pem", tmp_path / "client.pem"
    for path, name in ((server, "localhost"), (client, "grafana")):
        made = authority.issue(name)
        path.write_text(made.pem + made.key_pem)
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.pem)
    lines = (
        f"twinlog.rest.tls.certificate.file = {server}",
        f"twinlog.rest.tls.client.ca.file = {ca}",
    )

    def ask(rest: Rest, path: str, method: str, *, shows: bool) -> tuple[int, bytes]:
        context = trusting(ca.read_text())
        context.check_hostname = False
        if shows:
            context.load_cert_chain(client)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", rest.address.port, context=context, timeout=20
        )
        try:
            connection.request(method, path, json.dumps({}), JSON)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    with serve(EVERYWHERE, *lines) as rest:
        assert ask(rest, "/api/v1/codes", "GET", shows=True)[0] == 200
        status, body = ask(rest, f"{A_B}/pause", "POST", shows=True)
        assert (status, json.loads(body)["code"]) == (403, "ROLE_TOO_SMALL")
        with pytest.raises(OSError):
            ask(rest, "/api/v1/codes", "GET", shows=False)


def test_clients_that_stop_within_a_tls_handshake_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twinlog.config.rest import RestConfig

    monkeypatch.setattr(open_requests, "MOST_PER_ADDRESS", 8)
    made, certificate = shared_authority().issue("localhost"), tmp_path / "server.pem"
    certificate.write_text(made.pem + made.key_pem)
    monitor = Monitor()
    monitor.update([flow(partition())])
    server = WebServer(monitor, LOCAL, RestConfig(certificate_file=certificate))
    server.start()
    context = trusting(shared_authority().pem)
    try:
        with ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_connection(server.address)) for _ in range(20)
            ]
            silent[0].settimeout(PATIENCE_S)
            assert silent[0].recv(1) == b"", "the oldest has to go"
            eventually(lambda: len(server.open_requests) == 8)
            connection = http.client.HTTPSConnection(
                "localhost", server.address.port, context=context, timeout=PATIENCE_S
            )
            connection.request("GET", "/metrics")
            assert connection.getresponse().status == 200
            connection.close()
        eventually(lambda: len(server.open_requests) == 0)
    finally:
        server.close()


def test_files_that_are_no_certificates_are_refused(tmp_path: Path) -> None:
    from twinlog.config.rest import RestConfig

    wrong = tmp_path / "wrong.pem"
    with pytest.raises(ConfigError, match=r"wrong\.pem: cannot be used for HTTPS"):
        WebServer(Monitor(), LOCAL, RestConfig(certificate_file=wrong))
    wrong.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"wrong\.pem: cannot be used for HTTPS"):
        WebServer(Monitor(), LOCAL, RestConfig(certificate_file=wrong))
