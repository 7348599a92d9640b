"""Duties: the work of a flow's leader beside copying, in rounds, each in a thread of its own.

A duty never stops the copy. A round that fails is logged in one line and tried again. So a round
must be safe to repeat, to crash in, and to be run by a process that has just lost the lead without
knowing it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, runtime_checkable

from twinlog.clock import GrowingPause
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.duties.producer_rate import HeldRate
from twinlog.control.watch.latency import GroupsReport
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.verified import VerifiedReport
from twinlog.errors import TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.map.translation import Reach
from twinlog.mirror.names.naming import ReplicationPolicy
from twinlog.mirror.plan import PartitionPair
from twinlog.mirror.state.generations import Claim
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.state.published import PublishedEvents
from twinlog.survey.replica import Maps
from twinlog.threads import RepeatedJob

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 1.0
HELD_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0
ONE_LINE_EVERY_S: Final = 60.0
REFUSED_PAUSE_S: Final = 600.0
"""Interval of attempts without a permission: as often as MirrorMaker 2 lists topics and groups, so
that a permission that was granted in the meantime is found.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView(PartitionPair):
    """The progress of one partition of the flow."""

    reach: Reach | None
    """How far it is copied, or None if unknown."""
    is_broken: bool = False
    """Whether one of the logs was damaged, or its topic is not the one that was copied. Then target
    offsets cannot be trusted, and none is given.
    """
    is_unseen: bool = False
    """Whether no lane of this process has found its position in both logs yet."""
    is_keyed: bool = False
    """Whether its records go to several target partitions by key."""
    is_begun: bool = False
    """Whether a lane of this process has verified that the target has this copy, or is empty."""
    has_others: bool = False
    """Whether the target topic has, or may have, records that this flow did not copy."""
    map_epoch: int | None = None
    """The leader epoch of the map's partition in which its rows certainly exist, as its lane
    reports (-1 if unknown), or None if no lane has it.
    """
    not_ours: str = ""
    """The code that forbids writes to the target topic now; usually empty."""

    @property
    def upstream(self) -> int:
        """All source records below this offset are on the target; 0 if unknown."""
        return 0 if self.reach is None else self.reach.upstream


