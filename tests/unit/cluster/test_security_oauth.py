"""OAuth tokens: requests as Java sends them, their failures, and when a token is kept or
renewed.
"""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.certificates import shared_authority
from tests.support.eventually import PATIENCE_S
from tests.support.sweeps import sweep
from twinlog.cluster.security import oauth
from twinlog.cluster.security.oauth import Token, fetch_token, lifetime_of
from twinlog.cluster.security.oauth_keys import ALLOWED_URLS
from twinlog.cluster.security.sasl import authenticate
from twinlog.cluster.security.security_keys import load_security
from twinlog.cluster.security.security_settings import OAuthSettings, SecuritySettings
from twinlog.errors import AuthenticationFailed, ConfigError, Unreachable

NOW = 1_000_000.0
LENGTHS = [first + 9 * at for first in (160, 163, 166) for at in range(5)]
"""Lengths of a text before a secret, chosen so that the text is truncated within each part of the
secret.
"""


def jwt(**claims: object) -> str:
    parts = [{"alg": "none"}, claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts]
    return b".".join(encoded).decode() + ".signature"


@dataclass
class Endpoint:
    """A token endpoint that returns prepared responses and records its requests."""

    url: str = ""
    status: int = 200
    body: bytes = b'{"access_token":"opaque","expires_in":300}'
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[dict[str, str], dict[str, list[str]]]] = field(default_factory=list)

    def settings(self) -> OAuthSettings:
        return OAuthSettings(
            token_endpoint_url=self.url + "?tenant=hidden",
            client_id="me",
            client_secret="hunter2",
            scope="a b",
        )


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "*")
    # The tests use http. A context for https would read all certificates of the machine, which
    # takes 30 ms per request.
    monkeypatch.setattr(oauth, "_context", lambda _: None)
    endpoint = Endpoint()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(endpoint))
    endpoint.url = f"http://127.0.0.1:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield endpoint
    server.shutdown()
    server.server_close()
    thread.join()


