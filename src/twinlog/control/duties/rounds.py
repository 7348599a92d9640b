"""Duties: the work of a flow's leader beside copying, in rounds. Duties run in parallel.

A duty never stops the copy. A round that fails is logged in one line and tried again. So a round
must be safe to repeat and to crash in. It must also be safe in a process that has just lost the
lead without knowing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

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
from twinlog.mirror.names.naming import DefaultReplicationPolicy
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
"""Seconds until the next attempt if a permission is missing, so that a permission that was granted
in the meantime is used. MirrorMaker 2 lists topics and groups at the same interval.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView(PartitionPair):
    """One partition of the flow, with its progress, as duties need it."""

    reach: Reach | None
    """How far the partition is copied, or None if unknown."""
    is_broken: bool = False
    """True if one of the logs was damaged, or a topic is not the one that was copied. Then offsets
    on the target cannot be trusted, and `reach` is None.
    """
    is_position_unknown: bool = False
    """True if no lane of this process has found the partition's position in both logs yet."""
    is_keyed: bool = False
    """True if the partition's records go to several target partitions by key."""
    is_begun: bool = False
    """True if a lane of this process has verified that the target has this copy, or is empty."""
    has_others: bool = False
    """True if the target topic has, or might have, records that this flow did not copy."""
    map_epoch: int | None = None
    """As the lane of this partition reports: a leader epoch of the map topic's partition in which
    all map rows of this partition certainly exist. -1 if unknown, None if no lane has the
    partition.
    """
    foreign_code: str = ""
    """The code because of which the flow must not write to the target topic; usually empty."""

    @property
    def upstream(self) -> int:
        """Source offset below which all records are on the target, or 0 if unknown."""
        return 0 if self.reach is None else self.reach.upstream


def with_same_topics(
    views: Iterable[PartitionView], source: ClusterClient, target: ClusterClient
) -> list[PartitionView]:
    """Return the partitions whose source and target topics still have the IDs of the copy. Call
    this right before a write, and after everything was read by name. Because IDs are never reused,
    those reads belong to the same topics.

    A lane's position is valid between two topic IDs. But groups, checkpoints and MirrorMaker 2's
    own positions are stored by topic name. If the topic was re-created, such a position would skip
    the first records of the new topic. Paused lanes do not detect this.

    Sends one metadata request to each cluster, for these topics only. Raises TwinlogError.
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
    policy: DefaultReplicationPolicy
    generation: int
    source: ClusterSettings
    """Settings of the admin client for the source. A duty opens its own clients."""
    target: ClusterSettings
    partitions: Callable[[], tuple[PartitionView, ...]]
    """Returns the flow's partitions. Raises TwinlogError if the supervisor does not respond."""
    read_map: Callable[[], Maps]
    """Returns the current offset map."""
    snapshot: Callable[[], FlowSnapshot]
    """Returns the flow's current state. Raises TwinlogError if the supervisor does not respond."""
    may_act: Callable[[], bool] = lambda: False
    """Returns True if this process leads by its own clock, and the state topic does not forbid
    changes: it has no newer leader, and no intent that this run does not follow yet. Reads the
    state topic for this, and raises TwinlogError if that fails.
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
    """Returns recent events of this process, for other hosts, or None if events are not stored."""
    groups: GroupsReport = field(default_factory=GroupsReport)
    """The last report on consumer groups, for snapshots."""
    held_rate: HeldRate = field(default_factory=HeldRate)
    """The producer quota in effect, for snapshots."""
    verified: VerifiedReport = field(default_factory=VerifiedReport)
    """Progress and results of the verification, for snapshots."""
    synced: SyncedOffsets = field(default_factory=SyncedOffsets)
    """Group offsets that the syncs of this process have set, on every cluster."""
    has_held_producers: bool = False
    """True if the flow's former leader left a quota for the source's producers."""
    adopted: OffsetStorage | None = None
    """MirrorMaker 2's offset storage if its work was adopted, else None."""

    @property
    def name(self) -> str:
        return str(self.config.flow)

    def confirm(self) -> None:
        """Check that this process is still permitted to make a change. Call this right before the
        change. A process that was frozen does not know of a promotion, or of another leader. Raises
        NotNow, which ends the round.
        """
        if not self.may_act():
            raise NotNow(f"{self.name}: another process leads, or the intents have changed")