def with_same_topics(
    views: Iterable[PartitionView], source: ClusterClient, target: ClusterClient
) -> list[PartitionView]:
    """Return the partitions whose topics both still have the IDs of the copy. Call this right
    before a write, and after everything that was read by name, because IDs are never reused.

    A lane's position is valid between two topic IDs. But groups, checkpoints and MirrorMaker 2's
    own positions are stored by name. The topic of that name may have been re-created, and such a
    position would skip its first records. No lane notices this while it is paused.

    This sends one metadata request to each cluster, for these topics only. Raises TwinlogError.
    """
    if not (views := [*views]):
        return []
    at_source = source.metadata(sorted({view.source.topic for view in views}))
    at_target = target.metadata(sorted({view.target.topic for view in views}))
    return [
        view
        for view in views
        if at_source.has(view.source.topic, view.source_topic_id)
        and at_target.has(view.target.topic, view.target_topic_id)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedFlow:
    """The interface of a flow for its duties. Thread-safe."""

    config: FlowConfig
    policy: ReplicationPolicy
    generation: int
    source: ClusterSettings
    """The settings of the flow's admin client; a duty opens its own clients."""
    target: ClusterSettings
    partitions: Callable[[], tuple[PartitionView, ...]]
    """Returns all wanted partitions. Raises TwinlogError if the supervisor does not respond."""
    read_map: Callable[[], Maps]
    """Returns the current offset map."""
    snapshot: Callable[[], FlowSnapshot]
    """Returns the flow's current state. Raises TwinlogError if the supervisor does not respond."""
    may_act: Callable[[], bool] = lambda: False
    """Returns True if this process leads by its own clock, and if the state topic, which is read
    for this, has no other leader and no intent that this run does not follow yet. Raises
    TwinlogError if it cannot be read.
    """
    claim: Claim | None = None
    """The claim of this generation, as it is in the state topic."""
    intents: Callable[[], FlowIntents] = FlowIntents
    """Returns the intents that the flow follows now."""
    leads: Callable[[], bool] = lambda: False
    """Returns True if this process leads by its own clock; sends no request."""
    log_once: Callable[[str], None]
    """Logs a line once in the life of the process, for problems that stop nothing."""
    events: Callable[[], PublishedEvents | None] = lambda: None
    """Returns recent events of this process, for other hosts, or None if they are not kept."""
    groups: GroupsReport = field(default_factory=GroupsReport)
    """The groups, for snapshots."""
    held_rate: HeldRate = field(default_factory=HeldRate)
    """The quota that is set, for snapshots."""
    verified: VerifiedReport = field(default_factory=VerifiedReport)
    """The verification, for snapshots."""
    synced: SyncedOffsets = field(default_factory=SyncedOffsets)
    """The offsets that this process's syncs set for groups, on every cluster."""
    has_held_producers: bool = False
    """Whether the flow's former leader left a quota for the source's producers."""
    adopted: OffsetStorage | None = None
    """MirrorMaker 2's offset storage, if its work was adopted."""

    @property
    def name(self) -> str:
        return str(self.config.flow)

    def confirm(self) -> None:
        """Check right before a change that this process may make it. A process that was frozen does
        not know of a promotion, or of another leader. Raises NotNow, which ends the round.
        """
        if not self.may_act():
            raise NotNow(f"{self.name}: another process leads, or its intents have changed")


class NotNow(TwinlogError):
    """Ends a round without a change. It is not reported."""


class NotPermitted(TwinlogError):
    """Ends a round because a permission is missing. Its message is logged once, and the next round
    is REFUSED_PAUSE_S later.
    """


class Duty(Protocol):
    """One kind of work beside copying."""

    @property
    def name(self) -> str:
        """Return the name for log lines and for the thread, such as `heartbeats`."""

    @property
    def interval_s(self) -> float:
        """Return the seconds from the start of one round to the start of the next."""

    @property
    def ends_once(self) -> bool:
        """Return True if `--once` ends with a round of this duty."""

    def round(self) -> None:
        """Do the work that is due. If it raises TwinlogError, it is called again after a pause."""

    def close(self) -> None:
        """Close connections. Called after the last round."""


@runtime_checkable
class RunsWhileHeld(Protocol):
    """A duty that continues while the flow is paused, because it does not touch the copy."""

    runs_while_held: bool


@runtime_checkable
class LastRound(Protocol):
    """A duty that has work to do after the copy has drained."""

    def last_round(self) -> None:
        """Called once, after all rounds. Raises TwinlogError."""


DutyFactory = Callable[[LedFlow], Duty | None]
"""Returns None if the configuration does not enable the duty."""


class Duties:
    """The duties of one led flow, from the start to the end of its run."""

    def __init__(
        self,
        name: str,
        duties: Iterable[Duty],
        *,
        on_error: Callable[[TwinlogError], None] = lambda _: None,
        log_once: Callable[[str], None] = log.warning,
    ) -> None:
        self._name = name
        self._log_once = log_once
        self._log = FlowLog(log, name)
        self._duties = tuple(duties)
        self._on_error = on_error
        self._stop = threading.Event()
        self._is_held = False
        self._rounds: list[RepeatedJob] = []

    def start(self) -> None:
        """Begin the first rounds."""
        for duty in self._duties:
            turn = partial(self._run_round, duty, _Troubles(self._name, duty.name))
            rounds = RepeatedJob(f"twinlog-{duty.name}", turn, duty.close)
            self._rounds.append(rounds)
            rounds.start()

    def set_held(self, *, is_held: bool) -> None:
        """Pause or resume the duties, except for those that also run while the flow is paused. Last
        rounds still run.
        """
        self._is_held = is_held

    def stop(self) -> None:
        """Start no further rounds. This does not wait for running ones."""
        self._stop.set()
        for rounds in self._rounds:
            rounds.stop()

    @property
    def is_alive(self) -> bool:
        """Return True if a round or the end of a duty is still running."""
        return any(rounds.is_alive for rounds in self._rounds)

    def join(self, within_s: float) -> None:
        """Wait for running rounds to end. Rounds that take longer end with the process."""
        until = time.monotonic() + within_s
        for rounds in self._rounds:
            rounds.join(max(0.0, until - time.monotonic()))

    def end(self, within_s: float, *, is_last: bool = True) -> None:
        """Wait for running rounds after the copy has drained, and then run the last rounds, unless
        another process already leads (`is_last` is False).
        """
        self.stop()
        self.join(within_s)
        for duty in self._duties:
            if is_last and isinstance(duty, LastRound):
                try:
                    duty.last_round()
                except NotPermitted as error:
                    self._log_once(error.message)
                except TwinlogError as error:
                    self._log.warning("%s: the last round failed: %s", duty.name, error)
                except Exception:  # noqa: BLE001 (the other duties must end as well)
                    self._log.bug("%s: internal error in the last round", duty.name)

    def run_once(self) -> None:
        """Run one round of each duty that ends `--once`. Failures are logged."""
        for duty in self._duties:
            if duty.ends_once and not self._stop.is_set() and not self._is_held:
                self._round(duty, _Troubles(self._name, duty.name))
                duty.close()

    def _run_round(self, duty: Duty, troubles: _Troubles) -> float:
        """Run a round, and return the seconds until the next one."""
        if self._is_held and not isinstance(duty, RunsWhileHeld):
            return HELD_PAUSE_S
        began = time.monotonic()
        pause_s = self._round(duty, troubles)
        if pause_s is not None:
            return pause_s
        return max(duty.interval_s - (time.monotonic() - began), 0.0)

    def _round(self, duty: Duty, troubles: _Troubles) -> float | None:
        """Run a round. Return the pause after a failure, or None if it succeeded."""
        try:
            duty.round()
        except NotNow:
            troubles.on_round(None)
        except NotPermitted as error:
            self._log_once(error.message)
            return REFUSED_PAUSE_S
        except TwinlogError as error:
            if not self._stop.is_set():
                self._on_error(error)
                troubles.on_round(error)
        except Exception as bug:  # noqa: BLE001 (the copy must continue, and the bug must be seen)
            self._log.bug("%s: a bug in this round", duty.name)
            self._on_error(TwinlogError(f"{duty.name}: {bug!r}"))
            troubles.on_round(None)
        else:
            troubles.ended()
            return None
        return troubles.pause_s


class _Troubles:
    """Logs one line a minute for each kind of error, and makes pauses longer while it lasts."""

    def __init__(self, flow: str, duty: str) -> None:
        self._log = FlowLog(log, flow)
        self._duty = duty
        self._code = ""
        self._logged_at = 0.0
        self._pause = GrowingPause(first_s=FIRST_PAUSE_S, most_s=MAX_PAUSE_S)
        self.pause_s = 0.0

    def on_round(self, error: TwinlogError | None) -> None:
        self.pause_s = self._pause.next_s()
        if error is None:
            return
        now = time.monotonic()
        if error.code != self._code or now - self._logged_at > ONE_LINE_EVERY_S:
            self._code, self._logged_at = error.code, now
            self._log.warning("%s: %s; trying again", self._duty, error)

    def ended(self) -> None:
        if self._code:
            self._log.news("%s: works again", self._duty)
        self._pause.reset()
        self._code, self.pause_s = "", 0.0
