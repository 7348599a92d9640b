"""The lanes and leases of one flow as the driver sees them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

from twinlog.channel.peer import Peer
from twinlog.clock import CLOCK, Clock
from twinlog.cluster.security.renewal import known
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.control.lanes.partitions import LaneKey, Partition
from twinlog.errors import TwinlogError
from twinlog.lane.messages import (
    NO_THROTTLE,
    Away,
    EndLane,
    KnownProducers,
    Renewed,
    Throttle,
    Work,
)
from twinlog.model import TopicPartition

WARM_UP_TIMEOUT_S: Final = 30.0
HELLO_WITHIN_S: Final = 300.0
"""A cluster may take minutes to give executors; a lane that froze before its hello never comes."""


class Job(Protocol):
    """A lease's Spark job."""

    @property
    def is_done(self) -> bool: ...
    @property
    def error(self) -> TwinlogError | None: ...
    def cancel(self) -> None: ...


class LeaseState(StrEnum):
    """A lease warms up beside the one before it, takes its partitions over, and retires when its
    turn is over.
    """

    WARMING = "WARMING"
    CURRENT = "CURRENT"
    RETIRING = "RETIRING"


@dataclass(slots=True, kw_only=True)
class Lane:
    """One running attempt of a lane."""

    key: LaneKey
    peer: Peer
    work: Work
    """What it got at its start."""
    is_ready: bool = False
    degraded: Away | None = None
    """Why it does not reach a cluster; None: it does, or has not noticed."""
    reached_at: float = float("-inf")
    """Monotonic: when it came to reach both clusters."""
    throttle: Throttle = NO_THROTTLE
    stop_sent: bool = False
    is_waiting: bool = False
    """An earlier attempt of this lane still lives: it gets no work, and nothing it says counts."""
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    releasing: set[TopicPartition] = field(default_factory=set)
    _sent: Renewed | None = None
    """None before it got its work."""

    def begin(self) -> None:
        """Tell it its work, with what key files hold now."""
        self._sent = credentials_of(self.work)
        self.peer.send(with_credentials(self.work, self._sent))

    def renew(self) -> None:
        """Tell it what new connections use, where that has changed since it heard of it."""
        if self._sent is not None and (now := credentials_of(self.work)) != self._sent:
            self._sent = now
            self.peer.send(now)

    def know(self, producers: tuple[int, ...]) -> None:
        """Tell it whose records are no stranger's."""
        self.work = replace(self.work, known_producers=producers)
        if self._sent is not None:
            self.peer.send(KnownProducers(producers=producers))

    def ready(self, now: float) -> None:
        """It has reached both clusters."""
        self.is_ready, self.reached_at = True, now

    def reaches(self, reason: Away | None, now: float) -> bool:
        """Whether it reaches both clusters: no reason, or why not. True: it did until now."""
        before, self.degraded = self.degraded, reason
        if before and not reason:
            self.reached_at = now
        return reason is not None and before is None

    def stop(self) -> None:
        """It drains, and ends."""
        if not self.stop_sent:
            self.stop_sent = True
            self.peer.send(EndLane())


@dataclass(slots=True, kw_only=True)
class Lease:
    """One Spark job and the lanes that came from it."""

    number: int
    size: int
    job: Job
    work: Work
    """What its lanes got at their start."""
    state: LeaseState = LeaseState.WARMING
    clock: Clock = CLOCK
    started: float = field(init=False)
    lanes: dict[int, Lane] = field(default_factory=dict)
    waiting: dict[int, Lane] = field(default_factory=dict)
    fell_silent: bool = False
    """A lane was given up though its process may live: nothing will start it again."""
    was_heard: bool = False
    """A lane has said hello."""

    def __post_init__(self) -> None:
        self.started = self.clock.monotonic()

    def join(self, lane: Lane) -> bool:
        """Whether it is its number's lane from now on; else it waits for the one before it.

        A lane that lives is not displaced: who says hello in its name may be anybody who has read
        its secret. Its end is known by its connection, or by its silence.
        """
        self.was_heard = True
        number = lane.key.lane
        lane.is_waiting = number in self.lanes
        if not lane.is_waiting:
            self.lanes[number] = lane
            return True
        before = self.waiting.get(number)
        if before is not None:
            before.peer.close("a newer attempt waits")
        self.waiting[number] = lane
        return False

    def leave(self, lane: Lane) -> Lane | None:
        """It is gone; returns the attempt that has waited for its number."""
        number = lane.key.lane
        if self.waiting.get(number) is lane:
            del self.waiting[number]
        if self.lanes.get(number) is not lane:
            return None
        del self.lanes[number]
        heir = self.waiting.pop(number, None)
        if heir is not None:
            heir.is_waiting = False
            self.lanes[number] = heir
        return heir

    @property
    def is_deserted(self) -> bool:
        """No lane is left, and none will come."""
        never_came = not self.was_heard and self.age_s > HELLO_WITHIN_S
        return (self.fell_silent or never_came) and not self.lanes

    def tend(self) -> None:
        """Its lanes learn of renewed key files, and end when their turn is over."""
        for lane in self.lanes.values():
            lane.renew()
        if self.state is LeaseState.RETIRING:
            self._end_idle_lanes()

    def _end_idle_lanes(self) -> None:
        """Those that have given back all they had; what is left of a deserted lease does nothing
        any more.
        """
        if self.is_deserted:
            self.job.cancel()
        for lane in self.lanes.values():
            if not lane.partitions:
                lane.stop()

    @property
    def ready_lanes(self) -> list[Lane]:
        return [lane for lane in self.lanes.values() if lane.is_ready and not lane.stop_sent]

    @property
    def is_warm(self) -> bool:
        """All lanes are ready; or some are, and the others had their time."""
        ready = len(self.ready_lanes)
        return ready == self.size or (ready > 0 and self.age_s > WARM_UP_TIMEOUT_S)

    @property
    def age_s(self) -> float:
        return self.clock.monotonic() - self.started


def spread(partitions: Iterable[Partition], lanes: Iterable[Lane]) -> dict[int, list[Partition]]:
    """Who gets which partition, by lane number: the least loaded lane each time, in a stable order.

    Partitions of one topic are dealt out one by one, so that a busy topic keeps every lane busy.
    """
    by_number = {lane.key.lane: lane for lane in lanes}
    load = {number: len(lane.partitions) for number, lane in by_number.items()}
    out: dict[int, list[Partition]] = {}
    for partition in sorted(partitions, key=lambda p: p.plan.source):
        number = min(load, key=lambda n: (load[n], n))
        load[number] += 1
        out.setdefault(number, []).append(partition)
    return out


def credentials_of(work: Work) -> Renewed:
    """As the key files were when they were last checked; no file is read here."""
    return Renewed(source=_now(work.source.security), target=_now(work.target.security))


def with_credentials(work: Work, now: Renewed) -> Work:
    """The same work with these."""
    return replace(
        work,
        source=replace(work.source, security=now.source),
        target=replace(work.target, security=now.target),
    )


def _now(settings: SecuritySettings | None) -> SecuritySettings | None:
    # without the files' names: a file of that name on the lane's machine is another
    return None if settings is None else replace(known(settings), files=())
