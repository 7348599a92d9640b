"""SASL messages byte by byte: the examples of the RFCs, and brokers that misbehave."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.security.sasl import authenticate, scram_messages
from twinlog.cluster.security.security_settings import OAuthSettings, SecuritySettings
from twinlog.errors import AuthenticationFailed

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def settings(mechanism: str, **fields: str) -> SecuritySettings:
    return SecuritySettings(
        protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        username=fields.get("username", "user"),
        password=fields.get("password", "pencil"),
    )


def failure(settings: SecuritySettings, exchange: Callable[[bytes], bytes]) -> str:
    with pytest.raises(AuthenticationFailed) as caught:
        authenticate(settings, exchange)
    assert "pencil" not in caught.value.message
    return caught.value.message


def accepting() -> tuple[list[bytes], Callable[[bytes], bytes]]:
    """Return the list of received messages, and a broker that accepts every message and adds it to
    the list.
    """
    received: list[bytes] = []

    def exchange(message: bytes) -> bytes:
        received.append(message)
        return b""

    return received, exchange


class ScramServer:
    """The broker's side of SCRAM for one user, implemented independently of `sasl.py`."""

    def __init__(
        self, mechanism: str, username: str, password: str, iterations: int = 4096
    ) -> None:
        self.hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self.username, self.password, self.iterations = username, password, iterations
        self.first = self.bare = ""
        self.received: list[bytes] = []

    def __call__(self, message: bytes) -> bytes:
        self.received.append(message)
        text = message.decode()
        if not self.first:
            assert text.startswith("n,,n=")
            self.bare = text[3:]
            name, nonce = self.bare.removeprefix("n=").split(",")[:2]
            if name.replace("=2C", ",").replace("=3D", "=") != self.username:
                return b"e=unknown-user"
            self.first = f"{nonce}theirs,s={base64.b64encode(b'salt').decode()},i={self.iterations}"
            return self.first.encode()
        without_proof, _, proof = text.rpartition(",p=")
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), b"salt", self.iterations)
        transcript = f"{self.bare},{self.first},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        stored = hashlib.new(self.hash, client_key).digest()
        signature = hmac.digest(stored, transcript, self.hash)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if base64.b64decode(proof) != expected:
            return b"e=invalid-proof"
        answer = hmac.digest(hmac.digest(salted, b"Server Key", self.hash), transcript, self.hash)
        return b"v=" + base64.b64encode(answer)


