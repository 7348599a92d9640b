"""Caches OAUTHBEARER tokens for the connections of this process, and renews them.

    lifetime of a token   |---------------------------------|---------|
                          fetched                       renew_at   ends_at

*Problem.* A process opens many connections, and a restarting broker makes it open them at the same
moment. A token for each would be a burst of requests to the endpoint. One endpoint that does not
respond must not stop a copy whose token is still valid.

*Rules.* All connections with the same settings share a token. From `renew_at` on, after most of its
lifetime (`sasl.login.refresh.window.factor`), the next connection fetches a new one. If the
endpoint does not respond, the old token is used until `ends_at`, and the endpoint is queried again
only after some seconds. One thread fetches a token, and the others wait for it. A token that a
broker has rejected is forgotten.

There is no thread that renews tokens in the background, unlike in Java: an idle lane needs none.
"""

from __future__ import annotations

import base64
import json
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.security.security_settings import OAuthSettings
from twinlog.cluster.security.token_endpoint import Token, fetch_token
from twinlog.errors import Unreachable

UNKNOWN_LIFETIME_S: Final = 60.0
"""Assumed lifetime of a token without an expiry."""
RETRY_AFTER_S: Final = 10.0
"""How often an endpoint that does not respond is queried while the old token is valid."""
_CHANCE: Final = random.SystemRandom()  # it has no state that forked lanes could share
JITTER_SHARE: Final = 0.05
"""Java's sasl.login.refresh.window.jitter, so that lanes do not all renew at the same time."""


@dataclass(slots=True, kw_only=True)
class _Held:
    token: str
    renew_at: float
    ends_at: float


class _Slot:
    """The token of one OAuthSettings. The lock is held while a token is fetched."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: _Held | None = None


class TokenCache:
    """Tokens by their settings. Thread-safe."""

    def __init__(
        self,
        fetch: Callable[[OAuthSettings, float], Token] = fetch_token,
        clock: Callable[[], float] = time.time,  # not monotonic: a token's expiry is a date
        chance: Callable[[], float] = _CHANCE.random,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._slots: dict[OAuthSettings, _Slot] = {}

    def token(self, settings: OAuthSettings) -> str:
        """Return a token that is valid now, as far as its lifetime is known."""
        with self._lock:
            slot = self._slots.setdefault(settings, _Slot())
        with slot.lock:
            now, held = self._clock(), slot.held
            if held is not None and now < held.renew_at:
                return held.token
            try:
                fetched = self._fetch(settings, now)
            except Unreachable:
                if held is None or now >= held.ends_at:
                    raise
                held.renew_at = min(now + RETRY_AFTER_S, held.ends_at)
                return held.token
            slot.held = self._hold(fetched, settings, now)
            return fetched.text

    def forget(self, settings: OAuthSettings) -> None:
        """Forget the token, because a broker rejected it."""
        with self._lock:
            self._slots.pop(settings, None)

    def _hold(self, fetched: Token, settings: OAuthSettings, now: float) -> _Held:
        lifetime = UNKNOWN_LIFETIME_S if fetched.lifetime_s is None else fetched.lifetime_s
        share = settings.refresh_share - JITTER_SHARE * self._chance()
        return _Held(token=fetched.text, renew_at=now + lifetime * share, ends_at=now + lifetime)


_tokens: Final = TokenCache()
forget_token: Final = _tokens.forget
"""Forgets the current token, because a broker rejected it."""


def current_token(settings: OAuthSettings) -> str:
    """Return the current token from the source that the settings name."""
    if settings.fixed_token is not None:
        return settings.fixed_token
    if settings.unsecured_claims is not None:
        return unsecured_token(
            settings.unsecured_claims, settings.unsecured_lifetime_s, time.time()
        )
    return _tokens.token(settings)


def unsecured_token(claims_json: str, lifetime_s: int, now_s: float) -> str:
    """Return an unsigned JWT (RFC 7515, A.5), which brokers accept only in a test configuration."""
    # rounded down, because Java's broker rejects a token that was issued in the future
    issued_s = math.floor(now_s)
    claims = {"iat": issued_s, "exp": issued_s + lifetime_s, **json.loads(claims_json)}
    return f"{_base64url({'alg': 'none'})}.{_base64url(claims)}."


def _base64url(value: object) -> str:
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