def _handler(endpoint: Endpoint) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            form = urllib.parse.parse_qs(self.rfile.read(size).decode())
            endpoint.asked.append((dict(self.headers.items()), form))
            self.send_response(endpoint.status)
            for name, value in endpoint.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(endpoint.body)))
            self.end_headers()
            self.wfile.write(endpoint.body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class TestRequest:
    def test_request_is_that_of_java(self, endpoint: Endpoint) -> None:
        token = fetch_token(endpoint.settings(), NOW)
        assert (token.text, token.lifetime_s) == ("opaque", 300)
        headers, form = endpoint.asked[0]
        assert headers["Authorization"] == "Basic " + base64.b64encode(b"me:hunter2").decode()
        assert headers["Content-Type"] == "application/x-www-form-urlencoded"
        assert form == {"grant_type": ["client_credentials"], "scope": ["a b"]}

    def test_form_encoded_header(self, endpoint: Endpoint) -> None:
        settings = replace(endpoint.settings(), client_secret="a:b c", is_header_urlencoded=True)
        fetch_token(settings, NOW)
        encoded = endpoint.asked[0][0]["Authorization"].removeprefix("Basic ")
        assert base64.b64decode(encoded) == b"me:a%3Ab+c"

    def test_expiry_of_a_jwt_takes_precedence_over_the_response(self, endpoint: Endpoint) -> None:
        text = jwt(sub="me", exp=NOW + 60)
        endpoint.body = json.dumps({"id_token": text, "expires_in": 9}).encode()
        assert fetch_token(endpoint.settings(), NOW).lifetime_s == 60

    @pytest.mark.parametrize("status", [400, 401, 403, 404])
    def test_rejections_have_a_reason_but_no_secret(self, endpoint: Endpoint, status: int) -> None:
        endpoint.status = status
        endpoint.body = b'{"error":"invalid_client","error_description":"no hunter2\\n"}'
        with pytest.raises(AuthenticationFailed) as caught:
            fetch_token(endpoint.settings(), NOW)
        assert f"status {status} ('invalid_client: no ***" in caught.value.message
        assert endpoint.url in caught.value.message
        assert "hunter2" not in str(caught.value)
        assert "hidden" not in str(caught.value)

    @pytest.mark.parametrize("secret", ["hunter2-hunter2", 'a"b\\c/d e', "gr\u00fc\u00dfe-an-alle"])
    @pytest.mark.parametrize("length", sweep(LENGTHS, in_gate=5))
    def test_no_part_of_the_secret_is_left_in_a_truncated_text(
        self, endpoint: Endpoint, secret: str, length: int
    ) -> None:
        settings = replace(endpoint.settings(), client_secret=secret)
        basic = base64.b64encode(f"me:{secret}".encode()).decode()
        for form in (
            secret,
            urllib.parse.quote_plus(secret),
            urllib.parse.quote(secret, safe=""),
            basic,
        ):
            body = {"error": "x" * length, "error_description": f"no {form}"}
            endpoint.status, endpoint.body = 401, json.dumps(body).encode()
            with pytest.raises(AuthenticationFailed) as caught:
                fetch_token(settings, NOW)
            said = caught.value.message.partition("x" * length)[2]
            assert form[:4] not in said
            assert ascii(form)[1:5] not in said

    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_busy_endpoint_is_retriable(self, endpoint: Endpoint, status: int) -> None:
        endpoint.status = status
        with pytest.raises(Unreachable, match=f"status {status}"):
            fetch_token(endpoint.settings(), NOW)

    def test_the_secret_follows_no_redirect(self, endpoint: Endpoint) -> None:
        endpoint.status, endpoint.headers = 302, {"Location": endpoint.url}
        with pytest.raises(AuthenticationFailed, match="redirects"):
            fetch_token(endpoint.settings(), NOW)
        assert len(endpoint.asked) == 1

    @pytest.mark.parametrize("address", ["127.0.0.1:1", "login..svc", "a" * 64 + ".svc"])
    def test_refused_connection_is_retriable(self, endpoint: Endpoint, address: str) -> None:
        settings = replace(endpoint.settings(), token_endpoint_url=f"http://{address}/token")
        with pytest.raises(Unreachable, match="does not respond"):
            fetch_token(settings, NOW)

    def test_an_invalid_address_is_not_quoted(self, endpoint: Endpoint) -> None:
        url = "http://127.0.0.1:1/token?key=of a url"
        settings = replace(endpoint.settings(), token_endpoint_url=url)
        with pytest.raises(Unreachable, match="its address is not a valid URL") as refused:
            fetch_token(settings, NOW)
        assert "key" not in str(refused.value)

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"<html>",
            b"[]",
            b"1",
            b"{}",
            b'{"access_token":5}',
            b'{"access_token":"a\\u0001b"}',
        ],
    )
    def test_answers_without_a_token(self, endpoint: Endpoint, body: bytes) -> None:
        endpoint.body = body
        with pytest.raises(AuthenticationFailed, match="has no token"):
            fetch_token(endpoint.settings(), NOW)

    def test_numbers_that_are_too_large(self, endpoint: Endpoint) -> None:
        huge = "1" + "0" * 400
        claims = base64.urlsafe_b64encode(f'{{"exp":{huge}}}'.encode()).decode().rstrip("=")
        assert lifetime_of(f"a.{claims}.b", NOW) is None
        endpoint.body = f'{{"access_token":"opaque","expires_in":{huge}}}'.encode()
        assert fetch_token(endpoint.settings(), NOW).lifetime_s == 1e9

    @given(st.text())
    def test_any_token_has_a_lifetime_or_none(self, text: str) -> None:
        assert lifetime_of(text, NOW) is None or isinstance(lifetime_of(text, NOW), float)


def test_certificate_of_the_endpoint_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    issued = shared_authority().issue("idp", hosts=["127.0.0.1"])
    (tmp_path / "server.pem").write_text(issued.key_pem + issued.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    endpoint = Endpoint()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(endpoint))
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # refused handshakes
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        endpoint.url = f"https://127.0.0.1:{server.server_port}/token"
        with pytest.raises(AuthenticationFailed, match=r"ssl\.truststore\.location"):
            fetch_token(endpoint.settings(), NOW)
        trusting = replace(endpoint.settings(), endpoint_ca_pem=shared_authority().pem)
        assert fetch_token(trusting, NOW).text == "opaque"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Clockwork:
    """A clock and a token endpoint that the test controls."""

    def __init__(self) -> None:
        self.now = NOW
        self.fetched = 0
        self.is_down = False
        self.lifetime_s: float | None = 100.0

    def fetch(self, settings: OAuthSettings, now_s: float) -> Token:
        if self.is_down:
            raise Unreachable("down")
        self.fetched += 1
        return Token(text=f"token-{self.fetched}", lifetime_s=self.lifetime_s)

    def cache(self) -> oauth.TokenCache:
        return oauth.TokenCache(self.fetch, lambda: self.now, lambda: 0.0)