class TestScram:
    def test_example_of_the_rfc(self) -> None:
        messages = scram_messages("SCRAM-SHA-256", "user", "pencil", NONCE)
        assert next(messages) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
        assert messages.send(SERVER_FIRST) == (
            f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
        )
        with pytest.raises(StopIteration):
            messages.send(SERVER_FINAL)

    @pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    @given(
        name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        password=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    )
    def test_any_user_and_password(self, mechanism: str, name: str, password: str) -> None:
        server = ScramServer(mechanism, name, password)
        authenticate(settings(mechanism, username=name, password=password), server)
        assert len(server.received) == 2

    def test_user_names_are_escaped(self) -> None:
        messages = scram_messages("SCRAM-SHA-512", "a,b=c=2C", "p", "x")
        assert next(messages) == b"n,,n=a=2Cb=3Dc=3D2C,r=x"

    def test_delegation_token(self) -> None:
        messages = scram_messages("SCRAM-SHA-256", "id", "p", "x", is_delegation_token=True)
        assert next(messages) == b"n,,n=id,r=x,tokenauth=true"

    def test_each_exchange_has_a_new_nonce(self) -> None:
        servers = [ScramServer("SCRAM-SHA-256", "user", "pencil") for _ in range(2)]
        for server in servers:
            authenticate(settings("SCRAM-SHA-256"), server)
        assert servers[0].received[0] != servers[1].received[0]

    def test_wrong_password(self) -> None:
        server = ScramServer("SCRAM-SHA-256", "user", "other")
        text = failure(settings("SCRAM-SHA-256"), server)
        assert "'invalid-proof'; check user and password in sasl.jaas.config" in text

    def test_unknown_user(self) -> None:
        server = ScramServer("SCRAM-SHA-512", "somebody", "pencil")
        assert "unknown-user" in failure(settings("SCRAM-SHA-512"), server)

    def test_broker_that_does_not_know_the_password(self) -> None:
        server = ScramServer("SCRAM-SHA-256", "user", "pencil")
        forged = b"v=" + base64.b64encode(b"x" * 32)
        text = failure(
            settings("SCRAM-SHA-256"), lambda message: forged if server.first else server(message)
        )
        assert "check that this address belongs to the right cluster" in text

    @pytest.mark.parametrize("iterations", [1, 4095, 2_000_001, 999_999_999])
    def test_unsafe_iterations_are_rejected(self, iterations: int) -> None:
        server = ScramServer("SCRAM-SHA-256", "user", "pencil", iterations)
        assert f"requires {iterations} iterations" in failure(settings("SCRAM-SHA-256"), server)
        assert len(server.received) == 1

    @pytest.mark.parametrize(
        "answer",
        [b"r=other,s=c2FsdA==,i=4096", b"r={ours},s=c2FsdA==,i=4096"],
        ids=["another nonce", "our nonce alone"],
    )
    def test_response_with_another_nonce_is_rejected(self, answer: bytes) -> None:
        def exchange(message: bytes) -> bytes:
            return answer.replace(b"{ours}", message.rpartition(b"r=")[2])

        assert "does not match the request" in failure(settings("SCRAM-SHA-256"), exchange)

    @given(st.binary())
    def test_any_other_response_is_an_authentication_error(self, answer: bytes) -> None:
        failure(settings("SCRAM-SHA-256"), lambda _: answer)

    @given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=12))
    def test_any_fields_are_an_authentication_error(self, tail: str, salt: str, times: str) -> None:
        def exchange(message: bytes) -> bytes:
            ours = message.rpartition(b"r=")[2].decode(errors="replace")
            return f"r={ours}{tail},s={salt},i={times}".encode(errors="replace")

        failure(settings("SCRAM-SHA-256"), exchange)


class TestPlain:
    def test_message(self) -> None:
        sent, accept = accepting()
        authenticate(settings("PLAIN", username="ü"), accept)
        assert sent == ["\0ü\0pencil".encode()]

    def test_answer_that_is_not_empty(self) -> None:
        assert "malformed" in failure(settings("PLAIN"), lambda _: b"pencil")

    def test_error_of_the_exchange_is_raised_unchanged(self) -> None:
        def exchange(message: bytes) -> bytes:
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            authenticate(settings("PLAIN"), exchange)


class TestOAuthBearer:
    SETTINGS = SecuritySettings(
        protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        oauth=OAuthSettings(fixed_token="pencil", extensions=(("a", "b"), ("c", "d e"))),
    )

    def test_message(self) -> None:
        sent, accept = accepting()
        authenticate(self.SETTINGS, accept)
        assert sent == [b"n,,\x01auth=Bearer pencil\x01a=b\x01c=d e\x01\x01"]

    @pytest.mark.parametrize("last_answer", [b"", b"anything"])
    def test_rejection_with_a_reason(self, last_answer: bytes) -> None:
        answers = iter([b'{"status":"invalid_token"}', last_answer])
        sent: list[bytes] = []

        def exchange(message: bytes) -> bytes:
            sent.append(message)
            return next(answers)

        assert "invalid_token" in failure(self.SETTINGS, exchange)
        assert sent[1] == b"\x01"


def test_nothing_is_sent_without_sasl() -> None:
    def exchange(message: bytes) -> bytes:
        raise AssertionError

    authenticate(SecuritySettings(protocol="SSL"), exchange)
