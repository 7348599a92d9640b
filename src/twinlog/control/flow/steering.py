"""Reads the state topic every second for a running flow: operators' intents, and the producer IDs
of other flows.

If the state topic cannot be read, running partitions continue, and paused partitions stay paused.
After PASSING_S no new partition starts, because an intent that was not read might forbid it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from twinlog.config.flow.schema import FlowConfig
from twinlog.control.duties.rounds import Duties
from twinlog.control.lanes.pacing import pacer_of
from twinlog.control.risk.running_flow import InBackground
from twinlog.control.running.flow_run import FlowRun
from twinlog.errors import Fate, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.mirror.state.intents import FlowIntents, IntentKind
from twinlog.quantities import first_few
from twinlog.survey.state_reader import StateNews

READ_EVERY_S: Final = 1.0
UNLIMITED: Final = 1 << 40
"""Bytes per second that no lane can reach; set when a rate limit ends."""
PASSING_S: Final = 10.0
"""No new partition starts if the state topic was unreadable for this many seconds."""


@dataclass(slots=True, kw_only=True)
class IntentFollower:
    """Applies operators' intents to one run of a flow. Used in the supervisor's thread."""

    config: FlowConfig
    run: FlowRun
    duties: Duties
    read: Callable[[], StateNews]
    at_hand: Callable[[], StateNews | None] = lambda: None
    """Returns the same as `read`, or None if reading might block."""
    release: Callable[[frozenset[str]], None]
    """Called with all topics that are released now, for topic discovery."""
    followed: Callable[[FlowIntents], None]
    """Called with the new intents after they were applied."""
    log: FlowLog
    _next_read: float = 0.0
    _is_reading: bool = False
    _fails_since: float | None = None

    def begin(self, news: StateNews) -> None:
        """Apply the intents that the set-up has read, before any partition starts."""
        self.run.awaits_plans = news.intents.pause is not None
        if news.intents != FlowIntents():
            self._follow(news.intents)

    def poll(self, background: InBackground) -> None:
        """Read the state topic in the background if the next read is due."""
        now = self.run.clock.monotonic()
        if self._is_reading or now < self._next_read or self.run.is_stopping:
            return
        self._is_reading, self._next_read = True, now + READ_EVERY_S
        if (news := self.at_hand()) is not None:
            self._apply_news(news)
        else:
            background(self.read, self._apply_news, self._on_failed)

    def _apply_news(self, news: StateNews) -> None:
        self._is_reading, self._fails_since = False, None
        if self.run.hold_reason:
            self.log.news("the flow's intents can be read again")
            self.run.hold_back(None)
        if self.run.is_stopping:
            return
        if news.intents != self.run.intents:
            self._follow(news.intents)
        self._know(news.producers)

    def _know(self, producers: frozenset[int]) -> None:
        """Add the producer IDs of other flows that write to this cluster, because in a shared topic
        their records are not foreign. Lanes get the IDs, and partitions that failed because of such
        records are checked again.
        """
        run, work = self.run, self.run.work
        if work.is_ours_alone or producers <= {*work.known_producers}:
            return
        known = tuple(sorted(producers.union(work.known_producers)))
        run.work = structs.replace(work, known_producers=known)
        for lease in run.leases:
            if lease.work is work:
                lease.work = run.work
        for lane in run.lanes():
            lane.send_known_producers(known)
        for partition in run.partitions.values():
            if partition.failure is not None and partition.failure.code == "TAKEN_OVER":
                partition.retry_at = 0.0

    def _on_failed(self, error: TwinlogError) -> None:
        self._is_reading = False
        if self._fails_since is None:
            # the reads fail since the request was sent, not since its error arrived
            self._fails_since = self._next_read - READ_EVERY_S
        fails_s = self.run.clock.monotonic() - self._fails_since
        passes = error.fate is Fate.RETRIABLE and fails_s < PASSING_S
        if passes or self.run.is_stopping:
            return
        if not self.run.hold_reason:
            self.run.errors[error.code] += 1
            self.log.warning("%s; running partitions continue, no new partition starts", error)
        self.run.hold_back(error)

    def _follow(self, intents: FlowIntents) -> None:
        before = self.run.intents
        self._log_changes(before, intents)
        self.release(intents.unmirrored_topics)
        self.run.follow(intents)
        is_held = intents.pause is not None or intents.promotion is not None
        self.duties.set_held(is_held=is_held)
        was_left_out = before.unmirrored_topics - intents.unmirrored_topics
        if was_left_out or (before.pause is not None and intents.pause is None):
            # discover topics that were left out while they were released or the flow was paused
            self.run.wants_discovery = True
        if before.limit != intents.limit:
            self._limit(intents.limit)
        self.followed(intents)

    def _limit(self, bytes_per_second: int | None) -> None:
        """Apply a rate limit, or remove it (None). Only lanes of a lease (Spark job) with
        `Work.has_budget` obey limits, so the lease is replaced if that has to change. Until then,
        its lanes still get their shares of the limit.
        """
        pacer = pacer_of(self.config, bytes_per_second)
        if pacer is not None or self.run.pacer is None:
            self.run.pacer = pacer
        else:
            self.run.pacer.limit = UNLIMITED
        if self.run.work.has_budget != (pacer is not None):
            self.run.work = structs.replace(self.run.work, has_budget=pacer is not None)

    def _log_changes(self, before: FlowIntents, intents: FlowIntents) -> None:
        """Log one line for all topics with the same intent of the same operator."""
        topics_by_line: dict[tuple[str, str], list[str]] = {}
        for kind, topic in sorted({*before.keys(), *intents.keys()}):
            old, new = before.get(kind, topic), intents.get(kind, topic)
            if new == old:
                continue
            what, who = f"no longer {kind.participle}", ""
            if new is not None:
                who = new.who
                value = f" to {new.bytes_per_second} B/s" if kind is IntentKind.LIMIT else ""
                what = f"{kind.participle}{value} {new}"
            topics_by_line.setdefault((what, who), []).append(topic)
        for (what, who), topics in topics_by_line.items():
            verb = "is" if len(topics) == 1 else "are"
            names = first_few([topic or "the flow" for topic in topics])
            about = topics[0] if len(topics) == 1 else ""
            self.log.news("%s %s %s", names, verb, what, topic=about, person=who)
        for skip in intents.skips:
            if skip not in before.skips:
                self.log.news("records are skipped: %s", skip)
        for acceptance in intents.accepted:
            if acceptance not in before.accepted:
                self.log.news("foreign records are accepted: %s", acceptance)
