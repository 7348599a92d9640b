"""A flow's run within a test's process: a clock that the test moves, a host that starts no Spark,
and lanes that record the messages that they get.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeVar, cast

from tests.support.folded_rows import fold
from twinlog.channel.frames import ChannelAddress, LaneIdentity
from twinlog.channel.server import Peer
from twinlog.clock import Clock
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.start import Starts, TopicStart
from twinlog.config.flow.tuning import Tuning
from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.partitions import LaneKey, Partition, Placement
from twinlog.control.running.flow_run import FlowRun
from twinlog.errors import TwinlogError
from twinlog.lane.messages import (
    EndLane,
    HandOver,
    PartitionProgress,
    Progress,
    Ready,
    Release,
    Released,
    ReleasedPartition,
    Take,
    Troubled,
    Work,
)
from twinlog.mirror.map.offset_map import ChunkRow, Run, Term
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.start_point import StartPoint
from twinlog.model import EARLIEST, Isolation, LeaseCopy, TopicId, TopicPartition
from twinlog.survey.replica import Maps

__all__ = ["Driver", "HandClock", "LaneStub", "plan_of", "work_of"]

M = TypeVar("M")


class HandClock(Clock):
    """A clock that moves only when the test moves it. Its three kinds of time (wall clock,
    monotonic, and since boot) move together.
    """

    def __init__(self) -> None:
        self.now = 10_000.0
        self._set_by_s = 0.0

    def set_by(self, seconds: float) -> None:
        """Move only the wall clock, as if a user had set the machine's clock."""
        self._set_by_s += seconds

    def monotonic(self) -> float:
        return self.now

    def boot(self) -> float:
        return self.now + 500.0

    def wall_ms(self) -> int:
        return int((self.now + self._set_by_s + 1_800_000_000) * 1000)


@dataclass
class JobStub:
    """A Spark job that ends when the test ends it."""

    is_done: bool = False
    error: TwinlogError | None = None
    cancelled: int = 0
    awaits_slot: bool = False
    copied: Sequence[LeaseCopy] = ()

    def cancel(self) -> None:
        self.cancelled += 1

    def note(self, copied: Sequence[LeaseCopy]) -> None:
        self.copied = copied


def plan_of(number: int, topic: str = "orders", **more: Any) -> PartitionPlan:
    """Return a partition plan. Topic IDs are derived from the names, so they are always the
    same.
    """
    return PartitionPlan(
        source=TopicPartition(topic, number),
        target=TopicPartition(f"A.{topic}", number),
        source_topic_id=TopicId(sha256(f"source {topic}".encode()).hexdigest()[:32]),
        target_topic_id=TopicId(sha256(f"target {topic}".encode()).hexdigest()[:32]),
        limit_bytes=1_000_000,
        has_log_append_time=False,
        may_reject_records=False,
        **more,
    )


def work_of(**changes: Any) -> Work:
    """Return a Work, the first message to a lane. Each has a different producer ID, so no two are
    equal.
    """
    usual: dict[str, Any] = {
        "flow": "A->B",
        "source": ClusterSettings(alias="A", bootstrap=(("source", 9092),)),
        "target": ClusterSettings(alias="B", bootstrap=(("target", 9092),)),
        "producer_id": secrets.randbits(40),
        "is_ours_alone": True,
        "isolation": Isolation.READ_UNCOMMITTED,
        "producer_expiry_ms": None,
        "known_producers": (),
        "map_topic": "mm2-twinlog-offset-map.A.internal",
        "map_topic_id": TopicId("c" * 32),
        "map_partitions": 1,
        "source_topics": ("orders",),
        "target_topics": ("A.orders",),
        "memory_bytes": 1 << 20,
        "accept_source_loss": False,
        "has_budget": False,
        "tuning": Tuning(),
        "silence_ms": 10_000,
    }
    return Work(**(usual | changes))


