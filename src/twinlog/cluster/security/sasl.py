"""Authenticates over an open connection by PLAIN, SCRAM or OAUTHBEARER.

A mechanism is a generator that yields the client's messages and receives the broker's responses by
`send`. The caller first negotiates the mechanism (SaslHandshake), and then sends each message
inside a SaslAuthenticate request. So this module has no I/O, except that OAUTHBEARER may request a
token.

*SCRAM* (RFC 5802, RFC 7677) lets each side prove that it knows the password, without sending it:

    client                                    broker
    n,,n=USER,r=OURS                     -->
                                         <--  r=OURS+THEIRS,s=SALT,i=ITERATIONS
    c=biws,r=OURS+THEIRS,p=PROOF         -->
                                         <--  v=SIGNATURE   or   e=error

The rules:

- The broker's nonce must begin with the client's nonce and be longer. Otherwise an attacker could
  replay an old response.
- A broker that requests fewer iterations than the RFC's minimum is rejected, as in Java, because it
  could guess the password from the proof. A maximum prevents a broker from blocking the client.
- The signature is checked, so that a server that does not know the password is detected.
- User names are escaped (`,` and `=`). Passwords are used unchanged, without SASLprep, because
  Kafka stores them in this way.

*OAUTHBEARER* (RFC 7628) sends a token. A broker that rejects the token sends its reason, waits for
one more message, and then ends the exchange with an error. The token is then removed from the
cache, because the issuer may have changed its keys.

*Rejected alternative*: the client library's classes. For OAUTHBEARER, they treat an empty response
after a rejection as success, and drop the broker's reason. For SCRAM, they neither escape user
names nor read `e=`. PLAIN needs only one line.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Generator
from typing import Final

from twinlog.cluster.security.security_settings import (
    OAUTHBEARER,
    PLAIN,
    OAuthSettings,
    SecuritySettings,
)
from twinlog.errors import AuthenticationFailed

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 2_000_000
"""Maximum iterations. They take about a second; a broker must not block the client for longer."""

_HEADER: Final = "n,,"
_HEADER_BASE64: Final = "biws"
_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[^,]+),i=(?P<times>\d{1,9})(?:,.*)?"
)


def scram_messages(
    mechanism: str, username: str, password: str, nonce: str, *, is_delegation_token: bool = False
) -> Generator[bytes, bytes, None]:
    """Yield the client's messages of SCRAM. The caller must `send` the broker's response to each.

    `nonce` must be random and used only once. Raises AuthenticationFailed.
    """
    hash_name = HASHES[mechanism]
    escaped = username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={escaped},r={nonce}" + (",tokenauth=true" if is_delegation_token else "")
    server_first = _text((yield (_HEADER + client_first).encode()), mechanism)
    match = _SERVER_FIRST.fullmatch(server_first)
    if match is None:
        raise _unexpected_error(server_first, mechanism)
    if not match["nonce"].startswith(nonce) or match["nonce"] == nonce:
        raise AuthenticationFailed(f"{mechanism}: the broker's nonce does not match the request")
    salted = hashlib.pbkdf2_hmac(
        hash_name,
        password.encode(),
        _base64(match["salt"], mechanism),
        _iterations(match, mechanism),
    )
    without_proof = f"c={_HEADER_BASE64},r={match['nonce']}"
    transcript = f"{client_first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, transcript, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = _text(
        (yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()), mechanism
    )
    if not final.startswith("v="):
        raise _unexpected_error(final, mechanism)
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    expected = hmac.digest(server_key, transcript, hash_name)
    if not hmac.compare_digest(_base64(final[2:].partition(",")[0], mechanism), expected):
        raise AuthenticationFailed(
            f"{mechanism}: the broker does not prove that it knows the password: check that this "
            "address belongs to the right cluster"
        )


def _iterations(match: re.Match[str], mechanism: str) -> int:
    iterations = int(match["times"])
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise AuthenticationFailed(
            f"{mechanism}: the broker requires {iterations} iterations, but only "
            f"{LEAST_ITERATIONS} to {MOST_ITERATIONS} are allowed: set the user's credentials again"
        )
    return iterations


def _text(answer: bytes, mechanism: str) -> str:
    try:
        return answer.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed(f"{mechanism}: the broker's response is not text") from None


def _base64(text: str, mechanism: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed(f"{mechanism}: the broker's response is malformed") from None


def _unexpected_error(answer: str, mechanism: str) -> AuthenticationFailed:
    if answer.startswith("e="):
        reason = answer[2:].partition(",")[0]
        return AuthenticationFailed(
            f"{mechanism}: the broker rejected the login: {reason!a}; "
            "check user and password in sasl.jaas.config"
        )
    return AuthenticationFailed(f"{mechanism}: the broker's response is malformed")


_LOGIN: Final = "check user and password in sasl.jaas.config"
LIKELY_CAUSES: Final = {
    PLAIN: _LOGIN,
    **dict.fromkeys(
        HASHES,
        f"{_LOGIN}, and that the user has credentials of this mechanism on this cluster "
        "(kafka-configs.sh --describe --entity-type users)",
    ),
    OAUTHBEARER: "check the client and the scope in sasl.jaas.config, and that the broker accepts "
    "tokens of this issuer and audience",
}
"""Advice for messages if a broker rejects the login, by mechanism."""

Messages = Generator[bytes, bytes, None]

_NONCE_BYTES: Final = 24
_DUMMY: Final = b"\x01"
"""The client's message after a rejection (RFC 7628). The broker then ends the exchange."""
_SHOWN_CHARACTERS: Final = 300


