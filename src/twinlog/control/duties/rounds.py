"""Duties: what a process that leads a flow does for it beside copying, in rounds, each duty in a
thread of its own.

A duty never stops the copy. A round that fails is said in one line and tried again; so a round
must be safe to repeat, to die in, and to be run by a process that has just lost the lead without
knowing it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from twinlog.clock import GrowingPause
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.duties.producer_rate import HeldRate
from twinlog.control.watch.groups_report import GroupsReport
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.verified import VerifiedReport
from twinlog.errors import TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.names.naming import ReplicationPolicy
from twinlog.mirror.plan import Pairing
from twinlog.mirror.state.generations import Claim
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.state.published_events import PublishedEvents
from twinlog.survey.map_reader import Maps

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 1.0
HELD_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0
ONE_LINE_EVERY_S: Final = 60.0
REFUSED_PAUSE_S: Final = 600.0
"""Where a right is missing: as often as MirrorMaker 2 looks for topics and groups, so that one
which was granted meanwhile is found.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView(Pairing):
    """How far one partition of the flow is; offsets are -1 while they are not known."""

    next_upstream: int
    """All records below it are on the target."""
    next_downstream: int
    """Where the next record will lie."""
    source_end: int
    is_broken: bool = False
    """One of the two logs is not what it should be, or its topic not the one that was copied: no
    offset of the target can be trusted, and so none is given.
    """
    is_unseen: bool = False
    """No lane of this process has found its place in both logs yet."""
    is_keyed: bool = False
    """Its records go to several target partitions by key."""
    is_begun: bool = False
    """A lane of this process has found that the target holds this copy, or nothing yet."""
    has_others: bool = False
    """Its target topic holds records that this flow did not copy, or may hold some."""
    map_epoch: int | None = None
    """Under which leader of the map's partition its rows surely are there, as its lane says (-1: it
    does not know); None: it is in no lane.
    """
    not_ours: str = ""
    """The code that says that nothing of ours may write to its target topic now; mostly empty."""


