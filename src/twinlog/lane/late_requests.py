"""How long a request of a lane may still arrive once that lane sends no more: one number of the
exactly-once protocol, which the lane's sockets keep and the driver counts on.

Where the target may have forgotten us, the next holder of a partition sends nothing that could meet
those requests before they are surely gone (rule 3 of `control.running.giving`). A request leaves a
lane in two steps.

1. *In our kernel.* TCP_USER_TIMEOUT bounds it: the kernel drops the connection, and everything it
   still held, once something has stayed unacknowledged for USER_TIMEOUT_MS. That is the same for a
   cut network (nothing comes back), a frozen broker and one that has muted us (its window is zero:
   the kernel counts this, too), and for a socket whose process has died or was killed, since the
   timer belongs to the socket.
2. *In the broker's kernel*, acknowledged and not yet read. A broker that runs reads it at once. One
   that has muted us reads it when the mute ends. A frozen one reads it when it continues, and no
   timeout of ours ends that: where there are other brokers it has been fenced by then and refuses
   it; where it is the only one, the cold start's look waits for the same broker, and its first
   request goes alone.

So a quota works against both: unread data behind a throttled answer breaks the connection after
USER_TIMEOUT_MS, and what has left our kernel arrives up to a mute later. A longer timeout would
only make late requests later. Instead a lane keeps unread data out of the sockets, as Java's
clients do since KIP-219: after an answer with a throttle time it sends nothing on that connection
before the time has passed (`HotConnection.may_send`), and behind a request that is not answered it
sends only a part of what the broker has lately taken without throttling. A request that is sent so
is read at once, and waits in neither kernel. What remains:

- While no quota has been seen, up to a quarter of what was answered in the last 10 to 20 s is
  behind a request. A quota Q that did not throttle that lets pass Q * 20 s and mutes for excess/Q:
  no more than about 5 s at a time, below the timeout.
- A quota that is set, lowered or used up by others may mute us for longer under requests that are
  on the way. Either the connection breaks after USER_TIMEOUT_MS, which costs one cold start; or
  they arrive after the mute, so the driver adds the mute that the lane last reported to its wait.

A start does not wait: a late request carries sequences that are taken already, and is refused or
is the same batch. That holds only as long as the target remembers us. So until all late requests
are over nothing is sent behind which we may be forgotten; and where we may be forgotten already,
nothing before a lane that may live has stopped (`mirror/copy/earlier_lane.py`).
"""

from __future__ import annotations

from typing import Final

SILENCE_MS: Final = 10_000
"""A lane that has not heard the driver for so long stops by itself; the driver sends it the number
with its work.
"""
USER_TIMEOUT_MS: Final = 10_000
"""TCP_USER_TIMEOUT of a lane's connections to the target."""


def wait_s() -> float:
    """How long, since it was last heard, requests of a lane that is lost may still arrive.

    Seconds. A mute comes on top where the lane has reported one. Of a process that was killed
    nobody knows the mutes: it kept unread data out of the sockets, see above.
    """
    return (SILENCE_MS + USER_TIMEOUT_MS) / 1000
