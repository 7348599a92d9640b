"""Duty: throttles the producers of the source while `twinlog.rpo.seconds` is exceeded, if
`twinlog.rpo.enforce` is set. The quota is removed when the flow has caught up, and when the flow
ends.

If the process was killed, the next leader finds the quota's row in the state topic. It removes the
quota (`client/producer_hold.py`), even if its own configuration sets none. A process that loses the
lead removes its own quota. While the target is down there is no next leader, and the source's
producers must not wait for one.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from twinlog.client.producer_hold import ProducerHold, RemovalResult
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.control.duties.producer_rate import ProducerRate, WaitingCounts, curable_loss_ms
from twinlog.control.duties.rounds import REFUSED_PAUSE_S, Duty, LedFlow
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.flow_log import FlowLog
from twinlog.quantities import size

log = logging.getLogger(__name__)

EVERY_S: Final = 2.0
CHECK_EVERY_S: Final = 30.0
"""Seconds between checks for a quota that a process set after it had lost the lead."""
ENDS_WITHIN_S: Final = 10.0
"""Seconds to remove the quota at the end of a flow. After that, the next leader removes it."""


def producer_quota(flow: LedFlow) -> Duty | None:
    """Return the duty if it is configured, or if an earlier leader left a quota, else None."""
    is_wanted = flow.config.rpo_enforced and flow.config.rpo_seconds is not None
    return ProducerQuota(flow) if is_wanted or flow.has_held_producers else None


class ProducerQuota(Duty):
    """The duty. It also runs while the flow is paused, to remove the quota."""

    name = "producer quota"
    interval_s: float = CHECK_EVERY_S
    ends_once = False
    runs_while_held = True

    def __init__(self, flow: LedFlow) -> None:
        self._flow = flow
        self._log = FlowLog(log, flow.name)
        config = flow.config
        rpo_s = config.rpo_seconds if config.rpo_enforced else None
        self._rate = None if rpo_s is None else ProducerRate(rpo_s * 1000)
        self.interval_s = CHECK_EVERY_S if rpo_s is None else EVERY_S
        self._source = self._client(flow.source)
        self._target = self._client(flow.target)
        self._clients = self._source, self._target
        self._hold = ProducerHold(flow.name, self._source, self._target)
        self._refused_until = 0.0
        self._next_check = 0.0
        self._may_be_held = True
        """True until a check has found no quota, because a killed process may have left one."""

    def round(self) -> None:
        rate = self._wanted_rate()
        if self._rate is not None and self._rate.is_in_vain:
            self._flow.log_once(
                f"{self._flow.name}: the quota for producers of {self._flow.source.alias} did not "
                "help, because they have quotas of their own or the copy itself is throttled. It "
                "is removed, and is set again after 10 minutes [PRODUCERS_HELD]"
            )
        if rate is None:
            now = time.monotonic()
            if self._may_be_held or now >= self._next_check:
                self._next_check = now + CHECK_EVERY_S
                self._release_hold(self._hold)
            return
        if time.monotonic() < self._refused_until:
            return
        if rate != self._flow.held_rate.bytes_per_second:
            self._flow.confirm()  # after a promotion no process would remove the quota
        self._may_be_held = True
        try:
            quota = self._hold.set_quota(rate)
        except Unauthorized as error:
            self._refused_until = time.monotonic() + REFUSED_PAUSE_S
            self._flow.log_once(
                f"{self._flow.name}: producers are not throttled: {error}; or set "
                "twinlog.rpo.enforce=none"
            )
            return
        if quota is not None:
            self._flow.held_rate.bytes_per_second = None
            self._flow.log_once(
                f"{self._flow.name}: producers are not throttled: users of "
                f"{self._flow.source.alias} have a default quota of {size(int(quota))}/s that is "
                "not the flow's; replace it by quotas of single users, or set "
                "twinlog.rpo.enforce=none"
            )
        elif rate != self._flow.held_rate.bytes_per_second:
            self._log.warning(
                "the RPO is exceeded: each user may write %s/s to each broker of %s until the flow "
                "has caught up [PRODUCERS_HELD]",
                size(rate),
                self._flow.source.alias,
            )
            self._flow.held_rate.bytes_per_second = rate

    def last_round(self) -> None:
        """Remove the quota, because this process no longer watches the producers."""
        self._hold.prevent_set_quota()
        if self._may_be_held:
            work = threading.Thread(target=self._end, daemon=True)
            work.start()
            work.join(ENDS_WITHIN_S)
            if work.is_alive():
                self._may_stay("this takes too long")

    def close(self) -> None:
        try:
            self._log_freed(self._hold.remove_quota())
        except TwinlogError as error:
            self._may_stay(error)
        super().close()

    def _wanted_rate(self) -> int | None:
        if self._rate is None:
            return None
        now, brokers = self._flow.snapshot(), 1
        loss_ms = curable_loss_ms(now.partitions)
        if (loss_ms or 0) > (now.rpo_ms or 0):
            brokers = len(self._source.metadata([]).brokers)
        waiting = WaitingCounts.of(now.partitions)
        return self._rate.next_rate(time.monotonic(), loss_ms, now.bytes, brokers, waiting)

    def _release_hold(self, hold: ProducerHold) -> None:
        self._log_freed(hold.remove_quota())  # on the source first, because the target may be down
        self._log_freed(hold.remove_quota_and_row())
        self._may_be_held = False

    def _log_freed(self, freed: RemovalResult) -> None:
        self._flow.held_rate.bytes_per_second = None
        if freed is not RemovalResult.NOTHING:
            self._log.warning(
                "%s: Twinlog's limit for producers has ended: %s",
                self._flow.source.alias,
                freed.value,
            )

    def _end(self) -> None:
        flow = self._flow
        try:
            with self._client(flow.source) as source, self._client(flow.target) as target:
                self._release_hold(ProducerHold(flow.name, source, target, self._hold.last_row))
        except TwinlogError as error:
            self._may_stay(error)

    def _may_stay(self, why: object) -> None:
        self._log.warning(
            "producers of %s may still be throttled, because the quota could not be removed: %s; "
            "the next start removes it, or `twinlog flow unthrottle` [PRODUCERS_HELD]",
            self._flow.source.alias,
            why,
        )

    @staticmethod
    def _client(settings: ClusterSettings) -> ClusterClient:
        return ClusterClient(settings, api_timeout_s=ENDS_WITHIN_S)
