"""How long requests of a lane may still arrive after the lane stopped sending.

This time is one number of the exactly-once protocol: the lane's sockets enforce it, and the driver
relies on it. If the target may have forgotten the producer ID, the next holder of a partition sends
nothing that could meet such requests before they are certainly gone (`control.running.giving`).

    last message of the driver            the lane stops by itself       no request can arrive
    that the lane received                (`LaneLoop._check_silence`)    any more
      |-------------- SILENCE_MS = 10 s ------|---- USER_TIMEOUT_MS = 10 s ----|
      |------------------------------ wait_s() = 20 s -------------------------|-- + mute --|

A request leaves a lane in two steps:

1. *The local kernel.* TCP_USER_TIMEOUT bounds this step: if data stays unacknowledged for
   USER_TIMEOUT_MS, the kernel drops the connection and everything it still buffers. This covers a
   cut network (no acknowledgements), a frozen broker, and a broker that has muted the connection
   because of a quota (its receive window is zero, which the kernel counts as well). It also covers
   a process that died or was killed, because the timer belongs to the socket.
2. *The broker's kernel*, where data is acknowledged but not yet read. A running broker reads it
   immediately. A broker that has muted the connection reads it when the mute ends. A frozen broker
   reads it when it continues, and no local timeout ends that. If there are other brokers, the
   frozen one has been fenced in the meantime and rejects the request. If it is the only one, the
   cold start's search waits for the same broker, and its first request goes alone.

A quota thus works against both bounds: unread data after a throttled response breaks the connection
after USER_TIMEOUT_MS, and data that has left the local kernel arrives up to one mute later. A
longer timeout would only make late requests later. So a lane keeps unread data out of the sockets,
as Java's clients do since KIP-219. After a response with a throttle time, it sends nothing on that
connection until the time has passed (`HotConnection.may_send`). While a request is unanswered, it
adds only a part of what the broker recently accepted without throttling. Such a request is read
immediately, and waits in neither kernel. Two cases remain:

- Before the first throttled response, up to a quarter of what was answered in the last 10 to 20 s
  may wait after a request. A quota Q that did not throttle before lets Q * 20 s pass and mutes for
  excess/Q: at most about 5 s at a time, which is below the timeout.
- A quota that is set, lowered or used up by other clients may mute the connection for longer while
  requests are in flight. Either the connection breaks after USER_TIMEOUT_MS, which costs one cold
  start. Or the requests arrive after the mute, so the driver adds the mute that the lane last
  reported to its wait.

A start does not wait for this time: a late request has sequences that are already used, so it is
rejected or is the same batch. This is true only while the target remembers the producer ID. So
until late requests can no longer arrive, no batch is sent after which the target may forget the ID.
If the target may already have forgotten it, nothing is sent before a lane that may be alive has
stopped (`mirror/copy/target_log.py`).
"""

from __future__ import annotations

from typing import Final

SILENCE_MS: Final = 10_000
"""A lane that receives nothing from the driver for this long stops by itself. The driver sends this
number in Work.
"""
USER_TIMEOUT_MS: Final = 10_000
"""TCP_USER_TIMEOUT of a lane's connections to the target."""


def wait_s() -> float:
    """Return for how many seconds after its last sign of life requests of a lost lane may still
    arrive.

    If the lane has reported a mute, the caller adds it. The mutes of a killed process are unknown,
    but it kept unread data out of the sockets (see above).
    """
    return (SILENCE_MS + USER_TIMEOUT_MS) / 1000
