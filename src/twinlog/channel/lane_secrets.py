"""A secret for each lane of each lease, and a proof for each of its attempts that works once.

The driver makes a lane's secret when it starts the lease, and Spark carries it in the description
of that lane's task alone. An attempt shows the channel HMAC(secret, lease, lane, attempt, process).

Spark repeats a lost task with the same description, so all attempts of a lane have one secret, and
Spark's own attempt number tells them apart: it only grows within a lease. The driver admits an
attempt that is newer than all that it has admitted of that lane, once.

- The answer is lost, the connection breaks, the process dies right after its hello: the attempt is
  used up. The lane fails without work, and Spark starts the next attempt, whose proof is another.
- A zombie of an older attempt says hello late: it is refused, as is anybody who repeats a hello
  that was seen. From a proof nobody can make that of the next attempt: it takes the secret.
- Who has read the secret itself (out of Spark, which gives it to authenticated executors only) can
  say hello as a next attempt, of this lane in this lease and no other. While the true lane lives it
  waits and hears nothing (`control.lanes.lanes`). When the lease is over the secret is worth
  nothing.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from typing import Final

from twinlog.channel.frames import HELLO, Frame, LaneIdentity, hello_proof, read_hello
from twinlog.errors import AuthenticationFailed

SECRET_BYTES: Final = 32


class LaneSecrets:
    """The secrets of leases that run, and the newest attempt of each lane; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[tuple[int, int], str] = {}
        self._newest: dict[tuple[int, int], int] = {}
        self._nobodys = secrets.token_urlsafe(SECRET_BYTES)

    def open(self, lease: int, lanes: int) -> tuple[str, ...]:
        """A lease begins: a secret for each of its lanes."""
        made = tuple(secrets.token_urlsafe(SECRET_BYTES) for _ in range(lanes))
        with self._lock:
            self._secrets.update(((lease, lane), secret) for lane, secret in enumerate(made))
        return made

    def close(self, lease: int) -> None:
        """The lease is over: no attempt of it can come any more."""
        with self._lock:
            for key in [key for key in self._secrets if key[0] == lease]:
                del self._secrets[key]
                self._newest.pop(key, None)

    def admit(self, first: Frame) -> LaneIdentity:
        """Who says this hello; AuthenticationFailed unless it is an attempt that may come now."""
        if first.kind != HELLO:
            raise AuthenticationFailed("no hello", code="CHANNEL_TOKEN")
        identity, shown = read_hello(first)
        key = identity.lease, identity.lane
        with self._lock:
            # a lane that nobody knows is checked like any other: the time taken tells nothing
            secret = self._secrets.get(key, self._nobodys)
            same = hmac.compare_digest(shown, hello_proof(secret, identity))
            if not same or key not in self._secrets:
                raise AuthenticationFailed("wrong token", code="CHANNEL_TOKEN")
            if identity.attempt <= self._newest.get(key, -1):
                raise AuthenticationFailed(f"{identity} said hello before", code="CHANNEL_TOKEN")
            self._newest[key] = identity.attempt
        return identity
