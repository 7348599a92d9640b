"""All messages between the driver and a lane: frozen, plain, JSON-serializable classes.

The channel's first frame (`channel.frames.LaneIdentity`) identifies the lane and its lease. The
channel also sends the signs of life.

    lane                          driver
     |  <- Work --------------------|   clusters, rules, topics (contains secrets, as does Renewed)
     |  -- Ready ------------------>|   connections to both clusters are open (has a ticket)
     |  <- Take --------------------|   start these partitions: cold (after a search) or handed over
     |  -- Progress --------------->|   once a second; it is the lane's sign of life
     |  <- Pace --------------------|   once a second with a byte budget: this lane's share
     |  <- Renewed -----------------|   changed key files: security settings for new connections
     |  <- KnownProducers ----------|   producer IDs of other flows, when there are new ones
     |  <- Release -----------------|   drain these partitions
     |  -- Released --------------->|   where each partition ended: the next lane continues there
     |  -- Troubled --------------->|   a partition has failed: code, fate, position
     |  <- EndLane -----------------|   drain everything, send Released, end
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from twinlog.channel.codec import Message
from twinlog.channel.frames import ChannelAddress
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.config.flow.tuning import Tuning
from twinlog.errors import TwinlogError
from twinlog.mirror.copy.timings import NO_TIMINGS, Timings
from twinlog.mirror.findings import LogFinding
from twinlog.mirror.map.offset_map import Mark, Run, Term
from twinlog.mirror.start.request import StartFacts
from twinlog.mirror.start_point import StartPoint
from twinlog.model import Isolation, TopicId, TopicPartition


class Work(Message, frozen=True, kw_only=True):
    """Settings of a lane, which apply to all its partitions."""

    flow: str
    source: ClusterSettings
    target: ClusterSettings
    producer_id: int
    is_ours_alone: bool
    isolation: Isolation
    producer_expiry_ms: int | None
    known_producers: tuple[int, ...]
    """All producer IDs that Twinlog flows have ever used on this target."""
    map_topic: str
    map_topic_id: TopicId
    """ID of the map topic. Rows are not written to another topic of that name, because it lacks the
    earlier rows.
    """
    map_partitions: int
    source_topics: tuple[str, ...]
    """Topics whose leaders the lane finds before it is ready."""
    target_topics: tuple[str, ...]
    memory_bytes: int
    accept_source_loss: bool
    has_budget: bool
    """Whether Pace limits the fetches."""
    tuning: Tuning
    has_transforms: bool = False
    """Whether lanes lend ranges to an application of transforms."""
    dead_letters: str = ""
    """The topic for records on which a transform fails; empty: they are not quarantined."""
    silence_ms: int
    """A lane that receives nothing from the driver for this long stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakePartition(StartFacts):
    """One partition to copy. `handed` comes from a Released. Without it the lane searches the start
    point.
    """

    term: Term
    limit_bytes: int
    """The target's max.message.bytes for this topic."""
    stamps_own_time: bool | None
    """Whether the target topic has LogAppendTime; None if its configs may not be read."""
    is_picky: bool
    """Whether the target topic may reject single records for another reason than size: compaction,
    timestamp limits.
    """
    end: int
    """First upstream offset that is not copied; 2^63-1: the copy never ends."""
    open_from: int
    """First ordinal of the map's newest chunk, which a new term repeats; -1: none."""
    our_producers: tuple[int, ...]
    """Producer IDs under which earlier generations of this flow wrote to this partition."""
    handed: HandOver | None = None
    fan: Fan | None = None
    """The branches, if the records go to several target partitions by key. The fields above for a
    single target partition are then unused.
    """
    compresses: bool = False
    """Whether the target recompresses, and may then reject batches as too large."""
    transform: str = ""
    """Digest of the topic's transforms, in hex; empty: its records are copied unchanged."""
    written_by: str = ""
    """Transform of the map's newest chunk; empty: none."""
    late_requests_ms: int = 0
    """For how long from now requests of a dead lane or connection may still arrive. This matters if
    the target may have forgotten the producer ID (`lane.cold_starts`).
    """


class FanBranch(Struct, frozen=True, kw_only=True):
    """The map of one branch."""

    target: TopicPartition
    runs: tuple[Run, ...]
    mark: Mark | None
    our_producers: tuple[int, ...]


class Fan(Struct, frozen=True, kw_only=True):
    """A source partition that is copied to several target ones by key (`mirror.copy.fan_out`)."""

    producer_id: int
    """The producer ID of this source partition, which no other one uses."""
    branches: tuple[FanBranch, ...]
    """Branches, by target partition."""


class HandOver(Struct, frozen=True, kw_only=True):
    """A drained partition and its resume point. Every request was answered."""

    start: StartPoint
    chunk: int
    runs: tuple[Run, ...]
    """Runs of the open chunk, which the next lane continues."""
    durable_ordinal: int
    map_epoch: int = -1
    """Leader epoch of the map's partition under which these runs are durable; -1: unknown."""
    transform: str = ""
    """Transform of the records of these runs; empty: none. A lane with another one must search."""


class Take(Message, frozen=True, kw_only=True):
    """Start these partitions."""

    partitions: tuple[TakePartition, ...]


class Pace(Message, frozen=True, kw_only=True):
    """Maximum fetch rate per topic until the next Pace. Other topics fetch nothing."""

    bytes_per_second: dict[str, int]


class Release(Message, frozen=True, kw_only=True):
    """Drain these partitions and report where they ended."""

    partitions: tuple[TopicPartition, ...]


class EndLane(Message, frozen=True, kw_only=True):
    """Release everything, then end the lane."""


