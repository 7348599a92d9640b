"""Caches OAUTHBEARER tokens for the connections of this process, and renews them.

    lifetime of a token   |---------------------------------|---------|
                          fetched                       renew_at   ends_at

*Problem.* A process opens many connections, and a restarting broker makes it open them at the same
moment. If each connection requested its own token, the endpoint would get a burst of requests. And
if an endpoint does not respond, a copy must continue while its token is still valid.

*Rules.* All connections with the same settings share a token. After `renew_at`, that is, after most
of the token's lifetime (`sasl.login.refresh.window.factor`), the next connection fetches a new
token. If the endpoint does not respond, the old token is used until `ends_at`, and the endpoint is
queried again only after some seconds. One thread fetches a token, and other threads wait for it. A
token that a broker has rejected is removed from the cache.

Unlike in Java, no background thread renews tokens, because an idle lane needs no token.

**Token endpoint.** A token is requested with OAuth 2's client credentials grant (RFC 6749, 4.4), as
Java does. No message contains the secret. So messages omit the query of an address, and the secret
is removed from texts of the endpoint, which may repeat the request. Redirects are not followed,
because the secret must only be sent to the configured address.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import math
import random
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from twinlog.addresses import IO_ERRORS
from twinlog.cluster.security.security_settings import OAuthSettings
from twinlog.errors import AuthenticationFailed, ClusterError, EndpointAway, Unreachable

_MAX_ANSWER_BYTES: Final = 1024 * 1024
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_RETRIABLE_STATUS: Final = frozenset({408, 425, 429, *range(500, 600)})
_SHOWN_CHARACTERS: Final = 200
MOST_LIFETIME_S: Final = 1e9
"""Maximum lifetime of a token that an endpoint may state, in seconds: decades."""
_CHECK: Final = "check sasl.oauthbearer.token.endpoint.url and the network"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Token:
    """A token, with the seconds until it expires (None if unknown)."""

    text: str
    lifetime_s: float | None


def fetch_token(settings: OAuthSettings, now_s: float) -> Token:
    """Request a token. Raises EndpointAway if a retry can help, or else AuthenticationFailed."""
    url = settings.token_endpoint_url or ""
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=_context(settings)), _NoRedirect()
    )
    try:
        with opener.open(_request(settings, url), timeout=settings.timeout_ms / 1000) as answer:
            body: bytes = answer.read(_MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            body = error.read(_MAX_ANSWER_BYTES)
        raise _refusal(error.code, body, settings) from None
    except urllib.error.URLError as error:
        raise _unanswered(error.reason, url) from error
    except (*IO_ERRORS, http.client.HTTPException) as error:
        raise _unanswered(error, url) from error
    return _read_answer(body, url, now_s)


def lifetime_of(token: str, now_s: float) -> float | None:
    """Return the seconds until a JWT expires, or None if the token is no JWT or has no `exp`."""
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"]) - now_s
    except (OverflowError, binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        return None  # an integer may be too large for a float


def address_of(url: str) -> str:
    """Return the URL for messages, without user and query, which may contain a secret."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _context(settings: OAuthSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=settings.endpoint_ca_pem)
    # by default, Python 3.13 rejects an issuer without key identifiers, which Java accepts
    context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
    return context


def _request(settings: OAuthSettings, url: str) -> urllib.request.Request:
    form = {"grant_type": "client_credentials"}
    if settings.scope:
        form["scope"] = settings.scope
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {_basic(settings)}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    # `load_oauth` has checked the scheme of the URL
    return urllib.request.Request(  # noqa: S310
        url, data=urllib.parse.urlencode(form).encode(), headers=headers, method="POST"
    )


def _basic(settings: OAuthSettings) -> str:
    client_id, secret = settings.client_id, settings.client_secret
    if settings.is_header_urlencoded:
        client_id, secret = urllib.parse.quote_plus(client_id), urllib.parse.quote_plus(secret)
    return base64.b64encode(f"{client_id}:{secret}".encode()).decode()


def _refusal(status: int, body: bytes, settings: OAuthSettings) -> ClusterError:
    address = address_of(settings.token_endpoint_url or "")
    if status in _RETRIABLE_STATUS:
        return EndpointAway(f"the token endpoint {address} responds with status {status}; {_CHECK}")
    if status in range(300, 400):
        return AuthenticationFailed(
            f"the token endpoint {address} redirects to another address, which is not followed: "
            "set sasl.oauthbearer.token.endpoint.url to that address"
        )
    reason = _oauth_error(body, settings)
    return AuthenticationFailed(
        f"the token endpoint {address} rejects the request with status {status}{reason}: "
        "check client ID, secret and scope in sasl.jaas.config"
    )


