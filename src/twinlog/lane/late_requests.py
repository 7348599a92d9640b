"""How long requests of a lane may still arrive after the lane stopped sending.

This time is part of the exactly-once protocol. The lane's sockets enforce it, and the driver relies
on it. If the target may have forgotten the producer ID, the next lane of a partition sends nothing
that could collide with such requests until they can certainly not arrive any more
(`control.running.giving`).

    last message of the driver            the lane stops by itself       no request can arrive
    that the lane received                (`LaneLoop._check_silence`)    any more
      |-------------- SILENCE_MS = 10 s ------|---- USER_TIMEOUT_MS = 10 s ----|
      |------------------------------ wait_s() = 20 s -------------------------|-- + mute --|

A request leaves a lane in two steps:

1. *The local kernel.* TCP_USER_TIMEOUT bounds this step: if data stays unacknowledged for
   USER_TIMEOUT_MS, the kernel drops the connection and everything it still buffers. This covers a
   cut network (no acknowledgements) and a frozen broker. It also covers a broker that has muted the
   connection because of a quota, because the kernel counts a zero receive window as well. It also
   covers a process that died or was killed, because the timer belongs to the socket.
2. *The broker's kernel*, where data is acknowledged but not yet read. A running broker reads it
   immediately. A broker that has muted the connection reads it when the mute ends. A frozen broker
   reads the data when it resumes, and no local timeout prevents that. If there are other brokers,
   the frozen broker has been fenced in the meantime and rejects the request. If it is the only
   broker, the cold start's search waits for the same broker, and the first request of the new copy
   is sent alone.

A quota thus works against both bounds. Unread data after a throttled response breaks the connection
after USER_TIMEOUT_MS, and data that has left the local kernel arrives up to one mute later. A
longer timeout would only make late requests later. So a lane keeps unread data out of the sockets,
as Java's clients do since KIP-219. After a response with a throttle time, it sends nothing on that
connection until the time has passed (`HotConnection.may_send`). While a request is unanswered, the
lane sends in addition only a fraction of what the broker recently accepted without throttling. The
broker reads such a request immediately, so it waits in neither kernel. Two cases remain:

- Before the first throttled response, up to a quarter of what was answered in the last 10 to 20 s
  may wait after a request. A quota Q that did not throttle before lets Q * 20 s pass. It then mutes
  for excess/Q, which is at most about 5 s at a time, and less than the timeout.
- A quota that is set, lowered or used up by other clients may mute the connection for longer while
  requests are in flight. Either the connection breaks after USER_TIMEOUT_MS, which costs one cold
  start. Or the requests arrive after the mute, so the driver adds the mute that the lane last
  reported to its wait.

A start does not wait for this time, because a late request has sequences that are already used. So
the broker rejects the request, or the request contains the same batch. This is true only while the
target remembers the producer ID. So until late requests can no longer arrive, the lane sends no
batch that could let the target forget the ID. If the target may already have forgotten it, nothing
is sent before a lane that may be alive has stopped (`mirror/copy/target_log.py`).
"""

from __future__ import annotations

from typing import Final

SILENCE_MS: Final = 10_000
"""Time (ms) without data from the driver after which a lane stops by itself
(`messages.Work.silence_ms`).
"""
USER_TIMEOUT_MS: Final = 10_000
"""TCP_USER_TIMEOUT (ms) of a lane's connections to the target."""


def wait_s() -> float:
    """Return for how many seconds after the last sign of life of a lost lane its requests may still
    arrive.

    If the lane has reported that a quota mutes a connection, the caller adds the duration of that
    mute. The mutes of a killed process are unknown, but the process kept unread data out of its
    sockets (see the module).
    """
    return (SILENCE_MS + USER_TIMEOUT_MS) / 1000