def confirmed(
    views: Iterable[PartitionView], source: ClusterClient, target: ClusterClient
) -> list[PartitionView]:
    """Those whose two topics have the ids of the copy now. To be asked right before something is
    written, and behind whatever was read by name: ids never come back.

    A lane's position is one between two topic ids, but groups, checkpoints and MirrorMaker 2's own
    positions go by name. Under the name there may be a topic created again by now, whose first
    records such a position would skip; no lane notices while it is paused.

    One metadata request to each cluster, for these topics alone. Raises TwinlogError.
    """
    if not (views := [*views]):
        return []
    here = source.metadata(sorted({view.source.topic for view in views}))
    there = target.metadata(sorted({view.target.topic for view in views}))
    return [
        view
        for view in views
        if here.has(view.source.topic, view.source_topic_id)
        and there.has(view.target.topic, view.target_topic_id)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedFlow:
    """A flow as its duties see it; may be used from any thread."""

    config: FlowConfig
    policy: ReplicationPolicy
    generation: int
    source: ClusterSettings
    """As the flow's admin client enters it; a duty opens clients of its own."""
    target: ClusterSettings
    partitions: Callable[[], tuple[PartitionView, ...]]
    """All wanted partitions now. Raises TwinlogError when the supervisor does not answer."""
    read_map: Callable[[], Maps]
    """The offset map up to this moment."""
    snapshot: Callable[[], FlowSnapshot]
    """The flow as it is now. Raises TwinlogError when the supervisor does not answer."""
    may_act: Callable[[], bool] = lambda: False
    """Whether this process leads by its own clock, and the state topic, read now, names nobody
    else and wants nothing that the run does not follow yet. Raises TwinlogError where that cannot
    be asked.
    """
    claim: Claim | None = None
    """Of this generation, as the state topic has it."""
    intents: Callable[[], FlowIntents] = FlowIntents
    """What people want of the flow, as it is followed now."""
    leads: Callable[[], bool] = lambda: False
    """Whether this process leads by its own clock; asks nobody."""
    log_once: Callable[[str], None]
    """Says a line once in the life of the process: for what is left out and stops nothing."""
    events: Callable[[], PublishedEvents | None] = lambda: None
    """What happened to it in this process, for other hosts; None: that is not kept."""
    groups: GroupsReport = field(default_factory=GroupsReport)
    """For the snapshots."""
    held_rate: HeldRate = field(default_factory=HeldRate)
    """For the snapshots."""
    verified: VerifiedReport = field(default_factory=VerifiedReport)
    """For the snapshots."""
    synced: SyncedOffsets = field(default_factory=SyncedOffsets)
    """What the syncs of this process gave to groups, on every cluster."""
    has_held_producers: bool = False
    """The flow's former leader held the source's producers back, and has not let them go."""
    adopted: OffsetStorage | None = None
    """Where MirrorMaker 2 keeps its positions, if its work was taken over."""

    @property
    def name(self) -> str:
        return str(self.config.flow)

    def confirm(self) -> None:
        """Right before a change of something that others may own by now: a process that was frozen
        knows nothing of a promotion, or of who leads. Raises NotNow, which ends the round.
        """
        if not self.may_act():
            raise NotNow(f"{self.name}: is led elsewhere, or something else is wanted of it by now")


class NotNow(TwinlogError):
    """The round ends without a change; nobody needs to hear of it."""


class Duty(Protocol):
    """One kind of work."""

    @property
    def name(self) -> str:
        """For lines and thread names: `heartbeats`."""

    @property
    def interval_s(self) -> float:
        """From the start of one round to the start of the next."""

    @property
    def ends_once(self) -> bool:
        """Whether `--once` ends with a round of it."""

    def round(self) -> None:
        """Do what is due. Raises TwinlogError; is then called again after a pause."""

    def close(self) -> None:
        """Close connections; called in the thread of the rounds, after the last one."""


@runtime_checkable
class RunsWhileHeld(Protocol):
    """A duty that is no work for the flow: what it does continues while the flow is paused."""

    runs_while_held: bool


@runtime_checkable
class LastRound(Protocol):
    """A duty that has something to do when the copy has drained and nothing moves any more."""

    def last_round(self) -> None:
        """Called once, after all rounds. Raises TwinlogError."""


DutyFactory = Callable[[LedFlow], Duty | None]
"""None: the configuration does not ask for it."""


class Duties:
    """The duties of one led flow, from the start of its run to the end."""

    def __init__(
        self,
        name: str,
        duties: Iterable[Duty],
        *,
        on_error: Callable[[TwinlogError], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._log = FlowLog(log, name)
        self._duties = tuple(duties)
        self._on_error = on_error
        self._stop = threading.Event()
        self._is_held = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin with the rounds; returns at once."""
        for duty in self._duties:
            thread = threading.Thread(
                target=self._work, args=(duty,), name=f"twinlog-{duty.name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def hold(self, *, is_held: bool) -> None:
        """No round begins while it is held, but of what shows the flow; what is to be done last, at
        a stop, is done.
        """
        self._is_held = is_held

    def stop(self) -> None:
        """No further round begins; returns at once."""
        self._stop.set()

    @property
    def is_alive(self) -> bool:
        """Rounds are made, or what ends them is done."""
        return any(thread.is_alive() for thread in self._threads)

    def join(self, within_s: float) -> None:
        """Wait for rounds under way to end; what takes longer ends with the process."""
        until = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def end(self, within_s: float, *, is_last: bool = True) -> None:
        """The copy has drained: wait for rounds under way, then do what is to be done last, unless
        another process does it by now (`is_last`).
        """
        self.stop()
        self.join(within_s)
        for duty in self._duties:
            if is_last and isinstance(duty, LastRound):
                try:
                    duty.last_round()
                except TwinlogError as error:
                    self._log.warning("%s: not done at the end: %s", duty.name, error)
                except Exception:  # noqa: BLE001 (the rest of the end must be done)
                    self._log.bug("%s: a bug at the end", duty.name)

    def run_once(self) -> None:
        """One round of each duty that ends `--once`; what fails is said, the rest continues."""
        for duty in self._duties:
            if duty.ends_once and not self._stop.is_set() and not self._is_held:
                self._round(duty, _Troubles(self._name, duty.name))
                duty.close()

    def _work(self, duty: Duty) -> None:
        troubles = _Troubles(self._name, duty.name)
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            if self._is_held and not isinstance(duty, RunsWhileHeld):
                pause_s = HELD_PAUSE_S
                continue
            began = time.monotonic()
            ok = self._round(duty, troubles)
            took_s = time.monotonic() - began
            pause_s = max(duty.interval_s - took_s, 0.0) if ok else troubles.pause_s
        duty.close()

    def _round(self, duty: Duty, troubles: _Troubles) -> bool:
        try:
            duty.round()
        except NotNow:
            troubles.failed(None)
            return False
        except TwinlogError as error:
            if not self._stop.is_set():
                self._on_error(error)
                troubles.failed(error)
            return False
        except Exception as bug:  # noqa: BLE001 (the copy must continue, and the bug must be seen)
            self._log.bug("%s: a bug in this round", duty.name)
            self._on_error(TwinlogError(f"{duty.name}: {bug!r}"))
            troubles.failed(None)
            return False
        troubles.ended()
        return True


class _Troubles:
    """One line a minute for each kind of trouble, and longer pauses while it lasts."""

    def __init__(self, flow: str, duty: str) -> None:
        self._log = FlowLog(log, flow)
        self._duty = duty
        self._code = ""
        self._logged_at = 0.0
        self._pause = GrowingPause(first_s=FIRST_PAUSE_S, most_s=MAX_PAUSE_S)
        self.pause_s = 0.0

    def failed(self, error: TwinlogError | None) -> None:
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