class TestCache:
    SETTINGS = OAuthSettings(token_endpoint_url="http://x/", refresh_share=0.8)

    def test_token_is_kept_until_most_of_its_life_has_passed(self) -> None:
        world = Clockwork()
        cache = world.cache()
        seen = []
        for world.now in (NOW, NOW + 79, NOW + 81, NOW + 160):
            seen.append(cache.token(self.SETTINGS))
        assert seen == ["token-1", "token-1", "token-2", "token-2"]

    def test_old_token_is_used_while_the_endpoint_is_down(self) -> None:
        world = Clockwork()
        cache = world.cache()
        cache.token(self.SETTINGS)
        world.is_down = True
        world.now = NOW + 85
        assert cache.token(self.SETTINGS) == "token-1"
        world.now = NOW + 101
        with pytest.raises(Unreachable):
            cache.token(self.SETTINGS)
        world.is_down = False
        assert cache.token(self.SETTINGS) == "token-2"

    def test_token_without_an_expiry_is_renewed_soon(self) -> None:
        world = Clockwork()
        world.lifetime_s = None
        cache = world.cache()
        cache.token(self.SETTINGS)
        world.now += oauth.UNKNOWN_LIFETIME_S
        assert cache.token(self.SETTINGS) == "token-2"

    def test_different_settings_share_no_token(self) -> None:
        world = Clockwork()
        cache = world.cache()
        cache.token(self.SETTINGS)
        assert cache.token(replace(self.SETTINGS, scope="other")) == "token-2"

    def test_threads_share_one_request(self) -> None:
        world = Clockwork()
        release = threading.Event()

        def slow(settings: OAuthSettings, now_s: float) -> Token:
            release.wait(10)
            return world.fetch(settings, now_s)

        cache = oauth.TokenCache(slow, lambda: world.now)
        seen: list[str] = []
        threads = [
            threading.Thread(target=lambda: seen.append(cache.token(self.SETTINGS)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        release.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert seen == ["token-1"] * 8


def test_rejected_token_is_not_used_again(endpoint: Endpoint) -> None:
    settings = SecuritySettings(
        protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", oauth=endpoint.settings()
    )

    def refuse(message: bytes) -> bytes:
        raise AuthenticationFailed("refused by the broker")

    sent: list[bytes] = []

    def accept(message: bytes) -> bytes:
        sent.append(message)
        return b""

    authenticate(settings, accept)
    authenticate(settings, accept)
    assert len(endpoint.asked) == 1
    with pytest.raises(AuthenticationFailed, match="refused by the broker"):
        authenticate(settings, refuse)
    endpoint.body = b'{"access_token":"newer"}'
    authenticate(settings, accept)
    assert [b"Bearer opaque" in each for each in sent] == [True, True, False]
    assert b"Bearer newer" in sent[2]


def test_unsecured_token() -> None:
    token = oauth.unsecured_token('{"sub":"alice"}', 60, NOW)
    header, claims, signature = token.split(".")
    assert signature == ""
    assert base64.urlsafe_b64decode(header + "=") == b'{"alg":"none"}'
    assert lifetime_of(token, NOW) == 60
    assert b'"sub":"alice"' in base64.urlsafe_b64decode(claims + "==")


class TestAllowedAddresses:
    """The user who starts the process can restrict the addresses that a file may contain."""

    LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"

    def load(self, url: str) -> SecuritySettings:
        keys = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{self.LOGIN} clientId="me" clientSecret="hunter2";',
            "sasl.oauthbearer.token.endpoint.url": url,
        }
        return load_security(keys, where="A")

    def test_any_address_is_allowed_without_the_variable(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(ALLOWED_URLS, raising=False)
        loaded = self.load("https://any.example/token")
        assert loaded.oauth is not None

    @pytest.mark.parametrize("url", ["https://b.example/token", "file:///etc/passwd"])
    def test_other_addresses_are_rejected(self, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        monkeypatch.setenv(ALLOWED_URLS, "https://a.example/token, https://c.example/token")
        with pytest.raises(ConfigError, match=ALLOWED_URLS):
            self.load(url)
        assert self.load("https://c.example/token").oauth is not None

    def test_an_empty_list_allows_no_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(ALLOWED_URLS, "")
        with pytest.raises(ConfigError, match=ALLOWED_URLS):
            self.load("https://a.example/token")