class NotNow(TwinlogError):
    """Ends a round without a change. The error is not reported."""


class NotPermitted(TwinlogError):
    """Ends a round because a permission is missing. Its message is logged once, and the next round
    is REFUSED_PAUSE_S later.
    """


class Duty:
    """One kind of periodic work of a flow's leader, beside copying."""

    ends_once = True
    """True if a run with `--once` ends with a round of this duty."""
    runs_while_held = False
    """True if rounds continue while the flow is paused, because they do not touch the copy."""
    _clients: Sequence[ClusterClient] = ()
    """Clients that are kept between rounds."""

    @property
    def name(self) -> str:
        """Return the name for log lines and for the thread, such as `heartbeats`."""
        raise NotImplementedError

    @property
    def interval_s(self) -> float:
        """Return the seconds from the start of one round to the start of the next."""
        raise NotImplementedError

    def round(self) -> None:
        """Do the work that is due. After a TwinlogError, the round is repeated after a pause."""
        raise NotImplementedError

    def last_round(self) -> None:
        """Do the final work after the copy has drained. Called once, after all rounds. Raises
        TwinlogError.
        """

    def close(self) -> None:
        """Close connections. Called after the last round."""
        for client in self._clients:
            client.close()


DutyFactory = Callable[[LedFlow], Duty | None]
"""Creates the duty of a flow, or returns None if the configuration does not enable the duty."""


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
        """Begin the first round of each duty."""
        for duty in self._duties:
            turn = partial(self._run_round, duty, _Troubles(self._name, duty.name))
            rounds = RepeatedJob(f"twinlog-{duty.name}", turn, duty.close)
            self._rounds.append(rounds)
            rounds.start()

    def set_held(self, *, is_held: bool) -> None:
        """Pause or resume all duties except those that also run while the flow is paused. Last
        rounds are not affected.
        """
        self._is_held = is_held

    def stop(self) -> None:
        """Start no further rounds. Running rounds continue, and are not waited for."""
        self._stop.set()
        for rounds in self._rounds:
            rounds.stop()

    @property
    def is_alive(self) -> bool:
        """Return True if a round or the closing of a duty is still running."""
        return any(rounds.is_alive for rounds in self._rounds)

    def join(self, within_s: float) -> None:
        """Wait for running rounds to end. Rounds that take longer end with the process."""
        until = time.monotonic() + within_s
        for rounds in self._rounds:
            rounds.join(max(0.0, until - time.monotonic()))

    def end(self, within_s: float, *, is_last: bool = True) -> None:
        """Start no more rounds, wait at most `within_s` for those that run, and then run the last
        round of each duty. Call this after the copy has drained. `is_last`: False to leave out the
        last rounds, because another process already leads.
        """
        self.stop()
        self.join(within_s)
        for duty in self._duties if is_last else ():
            try:
                duty.last_round()
            except NotPermitted as error:
                self._log_once(error.message)
            except TwinlogError as error:
                self._log.warning("%s: the final round failed: %s", duty.name, error)
            except Exception:  # noqa: BLE001 (the other duties must end as well)
                self._log.bug("%s: internal error in the final round", duty.name)

    def run_once(self) -> None:
        """Run one round of each duty with `ends_once`. Failures are logged."""
        for duty in self._duties:
            if duty.ends_once and not self._stop.is_set() and not self._is_held:
                self._round(duty, _Troubles(self._name, duty.name))
                duty.close()

    def _run_round(self, duty: Duty, troubles: _Troubles) -> float:
        """Run a round, and return the seconds until the next one."""
        if self._is_held and not duty.runs_while_held:
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
            troubles.on_success()
            return None
        return troubles.pause_s


class _Troubles:
    """Logs one line a minute for each kind of error, and lengthens the pauses while rounds fail."""

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

    def on_success(self) -> None:
        if self._code:
            self._log.news("%s: works again", self._duty)
        self._pause.reset()
        self._code, self.pause_s = "", 0.0
