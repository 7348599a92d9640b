"""SCRAM (RFC 5802, RFC 7677) as used by Kafka: mutual proof of a password without sending it.

    n,,n=user,r=OURS                      ->
                                          <-  r=OURS+THEIRS,s=SALT,i=ITERATIONS
    c=biws,r=OURS+THEIRS,p=PROOF          ->
                                          <-  v=SIGNATURE   or   e=error

User names are escaped (`,` and `=`). Passwords are used unchanged, without SASLprep, because Kafka
stores them that way. A broker that requests fewer iterations than the RFC's minimum is rejected, as
in Java: the password could be guessed from the response. The library's class neither escapes names
nor reads `e=`, so this is a separate implementation.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Generator
from typing import Final

from twinlog.errors import AuthenticationFailed

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 2_000_000
"""About a second: a broker must not be able to block the client with a number."""

_HEADER: Final = "n,,"
_HEADER_BASE64: Final = "biws"
_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[^,]+),i=(?P<times>\d{1,9})(?:,.*)?"
)


def scram_messages(
    mechanism: str, username: str, password: str, nonce: str, *, is_delegation_token: bool = False
) -> Generator[bytes, bytes, None]:
    """Yield the client's messages. Each is answered by `send` with the broker's. `nonce` is new and
    random.
    """
    hash_name = HASHES[mechanism]
    escaped = username.replace("=", "=3D").replace(",", "=2C")
    ours = f"n={escaped},r={nonce}" + (",tokenauth=true" if is_delegation_token else "")
    theirs = _text((yield (_HEADER + ours).encode()), mechanism)
    match = _SERVER_FIRST.fullmatch(theirs)
    if match is None:
        raise _unexpected(theirs, mechanism)
    if not match["nonce"].startswith(nonce) or match["nonce"] == nonce:
        raise AuthenticationFailed(f"{mechanism}: the response does not match the request")
    salted = hashlib.pbkdf2_hmac(
        hash_name,
        password.encode(),
        _base64(match["salt"], mechanism),
        _iterations(match, mechanism),
    )
    without_proof = f"c={_HEADER_BASE64},r={match['nonce']}"
    transcript = f"{ours},{theirs},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, transcript, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = _text(
        (yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()), mechanism
    )
    if not final.startswith("v="):
        raise _unexpected(final, mechanism)
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    expected = hmac.digest(server_key, transcript, hash_name)
    if not hmac.compare_digest(_base64(final[2:].partition(",")[0], mechanism), expected):
        raise AuthenticationFailed(
            f"{mechanism}: the broker does not know the password itself: is this the right cluster?"
        )


def _iterations(match: re.Match[str], mechanism: str) -> int:
    iterations = int(match["times"])
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise AuthenticationFailed(
            f"{mechanism}: the broker asks for {iterations} iterations, allowed are "
            f"{LEAST_ITERATIONS} to {MOST_ITERATIONS}: set the user's credentials again"
        )
    return iterations


def _text(answer: bytes, mechanism: str) -> str:
    try:
        return answer.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed(f"{mechanism}: the broker's answer is not text") from None


def _base64(text: str, mechanism: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed(f"{mechanism}: the broker's answer is malformed") from None


def _unexpected(answer: str, mechanism: str) -> AuthenticationFailed:
    if answer.startswith("e="):
        reason = answer[2:].partition(",")[0]
        return AuthenticationFailed(
            f"{mechanism}: the broker rejected the login: {reason!a}; "
            "check user and password in sasl.jaas.config"
        )
    return AuthenticationFailed(f"{mechanism}: the broker's answer is malformed")