def authenticate(settings: SecuritySettings, exchange: Callable[[bytes], bytes]) -> None:
    """Authenticate by the mechanism in the settings. `exchange` must send one message, and return
    the broker's response.

    Raises AuthenticationFailed, any exception of `exchange`, and Unreachable if the token endpoint
    does not respond. May be called again on the same connection (KIP-368).
    """
    if not settings.needs_sasl:
        return
    try:
        messages = _messages(settings)
        message = next(messages)
        while True:
            response = exchange(message)
            try:
                message = messages.send(response)
            except StopIteration:
                return
    except AuthenticationFailed:
        if settings.oauth is not None:
            from twinlog.cluster.security.oauth import forget_token

            # the next connection uses a new token, because the issuer may have changed its keys
            forget_token(settings.oauth)
        raise


def _messages(settings: SecuritySettings) -> Messages:
    mechanism = settings.sasl_mechanism
    if mechanism == PLAIN:
        return _plain(settings)
    if mechanism == OAUTHBEARER and settings.oauth is not None:
        return _oauthbearer(settings.oauth)
    if mechanism in HASHES:
        return scram_messages(
            mechanism,
            settings.username,
            settings.password,
            secrets.token_urlsafe(_NONCE_BYTES),
            is_delegation_token=settings.is_delegation_token,
        )
    raise AuthenticationFailed(f"sasl.mechanism {mechanism} is not supported")


def _plain(settings: SecuritySettings) -> Messages:
    # RFC 4616: authorization identity (empty, as in Java), user, password
    answer = yield f"\0{settings.username}\0{settings.password}".encode()
    if answer:
        raise AuthenticationFailed("PLAIN: the broker's response is malformed")


def _oauthbearer(settings: OAuthSettings) -> Messages:
    # imported here because the module imports an HTTP client, and few lanes use OAUTHBEARER
    from twinlog.cluster.security.oauth import current_token

    extensions = "".join(f"{name}={value}\x01" for name, value in settings.extensions)
    token = current_token(settings)
    answer = yield f"n,,\x01auth=Bearer {token}\x01{extensions}\x01".encode()
    if answer:
        yield _DUMMY  # the broker responds with an error, which the caller usually raises
        reason = answer[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
        raise AuthenticationFailed(f"OAUTHBEARER: the broker rejected the token: {reason!a}")
