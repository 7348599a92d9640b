"""Duty of a process that cannot set up a flow: publishes the reason, for readers on other hosts.

The process leads nothing, so it writes beside the leaders' row (`mirror.state.published`). Its own
failures are not logged, because the set-up fails and reports the same. It creates nothing on a
cluster on which no set-up of Twinlog was admitted, because the error may be a wrong cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import structs

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import append_rows
from twinlog.codes import FlowState
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.duties.publication import (
    ENDS_WITHIN_S,
    GIVES_UP_S,
    HOME,
    StatusTopic,
    published,
)
from twinlog.control.duties.rounds import NotNow
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import TwinlogError
from twinlog.mirror.state.published import PublishedStatus
from twinlog.survey.state_reader import has_state

LONGEST_REASON: Final = 2000


class SetUpPublication:
    """Publishes the status of one flow while its set-up fails."""

    ends_once = False
    name = "status"

    def __init__(
        self,
        config: FlowConfig,
        target: ClusterSettings,
        seen: FlowSnapshot,
        log_once: Callable[[str], None],
    ) -> None:
        self.seen = seen
        """The current snapshot of the flow, which its creator replaces."""
        self._client = ClusterClient(target, api_timeout_s=GIVES_UP_S)
        self._topic = _TopicOfOurs(self._client, config, log_once)
        self._last: PublishedStatus | None = None

    @property
    def interval_s(self) -> float:
        return float(self._topic.config.status_interval_seconds)

    def round(self) -> None:
        status = published(self.seen, every_ms=int(self.interval_s * 1000))
        # nobody watches its partitions, and only the reason matters
        status = structs.replace(status, kept=None, reason=self.seen.reason[:LONGEST_REASON])
        try:
            if self._topic.append([status.encode()], status.at_ms):
                self._last = status
        except TwinlogError as error:
            raise NotNow(str(error)) from error

    def close(self) -> None:
        """Publish that the set-up no longer fails, or is no longer tried."""
        if self._last is not None:
            at_ms = int(time.time() * 1000)
            ended = structs.replace(self._last, state=FlowState.STOPPED.value, at_ms=at_ms)
            self._client.api_timeout_s = ENDS_WITHIN_S
            with suppress(TwinlogError):  # the last row expires by its age
                append_rows(self._client, HOME, [ended.encode()], at_ms)
        self._client.close()


class _TopicOfOurs(StatusTopic):
    def ensure(self) -> None:
        """Create the topic only if a set-up of Twinlog was admitted on this cluster."""
        if not has_state(self.client, within_s=GIVES_UP_S):
            raise NotNow(f"{self.config.flow}: its target has no Twinlog topics yet")
        super().ensure()