class Ready(Message, frozen=True, kw_only=True):
    """The lane is connected to both clusters."""

    range_port: ChannelAddress | None = None
    """Where the application of the transforms takes ranges, with the ticket for it (a secret); None
    if the flow has no transforms.
    """


class Renewed(Message, frozen=True, kw_only=True):
    """The current security settings from the driver's key files, which replace those in Work
    (contains secrets).
    """

    source: SecuritySettings | None
    target: SecuritySettings | None


class KnownProducers(Message, frozen=True, kw_only=True):
    """The current producer IDs, which replace those in Work: another flow has begun to write."""

    producers: tuple[int, ...]


class ReleasedPartition(Struct, frozen=True, kw_only=True):
    """One drained partition. Without `handed`, the next lane searches its start point."""

    source: TopicPartition
    term: Term
    handed: HandOver | None
    done: bool
    """Whether everything below its end (`--once`) was copied."""


class Released(Message, frozen=True, kw_only=True):
    """These partitions have left the lane."""

    partitions: tuple[ReleasedPartition, ...]


class Troubled(Message, frozen=True, kw_only=True):
    """A partition has failed and needs a new Take."""

    source: TopicPartition
    code: str
    message: str
    is_retriable: bool
    wait_ms: int
    """For how long requests of this lane may still arrive, if responses were lost."""
    had_begun: bool = False
    """Whether the lane had found where to start, and had begun to copy."""
    lost: tuple[int, int] | None = None
    """Copied upstream offsets that the source lost."""
    poison: tuple[int, int] | None = None
    """[first, next) of the upstream offsets that caused the failure, if they are known exactly."""
    finding: LogFinding | None = None
    """A finding that an operator must decide. The driver, which knows the flow, words it."""

    def worded(self, flow: str, *, is_shared: bool) -> Troubled:
        """Return the message with the wording of its finding, for this flow and kind of topic."""
        if self.finding is None:
            return self
        return replace(self, message=self.finding.worded(flow, is_shared=is_shared))


class Gap(Struct, frozen=True, kw_only=True):
    """Upstream offsets without records, although the topic is not compacted."""

    first: int
    next: int
    """The first offset after the gap."""
    offsets: int
    """Number of missing offsets: fewer than `next - first` for several gaps."""


class PartitionProgress(Struct, frozen=True, kw_only=True):
    """Progress of one partition. Totals count since the Take."""

    source: TopicPartition
    state: str
    ordinal: int
    upstream: int
    """All records below this upstream offset are on the target."""
    downstream: int
    """Target offset after the last record that is on the target."""
    source_end: int
    """End of the source's log: high watermark, or last stable offset under read_committed."""
    records: int
    """Number of records acknowledged since the Take."""
    bytes: int
    last_timestamp: int
    is_protected: bool
    """Whether the target certainly remembers the producer ID (`mirror.copy.partition`)."""
    target_epoch: int
    sees_end: bool = True
    """Whether the source's broker responds, so that `source_end` is current."""
    waits_for_map: bool = False
    """Whether it waits for a row in the offset map."""
    batches: int = 0
    """Batches read and not skipped."""
    recoded: int = 0
    """Batches among them that were decoded, or recompressed with another codec."""
    age: Timings = NO_TIMINGS
    """Ages of the batches read since the last report."""
    latency: Timings = NO_TIMINGS
    """Latencies of the batches acknowledged since the last report."""
    gap: Gap | None = None
    """A gap found since the last report."""
    map_epoch: int = -1
    """Leader epoch of the map's partition under which the copy's rows certainly exist, or -1."""
    lost: tuple[tuple[int, int], ...] = ()
    """[first, next) of upstream offsets that the source deleted before they were copied, since the
    last report. They were skipped because the operator accepts that (`twinlog.source.loss`).
    """
    left_out: tuple[tuple[int, int], ...] = ()
    """[first, next) of upstream records that were skipped as configured, since the last report."""


class Away(Struct, frozen=True, kw_only=True):
    """Why a cluster cannot be reached."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


def away(error: TwinlogError) -> Away:
    """Return the error as a message field."""
    return Away(code=error.code, message=error.message)


class Throttle(Struct, frozen=True, kw_only=True):
    """Duration in ms, per cluster, for which brokers do not read from the lane's connections
    because of quotas.
    """

    source_ms: int = 0
    target_ms: int = 0

    @property
    def longest_ms(self) -> int:
        return max(self.source_ms, self.target_ms)


NO_THROTTLE: Final = Throttle()


class LaneLoad(Struct, frozen=True, kw_only=True):
    """The records in a lane's memory, and its traffic since the last report."""

    waiting_records: int = 0
    """Number of records that were read and are not acknowledged."""
    free_bytes: int = 0
    """Memory for records that is not in use."""
    received_bytes: int = 0
    """Bytes received from the source's brokers."""
    sent_bytes: int = 0
    """Bytes sent to the target's brokers."""


NO_LOAD: Final = LaneLoad()


class Progress(Message, frozen=True, kw_only=True):
    """Progress of a lane's partitions, without those that did not change since the last report."""

    partitions: tuple[PartitionProgress, ...]
    degraded: Away | None
    """Why a cluster cannot be reached, or None if both can."""
    throttle: Throttle = NO_THROTTLE
    cpu_ms: int = 0
    """CPU time used since the last report."""
    load: LaneLoad | None = None
    """The load, except in a report that a partition's release caused between two regular ones."""


MESSAGES = (
    Work,
    Take,
    Pace,
    Renewed,
    KnownProducers,
    Release,
    EndLane,
    Ready,
    Released,
    Troubled,
    Progress,
)
"""All classes that are sent as messages."""
