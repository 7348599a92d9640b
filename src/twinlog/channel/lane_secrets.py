"""A secret for each lane of each lease, and a one-time proof for each of its attempts.

The driver creates a lane's secret when it starts the lease, and Spark carries it only in the
description of that lane's task. An attempt sends HMAC(secret, lease, lane, attempt, process) over
the channel. Spark repeats a lost task with the same description, so all attempts of a lane have the
same secret. They are distinguished by Spark's attempt number, which only grows within a lease. The
driver admits an attempt once, if it is newer than all admitted attempts of that lane.

- The response is lost, the connection breaks, or the process dies right after its hello: the
  attempt is used up. The lane fails without work, and Spark starts the next attempt, which has a
  different proof.
- A zombie of an older attempt sends its hello late: it is rejected, as is any repetition of a hello
  that was seen. The proof of the next attempt cannot be derived from a proof, because that takes
  the secret.
- A process that has read the secret itself (from Spark, which gives it only to authenticated
  executors) can send the hello of a next attempt, for this lane in this lease only. While the true
  lane lives, that attempt waits and receives nothing (`control.lanes.lanes`). When the lease is
  over, the secret is worthless.
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
    """The secrets of running leases, and the newest attempt of each lane. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[tuple[int, int], str] = {}
        self._newest: dict[tuple[int, int], int] = {}
        self._nobodys = secrets.token_urlsafe(SECRET_BYTES)

    def open(self, lease: int, lanes: int) -> tuple[str, ...]:
        """Begin a lease and return a secret for each of its lanes."""
        made = tuple(secrets.token_urlsafe(SECRET_BYTES) for _ in range(lanes))
        with self._lock:
            self._secrets.update(((lease, lane), secret) for lane, secret in enumerate(made))
        return made

    def close(self, lease: int) -> None:
        """End a lease: none of its attempts is admitted any more."""
        with self._lock:
            for key in [key for key in self._secrets if key[0] == lease]:
                del self._secrets[key]
                self._newest.pop(key, None)

    def admit(self, first: Frame) -> LaneIdentity:
        """Return the sender of this hello. Raises AuthenticationFailed unless the attempt may be
        admitted now.
        """
        if first.kind != HELLO:
            raise AuthenticationFailed("no hello", code="CHANNEL_TOKEN")
        identity, shown = read_hello(first)
        key = identity.lease, identity.lane
        with self._lock:
            # an unknown lane is checked like any other, so that timing reveals nothing
            secret = self._secrets.get(key, self._nobodys)
            same = hmac.compare_digest(shown, hello_proof(secret, identity))
            if not same or key not in self._secrets:
                raise AuthenticationFailed("wrong token", code="CHANNEL_TOKEN")
            if identity.attempt <= self._newest.get(key, -1):
                raise AuthenticationFailed(f"{identity} said hello before", code="CHANNEL_TOKEN")
            self._newest[key] = identity.attempt
        return identity
