"""The lanes and leases of one flow as the driver sees them. A lane is a task of a Spark job, and a
lease is that job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

from msgspec import structs

from twinlog.channel.frames import ChannelAddress
from twinlog.channel.server import Peer
from twinlog.clock import CLOCK, Clock
from twinlog.cluster.security.renewal import known
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.control.lanes.partitions import LaneKey, Partition
from twinlog.errors import TwinlogError
from twinlog.lane.messages import (
    NO_LOAD,
    NO_THROTTLE,
    EndLane,
    KnownProducers,
    LaneLoad,
    Ready,
    Renewed,
    Throttle,
    UnreachableCluster,
    Work,
)
from twinlog.model import LeaseCopy, TopicPartition

WARM_UP_TIMEOUT_S: Final = 30.0
STEP_AFTER_S: Final = 5.0
"""Seconds within which all lanes of a job start if Spark has enough slots for them."""
JOB_ENDS_WITHIN_S: Final = 1.5
"""Seconds between the end of a lease's last lane and the cancellation of its job. If the job were
cancelled sooner, Spark's history would show it as failed.
"""
HELLO_WITHIN_S: Final = 300.0
"""Seconds within which the first lane of a lease must connect. Spark's cluster may take minutes to
allocate executors, and a frozen lane may never connect.
"""


class Job(Protocol):
    """A lease's Spark job."""

    @property
    def is_done(self) -> bool: ...
    @property
    def error(self) -> TwinlogError | None: ...
    @property
    def awaits_slot(self) -> bool:
        """Return True if no task of the job has begun. Does not wait for Spark: while this is
        queried, the value is False.
        """

    def cancel(self) -> None: ...
    def note(self, copied: Sequence[LeaseCopy]) -> None:
        """Show in Spark what the lanes of this job have copied."""


class LeaseState(StrEnum):
    """Phase of a lease. A lease warms up while the previous one runs, takes over the partitions of
    the previous one, and retires when the next lease has replaced it.

    If Spark has too few slots for all lanes of both leases, the new lease takes over lane by lane.
    Each ready lane replaces a lane of the previous lease, and the next lane gets the freed slot.
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
    """The settings that the lane gets at its start, for all its partitions."""
    is_ready: bool = False
    range_port: ChannelAddress | None = None
    """Address at which the transforms' application gets ranges of source records from the lane."""
    unreachable: UnreachableCluster | None = None
    """Why the lane does not reach a cluster, or None if it reaches both or has not noticed yet."""
    reached_at: float = float("-inf")
    """Monotonic time since when the lane reaches both clusters."""
    throttle: Throttle = NO_THROTTLE
    load: LaneLoad = NO_LOAD
    stop_sent: bool = False
    is_waiting: bool = False
    """Whether an earlier attempt of this lane is still connected, so that this attempt gets no
    work, and its messages are ignored.
    """
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    releasing: set[TopicPartition] = field(default_factory=set)
    _sent: Renewed | None = None
    """The last credentials sent to the lane, or None before the lane gets its work."""

    def begin(self) -> None:
        """Send the lane its work, with the current credentials."""
        work, now = self.work, credentials_of(self.work)
        source = replace(work.source, security=now.source)
        target = replace(work.target, security=now.target)
        self._sent = now
        self.peer.send(structs.replace(work, source=source, target=target))

    def renew(self) -> None:
        """Send new credentials if they have changed since the last message."""
        if self._sent is not None and (now := credentials_of(self.work)) != self._sent:
            self._sent = now
            self.peer.send(now)

    def send_known_producers(self, producers: tuple[int, ...]) -> None:
        """Send the lane all producer IDs of Twinlog's flows, whose records are not foreign."""
        self.work = structs.replace(self.work, known_producers=producers)
        if self._sent is not None:
            self.peer.send(KnownProducers(producers=producers))

    def ready(self, message: Ready, now: float) -> None:
        """Note that the lane has reached both clusters."""
        self.is_ready, self.reached_at, self.range_port = True, now, message.range_port

    def note_unreachable(self, reason: UnreachableCluster | None, now: float) -> bool:
        """Store why the lane cannot reach a cluster, or None if it reaches both. Return True if the
        lane reached both before this call, and now does not.
        """
        before, self.unreachable = self.unreachable, reason
        if before and not reason:
            self.reached_at = now
        return reason is not None and before is None

    def stop(self) -> None:
        """Order the lane to drain and end. Repeated calls have no effect."""
        if not self.stop_sent:
            self.stop_sent = True
            self.peer.send(EndLane())


