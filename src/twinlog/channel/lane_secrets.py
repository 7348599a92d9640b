"""Channel security: a secret for each lane of each lease, and a one-time proof for each attempt.

**Problem.** The channel carries the credentials of both clusters (in the messages `Work` and
`Renewed`). The driver must give them only to its own lanes, which Spark starts on other machines.
Any client on the network can connect to the driver's port, and Spark's own ports give a job's
broadcasts to every client if Spark is not authenticated. A first version sent one token in the
closure of the job, and another user of the same machine got it, with all credentials, in one
second.

    driver                          Spark                         lane
      | secret of lane 3, lease 7 --> description of that task --> |
      |                                                            |
      | <---- TLS to the certificate whose fingerprint the job has ---|
      | <---- HELLO: HMAC(secret, lease, lane, attempt, process) ----|
      | ----- Work, with the credentials of both clusters ---------> |

The driver creates a lane's secret when it starts the lease, and Spark carries it only in the
description of that lane's task. Spark repeats a lost task with the same description, so all
attempts of a lane have the same secret. They are distinguished by Spark's attempt number, which
only grows within a lease. The driver admits an attempt once, if it is newer than all admitted
attempts of that lane.

**Invariants**

1. Before its proof was checked, a connection gets no data, and after the TLS handshake only a hello
   of fixed length is read from the connection (`server.UnauthenticatedPeer`).
2. A proof works once. The proof of a later attempt cannot be derived from an earlier proof, because
   that requires the secret.
3. A secret is worthless after its lease has ended.
4. A connected lane is never replaced. A later attempt waits, and receives nothing, until the
   connected lane's connection has ended, or the connected lane has been silent for 10 s
   (`control.lanes.lanes`).
5. On any host but loopback the channel is TLS 1.3, and a lane accepts only the certificate whose
   fingerprint came with its Spark job. The certificate is created for one run of the driver.

**What may fail**

- *The response to a hello is lost, the connection breaks, or the process dies right after its
  hello*: the attempt is used up. The lane fails without work, and Spark starts the next attempt,
  which has a different proof.
- *A process of an older attempt sends its hello late*: it is rejected, as is any repetition of a
  hello that was seen.
- *A client has read the secret itself* (Spark gives it only to authenticated executors): the client
  can send the hello of a later attempt, but only for this lane in this lease. While the true lane
  lives, that attempt waits (4). If the true lane dies, the client can take its place. So Spark must
  use authentication, unless a flag permits an unauthenticated Spark (ADR 11).
- *A client opens many connections, or sends nothing*: unauthenticated connections are limited in
  number, time and bytes, so lanes can still connect (`server.UnauthenticatedPeer`).

**Rejected:** one token for all lanes, because a single leak would expose all credentials for as
long as the driver runs. Also rejected: a certificate authority, because the job already contains
the fingerprint.
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
    """The secrets of the lanes in running leases, and the highest attempt that was admitted for
    each lane. A lease is a Spark job whose tasks are lanes. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[tuple[int, int], str] = {}
        self._newest: dict[tuple[int, int], int] = {}
        self._nobodys = secrets.token_urlsafe(SECRET_BYTES)

    def open(self, lease: int, lanes: int) -> tuple[str, ...]:
        """Begin a lease, and return a new secret for each of its lanes, by lane number."""
        new_secrets = tuple(secrets.token_urlsafe(SECRET_BYTES) for _ in range(lanes))
        with self._lock:
            self._secrets.update(((lease, lane), secret) for lane, secret in enumerate(new_secrets))
        return new_secrets

    def close(self, lease: int) -> None:
        """End a lease, after which no attempt of its lanes is admitted."""
        with self._lock:
            for key in [key for key in self._secrets if key[0] == lease]:
                del self._secrets[key]
                self._newest.pop(key, None)

    def admit(self, first: Frame) -> LaneIdentity:
        """Return the identity of the lane that sent a hello. Raises AuthenticationFailed if the
        lane must not be admitted.
        """
        if first.kind != HELLO:
            raise AuthenticationFailed(
                "the connection does not begin with a lane's handshake", code="CHANNEL_TOKEN"
            )
        identity, shown = read_hello(first)
        key = identity.lease, identity.lane
        with self._lock:
            # a proof is computed for unknown lanes, too, so that timing does not reveal which lanes
            # exist
            secret = self._secrets.get(key, self._nobodys)
            same = hmac.compare_digest(shown, hello_proof(secret, identity))
            if not same or key not in self._secrets:
                raise AuthenticationFailed("wrong token", code="CHANNEL_TOKEN")
            if identity.attempt <= self._newest.get(key, -1):
                what = f"{identity}, or a later attempt of this lane, has already connected"
                raise AuthenticationFailed(what, code="CHANNEL_TOKEN")
            self._newest[key] = identity.attempt
        return identity
