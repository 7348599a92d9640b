"""The size of reads under a quota: the behaviour of brokers, the hazards, and how the size is
chosen.

*What a broker does* (KIP-219). When a client has used more than its quota, averaged over about ten
seconds, the broker responds immediately, with a throttle time. The broker then reads nothing from
the connection until the throttle time has passed, that is, the connection is *muted*. The response
to a Fetch that exceeds the quota has the throttle time, but no data and no topics.

*What would go wrong without care*, and what prevents it:

| hazard                                                    | prevented by                         |
| --------------------------------------------------------- | ------------------------------------ |
| a muted broker looks like a dead one                      | timeouts do not count muted time:    |
|                                                           | `Connection.muted_s`, `client.clock` |
| an empty response looks like a missing topic              | `logs.raw_log` repeats the request   |
| the kernel drops a connection with unread data, as if the | `HotConnection.may_send`: nothing is |
| broker were dead (TCP_USER_TIMEOUT), and requests of an   | sent while muted, and little ahead   |
| old lane arrive late                                      | of it; `lane.late_requests`          |
| a large read is never answered, because it always exceeds | `ReadSize`, below                    |
| the quota                                                 |                                      |

*The size of a read.* A broker returns data only if it fits into the unused rest of the quota over
about ten seconds. Twinlog cannot calculate this rest, because the user needs a permission to read
the quota, the quota may change at any time, and other clients share it. So the size is found by
trying: it is halved after each throttled response, and doubled after several responses without
throttling. Mutes are then frequent, but short. A response has at least one batch, whatever the
requested size is. So a batch that is larger than the quota of ten seconds is never returned, which
`raw_log` reports (THROTTLING_QUOTA_EXCEEDED).

`topics.quotas` reads the quotas of a cluster for reports, and sets one to throttle producers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST_BYTES: Final = 64 << 10

UNTHROTTLED_BEFORE_GROWTH: Final = 8
"""Number of unthrottled responses before the size is doubled. Too large a size causes a mute."""


@dataclass(slots=True)
class ReadSize:
    """Number of bytes to request from one broker per Fetch (`most_bytes`), at most `ceiling`."""

    ceiling: int
    most_bytes: int
    _passed: int = 0

    def adapt(self, *, is_throttled: bool) -> None:
        """Halve the size after a throttled response, or double it after
        UNTHROTTLED_BEFORE_GROWTH responses without throttling.
        """
        self._passed = 0 if is_throttled else self._passed + 1
        if is_throttled:
            self.most_bytes = max(LEAST_BYTES, self.most_bytes // 2)
        elif self._passed >= UNTHROTTLED_BEFORE_GROWTH:
            self.most_bytes, self._passed = min(self.ceiling, self.most_bytes * 2), 0