@dataclass(slots=True, kw_only=True)
class Lease:
    """One Spark job and the lanes that are its tasks."""

    number: int
    size: int
    job: Job
    work: Work
    """The settings that the lanes of this lease get at their start."""
    is_light: bool = False
    """Whether this lease has only one lane, because the flow has little traffic."""
    state: LeaseState = LeaseState.WARMING
    clock: Clock = CLOCK
    started: float = field(init=False)
    changed: float = field(init=False)
    """Monotonic time at which the lease started, or at which a lane last left it."""
    lanes: dict[int, Lane] = field(default_factory=dict)
    waiting: dict[int, Lane] = field(default_factory=dict)
    fell_silent: bool = False
    """Whether a silent lane was given up. It is not restarted, as its process may still run."""
    was_heard: bool = False
    """Whether a lane of this lease has sent its hello."""

    def __post_init__(self) -> None:
        self.started = self.changed = self.clock.monotonic()

    def join(self, lane: Lane) -> bool:
        """Add a lane that has connected. Return True if the lease uses it as the lane of its
        number. Return False if an earlier attempt of the same lane is still connected, so that it
        must wait.

        A connected lane is not replaced, because anybody who has read its secret can send a hello
        in its name. The end of a connected lane is detected by its connection, or by its silence.
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
        """Remove a lane that has ended. Return the waiting attempt that replaces it, or None."""
        number = lane.key.lane
        if self.waiting.get(number) is lane:
            del self.waiting[number]
        if self.lanes.get(number) is not lane:
            return None
        del self.lanes[number]
        self.changed = self.clock.monotonic()
        heir = self.waiting.pop(number, None)
        if heir is not None:
            heir.is_waiting = False
            self.lanes[number] = heir
        return heir

    @property
    def is_deserted(self) -> bool:
        """Return True if no lane is left, and none will connect."""
        age_s = self.clock.monotonic() - self.started
        never_came = not self.was_heard and age_s > HELLO_WITHIN_S
        return (self.fell_silent or never_came) and not self.lanes

    def tick(self) -> None:
        """Send renewed credentials to lanes. If the lease retires, end lanes that have returned all
        their partitions, and cancel the job of a deserted lease.
        """
        for lane in self.lanes.values():
            lane.renew()
            if self.state is LeaseState.RETIRING and not lane.partitions:
                lane.stop()
        if self.state is LeaseState.RETIRING and self.is_deserted:
            self.job.cancel()

    @property
    def ready_lanes(self) -> list[Lane]:
        return [lane for lane in self.lanes.values() if lane.is_ready and not lane.stop_sent]

    @property
    def is_warm(self) -> bool:
        """Return True if all lanes are ready, or if some are and the rest are late."""
        ready = self.ready_lanes
        if len(ready) == self.size or not ready:
            return bool(ready)
        newest = max(self.started, *(lane.reached_at for lane in ready))
        return self.clock.monotonic() - newest > WARM_UP_TIMEOUT_S

    @property
    def is_partly_warm(self) -> bool:
        """Return True if some lanes are ready, and the rest may be waiting for the old lease's
        slots.
        """
        if self.state is not LeaseState.WARMING or not (ready := self.ready_lanes):
            return False
        oldest = min(lane.reached_at for lane in ready)
        return self.clock.monotonic() - oldest > STEP_AFTER_S

    @property
    def is_over(self) -> bool:
        """Return True if the lease has no lane, and its job had enough time to end by itself."""
        return not self.lanes and self.clock.monotonic() - self.changed > JOB_ENDS_WITHIN_S


def spread_over_lanes(
    partitions: Iterable[Partition], lanes: Iterable[Lane]
) -> dict[LaneKey, list[Partition]]:
    """Return the partitions for each lane: the next partition goes to the lane with the fewest.

    A topic's partitions are spread one by one, so that a busy topic uses all lanes.
    """
    load = {lane.key: len(lane.partitions) for lane in lanes}
    out: dict[LaneKey, list[Partition]] = {}
    for partition in sorted(partitions, key=lambda p: p.plan.source):
        lane = min(load, key=lambda key: (load[key], key))
        load[lane] += 1
        out.setdefault(lane, []).append(partition)
    return out


def credentials_of(work: Work) -> Renewed:
    """Return the credentials as of the last check of the key files. Reads no file itself."""
    return Renewed(
        source=_for_other_host(work.source.security), target=_for_other_host(work.target.security)
    )


def _for_other_host(settings: SecuritySettings | None) -> SecuritySettings | None:
    # leave out the names of files, because they do not exist on the lane's host
    return None if settings is None else replace(known(settings), files=())