@dataclass
class LaneStub:
    """The driver's end of a lane's channel. It records all messages to the lane."""

    driver: Driver
    identity: LaneIdentity
    sent: list[Any] = field(default_factory=list)
    closed: str = ""
    lane: Lane | None = None
    is_frozen: bool = False
    """True if the lane sends nothing, although its connection is open."""
    last_heard: float = field(init=False)

    def __post_init__(self) -> None:
        self.last_heard = self.driver.clock.boot()

    def send(self, message: object) -> None:
        self.sent.append(message)

    def close(self, reason: str) -> None:
        self.closed = reason

    def all_sent(self, kind: type[M]) -> list[M]:
        return [one for one in self.sent if isinstance(one, kind)]

    def is_closed(self) -> bool:
        """Return True if the driver has given up this lane."""
        return bool(self.closed)

    @property
    def lane_key(self) -> LaneKey | None:
        return None if self.lane is None else self.lane.key

    @property
    def taken(self) -> list[TopicPartition]:
        """Return all partitions that were ever assigned to the lane, in order."""
        return [one.source for take in self.all_sent(Take) for one in take.partitions]

    def holds(self, tp: TopicPartition) -> bool:
        """Return True if the driver assigns the partition to this lane at present."""
        return self.lane is not None and tp in self.lane.partitions

    @property
    def asked_back(self) -> list[TopicPartition]:
        return [tp for release in self.all_sent(Release) for tp in release.partitions]

    @property
    def is_stopped(self) -> bool:
        return bool(self.all_sent(EndLane))

    def say(self, message: object) -> None:
        """Send messages from the lane to the driver."""
        self.last_heard = self.driver.clock.boot()
        if self.lane is not None:
            self.driver.run.on_message(self.lane, message)

    def ready(self, port: ChannelAddress | None = None) -> LaneStub:
        self.say(Ready(range_port=port))
        return self

    def progress(
        self,
        *tps: TopicPartition,
        ordinal: int = 0,
        end: int = 100,
        last_timestamp: int | None = None,
    ) -> None:
        now_ms = self.driver.clock.wall_ms()
        one = [
            PartitionProgress(
                source=tp,
                state="COPYING",
                ordinal=ordinal,
                upstream=ordinal,
                downstream=ordinal,
                source_end=end,
                records=ordinal,
                bytes=100 * ordinal,
                last_timestamp=now_ms if last_timestamp is None else last_timestamp,
                is_protected=True,
                target_epoch=0,
            )
            for tp in tps
        ]
        load = None if self.lane is None else self.lane.load  # unchanged
        self.say(Progress(partitions=tuple(one), unreachable=None, load=load))

    def gives_back(self, *tps: TopicPartition, done: bool = False, ordinal: int = 7) -> None:
        assert self.lane is not None
        handed = HandOver(
            start=StartPoint(
                ordinal=ordinal,
                upstream=ordinal,
                k=0,
                last_fetched_epoch=-1,
                is_protected=True,
                last_timestamp=-1,
            ),
            chunk=0,
            runs=(),
            durable_ordinal=ordinal,
        )
        back = tuple(
            ReleasedPartition(
                source=tp,
                term=self.lane.partitions[tp].term,
                handed=None if done else handed,
                done=done,
            )
            for tp in tps
        )
        self.say(Released(partitions=back))

    def troubled(
        self,
        tp: TopicPartition,
        code: str,
        *,
        retriable: bool = False,
        wait_ms: int = 0,
        said: str = "",
        had_begun: bool = False,
    ) -> None:
        self.say(
            Troubled(
                source=tp,
                code=code,
                message=said or f"{tp}: {code}",
                is_retriable=retriable,
                wait_ms=wait_ms,
                had_begun=had_begun,
            )
        )

    def goes(self) -> None:
        """End the lane's connection."""
        assert self.lane is not None
        self.driver.run.on_gone(self.lane)


class Driver:
    """A flow's run with its host and its lanes."""

    def __init__(
        self,
        plans: Iterable[PartitionPlan],
        *,
        lanes: int = 2,
        lease_s: float = 300.0,
        once: bool = False,
        clean: bool = True,
        **more: Any,
    ) -> None:
        self.clock = HandClock()
        self.most_lanes = lanes
        self.jobs: list[JobStub] = []
        self.has_spark = True
        self._stubs: list[LaneStub] = []
        self.map_readings: list[Callable[[Maps], None]] = []
        self.map_failures: list[Callable[[TwinlogError], None]] = []
        self.maps = Maps({}, {}, 1)
        self.reads_map = True
        self.run = FlowRun(
            name="A->B",
            start_lease=self.start_lease,
            has_spark=lambda: self.has_spark,
            read_map=self.read_map,
            work=work_of(),
            generation=3,
            plans=plans,
            lane_count=lambda partitions, is_light: (
                1 if is_light else min(self.most_lanes, partitions)
            ),
            lease_s=lease_s,
            first_change_s=lease_s,
            start=Starts(otherwise=TopicStart(text="earliest", rest=EARLIEST)),
            once=once,
            clean=clean,
            clock=self.clock,
            **more,
        )

    # -- the host

    def start_lease(self, lanes: int) -> tuple[int, JobStub]:
        self.jobs.append(JobStub())
        return len(self.jobs), self.jobs[-1]

    def has_begun(self, *plans: PartitionPlan) -> None:
        """Add a row of each partition to the offset map, so that its copy counts as begun."""
        rows = (
            ChunkRow(
                key=one.map_key,
                term=Term(1, -1),
                chunk=0,
                topic=one.source.topic,
                runs=(Run(0, 0, 0),),
            )
            for one in plans
        )
        self.maps = Maps(fold(rows), {}, 1)

    def read_map(
        self, then: Callable[[Maps], None], otherwise: Callable[[TwinlogError], None]
    ) -> None:
        if self.reads_map:
            then(self.maps)
        else:
            self.map_readings.append(then)
            self.map_failures.append(otherwise)

    # -- actions of a test

    def pass_time(self, seconds: float) -> None:
        """Move the clock second by second, and call the run's `tick` after each second. Lanes that
        are not frozen send a sign of life each second.
        """
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now = min(self.clock.now + 1, until)
            for stub in self._stubs:
                if not stub.is_frozen:
                    stub.last_heard = self.clock.boot()
            self.run.tick()

    def connect(self, lease: int, number: int, attempt: int = 0) -> LaneStub:
        """Connect a lane of a lease to the driver, and return it."""
        stub = LaneStub(self, LaneIdentity(lease=lease, lane=number, attempt=attempt, pid=1))
        self._stubs.append(stub)
        stub.lane = self.run.on_connected(cast("Peer", stub))
        return stub

    def lanes_of(self, lease: int, count: int = 2) -> list[LaneStub]:
        """Connect all lanes of a lease, and make them ready. Return them."""
        stubs = [self.connect(lease, number) for number in range(count)]
        for stub in stubs:
            stub.ready()
        self.run.tick()
        return stubs

    def placement(self, tp: TopicPartition) -> Placement:
        return self.run.partitions[tp].placement

    def is_stopping(self) -> bool:
        return self.run.is_stopping

    def partition(self, number: int, topic: str = "orders") -> Partition:
        return self.run.partitions[TopicPartition(topic, number)]