def _oauth_error(body: bytes, settings: OAuthSettings) -> str:
    """Return `error` and `error_description` (RFC 6749, 5.2) as text, without the client secret."""
    try:
        answer = json.loads(body)
        words = [answer["error"], answer.get("error_description")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    text = ": ".join(str(each) for each in words if each)
    secret = settings.client_secret or ""
    encoded = urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret)
    # replace before the text is cut or escaped; otherwise a part of the secret or an escaped form
    # of it could remain
    for form in (secret, *encoded, _basic(settings)):
        text = text.replace(form, "***") if form else text
    return f" ({text!a})"[:_SHOWN_CHARACTERS]


def _unanswered(reason: object, url: str) -> ClusterError:
    address = address_of(url)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return AuthenticationFailed(
            f"the certificate of the token endpoint {address} is rejected: "
            f"{reason.verify_message}; "
            "if its issuer is your own, add ssl.truststore.location=FILE to sasl.jaas.config"
        )
    if isinstance(reason, http.client.InvalidURL):
        reason = "its address is not a valid URL"  # the original reason contains the query
    return EndpointAway(f"the token endpoint {address} does not respond: {reason}; {_CHECK}")


def _read_answer(body: bytes, url: str, now_s: float) -> Token:
    try:
        answer = json.loads(body)
        text = answer.get("access_token") or answer.get("id_token")
        stated = answer.get("expires_in")
    except (ValueError, AttributeError, RecursionError):
        text = stated = None
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        raise AuthenticationFailed(
            f"the response of {address_of(url)} has no token: check that it is a token endpoint"
        )
    lifetime = lifetime_of(text, now_s)
    if lifetime is None and isinstance(stated, (int, float)):
        lifetime = float(min(stated, MOST_LIFETIME_S))
    return Token(text=text, lifetime_s=lifetime)


UNKNOWN_LIFETIME_S: Final = 60.0
"""Assumed lifetime of a token without an expiry time, in seconds."""
RETRY_AFTER_S: Final = 10.0
"""Pause before a silent endpoint is queried again while the old token is valid, in seconds."""
_CHANCE: Final = random.SystemRandom()  # has no state that forked lanes would share
JITTER_SHARE: Final = 0.05
"""Maximum share of a token's lifetime by which its renewal is earlier. The share is random, so that
lanes do not all renew at the same time. Java's sasl.login.refresh.window.jitter has the same
default.
"""


class _Slot:
    """The cached token of one OAuthSettings. `lock` is locked while a thread fetches a token."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token = ""
        self.renew_at = self.ends_at = -math.inf


class TokenCache:
    """Caches the current token of each OAuthSettings. Thread-safe."""

    def __init__(
        self,
        fetch: Callable[[OAuthSettings, float], Token] = fetch_token,
        clock: Callable[[], float] = time.time,  # not monotonic, because a token's expiry is a date
        chance: Callable[[], float] = _CHANCE.random,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._slots: dict[OAuthSettings, _Slot] = {}

    def token(self, settings: OAuthSettings) -> str:
        """Return the cached token, or a new one if it must be renewed. Raises ClusterError."""
        with self._lock:
            slot = self._slots.setdefault(settings, _Slot())
        with slot.lock:
            now = self._clock()
            if now < slot.renew_at:
                return slot.token
            try:
                fetched = self._fetch(settings, now)
            except Unreachable:
                if now >= slot.ends_at:
                    raise
                slot.renew_at = min(now + RETRY_AFTER_S, slot.ends_at)
                return slot.token
            lifetime = UNKNOWN_LIFETIME_S if fetched.lifetime_s is None else fetched.lifetime_s
            share = settings.refresh_share - JITTER_SHARE * self._chance()
            slot.token = fetched.text
            slot.renew_at, slot.ends_at = now + lifetime * share, now + lifetime
            return fetched.text

    def forget(self, settings: OAuthSettings) -> None:
        """Remove the token of these settings from the cache, because a broker rejected it."""
        with self._lock:
            self._slots.pop(settings, None)


_tokens: Final = TokenCache()
forget_token: Final = _tokens.forget
"""Removes the token of these settings from the cache, because a broker rejected it."""


def current_token(settings: OAuthSettings) -> str:
    """Return a valid token: the fixed one, an unsigned one for tests, or one of the endpoint."""
    if settings.fixed_token is not None:
        return settings.fixed_token
    if settings.unsecured_claims is not None:
        return unsecured_token(
            settings.unsecured_claims, settings.unsecured_lifetime_s, time.time()
        )
    return _tokens.token(settings)


def unsecured_token(claims_json: str, lifetime_s: int, now_s: float) -> str:
    """Return an unsigned JWT (RFC 7515, A.5). Brokers accept it only in a test configuration."""
    # rounded down, because brokers reject a token with a time of issue in the future
    issued_s = math.floor(now_s)
    claims = {"iat": issued_s, "exp": issued_s + lifetime_s, **json.loads(claims_json)}
    return f"{_base64url({'alg': 'none'})}.{_base64url(claims)}."


def _base64url(value: object) -> str:
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
