"""Authenticates over an open connection, one message and one response at a time.

The caller has agreed on the mechanism (SaslHandshake) and wraps each message into SaslAuthenticate.
This module creates the messages. The library's classes are not used: its OAUTHBEARER treats an
empty response after a rejection as success and drops the broker's reason, its SCRAM is described in
`scram`, and the remaining mechanism, PLAIN, is one line.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator
from typing import Final

from twinlog.cluster.security.scram import HASHES, scram_messages
from twinlog.cluster.security.security_settings import (
    OAUTHBEARER,
    PLAIN,
    OAuthSettings,
    SecuritySettings,
)
from twinlog.errors import AuthenticationFailed

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
"""By mechanism: what to check if a broker rejects the login."""

Messages = Generator[bytes, bytes, None]

_NONCE_BYTES: Final = 24
_DUMMY: Final = b"\x01"
"""RFC 7628: the message of a rejected client, so that the server can end the exchange with an
error.
"""
_SHOWN_CHARACTERS: Final = 300


def authenticate(settings: SecuritySettings, exchange: Callable[[bytes], bytes]) -> None:
    """Run the mechanism. `exchange` sends one message and returns the broker's response.

    Raises AuthenticationFailed, any exception of `exchange`, and Unreachable if the token endpoint
    does not respond. May be called again on the same connection (KIP-368).
    """
    if not settings.needs_sasl:
        return
    try:
        _run(_messages(settings), exchange)
    except AuthenticationFailed:
        if settings.oauth is not None:
            from twinlog.cluster.security.oauth import forget_token

            # the next connection uses a new token: the endpoint may have changed its keys
            forget_token(settings.oauth)
        raise


def _run(messages: Messages, exchange: Callable[[bytes], bytes]) -> None:
    message = next(messages)
    while True:
        answer = exchange(message)
        try:
            message = messages.send(answer)
        except StopIteration:
            return


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
    # RFC 4616: user to act as (none, like Java), user, secret
    answer = yield f"\0{settings.username}\0{settings.password}".encode()
    if answer:
        raise AuthenticationFailed("PLAIN: the broker's answer is malformed")


def _oauthbearer(settings: OAuthSettings) -> Messages:
    # imported here, because it brings an HTTP client, which few lanes need
    from twinlog.cluster.security.oauth import current_token

    extensions = "".join(f"{name}={value}\x01" for name, value in settings.extensions)
    token = current_token(settings)
    answer = yield f"n,,\x01auth=Bearer {token}\x01{extensions}\x01".encode()
    if answer:
        yield _DUMMY  # usually the caller raises the broker's error response to this
        reason = answer[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
        raise AuthenticationFailed(f"OAUTHBEARER: the broker rejected the token: {reason!a}")
