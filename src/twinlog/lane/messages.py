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
    """All producer IDs under which Twinlog flows have ever written to this target."""
    map_topic: str
    map_topic_id: TopicId
    """ID of the map topic. Rows are not written to a re-created topic of the same name, because
    that topic lacks the earlier rows.
    """
    map_partitions: int
    source_topics: tuple[str, ...]
    """Source topics whose leaders the lane finds, and connects to, before it sends Ready."""
    target_topics: tuple[str, ...]
    memory_bytes: int
    accept_source_loss: bool
    has_budget: bool
    """True if Pace messages limit the bytes that the lane fetches. It fetches nothing before the
    first one.
    """
    tuning: Tuning
    has_transforms: bool = False
    """True if the flow has transforms, so that lanes lend ranges to their application."""
    dead_letters: str = ""
    """Topic for records on which a transform fails, or empty if they are not quarantined."""
    silence_ms: int
    """Time in ms without any data from the driver after which the lane stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakePartition(StartFacts):
    """One partition to copy. The lane searches for the start point unless `handed` contains it."""

    term: Term
    limit_bytes: int
    """The target's max.message.bytes for this topic."""
    has_log_append_time: bool | None
    """True if the target topic has LogAppendTime, or None if reading its configs is denied."""
    may_reject_records: bool
    """True if the target topic may reject single records for a reason other than their size, that
    is, because of compaction or timestamp limits.
    """
    end: int
    """First upstream offset that is not copied, or 2^63-1 if the copy never ends."""
    open_from: int
    """First ordinal of the newest chunk of the offset map, which the new term repeats
    (`offset_map`, rule C). -1 if no chunk is to be repeated.
    """
    our_producers: tuple[int, ...]
    """Producer IDs under which earlier generations of this flow wrote to this partition."""
    handed: HandOver | None = None
    fan: Fan | None = None
    """The target partitions, if records are distributed by key over several of them, else None. If
    set, the fields above that describe a single target partition are not used.
    """
    compresses: bool = False
    """True if the target recompresses batches, so that it may reject them as too large."""
    transform: str = ""
    """Digest of the topic's transforms in hex, or empty if its records are copied unchanged."""
    written_by: str = ""
    """Digest of the transforms of the newest chunk of the offset map, or empty if its records were
    copied unchanged.
    """
    late_requests_ms: int = 0
    """Time in ms from the arrival of this message, during which requests of an earlier lane or
    connection may still arrive at the target; 0 if none can. It matters if the target may have
    forgotten the producer ID (`lane.cold_starts`).
    """


class FanBranch(Struct, frozen=True, kw_only=True):
    """One target partition of a source partition whose records are distributed by key over several
    (`Fan`), and the runs and mark of that copy in the offset map.
    """

    target: TopicPartition
    runs: tuple[Run, ...]
    mark: Mark | None
    our_producers: tuple[int, ...]


class Fan(Struct, frozen=True, kw_only=True):
    """A source partition copied to several target partitions by key (`mirror.copy.fan_out`)."""

    producer_id: int
    """The producer ID for this source partition. No other source partition uses it."""
    branches: tuple[FanBranch, ...]
    """The branches, one per target partition."""


class HandOver(Struct, frozen=True, kw_only=True):
    """The resume point of a drained partition, all of whose requests were answered."""

    start: StartPoint
    chunk: int
    runs: tuple[Run, ...]
    """Runs of the last chunk of the offset map, to which the next lane adds runs."""
    durable_ordinal: int
    map_epoch: int = -1
    """Leader epoch of the map's partition under which `runs` are durable, or -1 if unknown."""
    transform: str = ""
    """Digest of the transforms that made the records of `runs`, or empty if they were copied
    unchanged. If the next Take has another digest, the start point must be searched.
    """


class Take(Message, frozen=True, kw_only=True):
    """The driver's command to start copying these partitions."""

    partitions: tuple[TakePartition, ...]


class Pace(Message, frozen=True, kw_only=True):
    """Maximum bytes per second to fetch, by topic, until the next Pace. Topics without a rate fetch
    nothing.
    """

    bytes_per_second: dict[str, int]


class Release(Message, frozen=True, kw_only=True):
    """The driver's command to drain these partitions, and to report where each of them resumes."""

    partitions: tuple[TopicPartition, ...]


class EndLane(Message, frozen=True, kw_only=True):
    """The driver's command to release all partitions of the lane, and then to end the lane."""


class Ready(Message, frozen=True, kw_only=True):
    """The lane is connected to both clusters."""

    range_port: ChannelAddress | None = None
    """Address at which the application of the transforms gets ranges, with a ticket (a secret), or
    None if the flow has no transforms.
    """


class Renewed(Message, frozen=True, kw_only=True):
    """The current security settings from the driver's key files, which replace those in Work
    (contains secrets).
    """

    source: SecuritySettings | None
    target: SecuritySettings | None


class KnownProducers(Message, frozen=True, kw_only=True):
    """The current producer IDs of all Twinlog flows, which replace `Work.known_producers`. The
    message is sent after another flow has begun to write.
    """

    producers: tuple[int, ...]


class ReleasedPartition(Struct, frozen=True, kw_only=True):
    """One drained partition. If `handed` is None, the next lane searches for the start point."""

    source: TopicPartition
    term: Term
    handed: HandOver | None
    done: bool
    """True if all records below the partition's `end` (`--once`) were copied."""


class Released(Message, frozen=True, kw_only=True):
    """These partitions have left the lane."""

    partitions: tuple[ReleasedPartition, ...]


class Troubled(Message, frozen=True, kw_only=True):
    """A partition has failed and left the lane. Only a new Take can start it again."""

    source: TopicPartition
    code: str
    message: str
    is_retriable: bool
    wait_ms: int
    """Time in ms during which requests of this partition that got no response may still arrive at
    the target; 0 if none can.
    """
    had_begun: bool = False
    """True if the lane had found the start point and had begun to copy."""
    lost: tuple[int, int] | None = None
    """[first, next) of the copied upstream offsets that the source has lost, or None."""
    poison: tuple[int, int] | None = None
    """[first, next) of the upstream offsets that caused the failure, or None if unknown."""
    finding: LogFinding | None = None
    """The problem, if an operator must decide what to do, else None. The driver turns it into a
    message that names the flow.
    """

    def worded(self, flow: str, *, is_shared: bool) -> Troubled:
        """Return this message with the text of its finding for this flow. Return it unchanged if it
        has no finding. `is_shared`: the remote topics keep the names of the source topics.
        """
        if self.finding is None:
            return self
        return replace(self, message=self.finding.worded(flow, is_shared=is_shared))


class Gap(Struct, frozen=True, kw_only=True):
    """A range of upstream offsets that has no records although the topic is not compacted."""

    first: int
    next: int
    """The first offset after the gap."""
    offsets: int
    """Number of missing offsets: less than `next - first` if several gaps were merged."""


class PartitionProgress(Struct, frozen=True, kw_only=True):
    """Progress of one partition. Totals are counted from the message Take on."""

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
    """Timestamp (ms) of the last copied source record, or of the next record in a transformed
    partition of which no record was decided since the Take. 0 or -1 if unknown.
    """
    is_protected: bool
    """True if the target certainly remembers the producer ID (`mirror.copy.partition`)."""
    target_epoch: int
    sees_end: bool = True
    """True if the broker from which the partition is read responds, so that `source_end` is
    current.
    """
    waits_for_map: bool = False
    """True if batches cannot be sent until a row of the offset map is written."""
    batches: int = 0
    """Number of batches that were read from the source and not skipped."""
    recoded: int = 0
    """Number of `batches` that were decoded, or recompressed with another codec."""
    age: Timings = NO_TIMINGS
    """Ages of the batches that were read since the last report."""
    latency: Timings = NO_TIMINGS
    """Latencies of the batches that were acknowledged since the last report."""
    gap: Gap | None = None
    """Missing source offsets that were found since the last report, or None."""
    map_epoch: int = -1
    """Leader epoch of the map's partition under which the copy's rows exist, or -1 if unknown."""
    lost: tuple[tuple[int, int], ...] = ()
    """Since the last report: [first, next) of upstream offsets that the source deleted before they
    were copied. They were skipped, because the operator accepts that (`twinlog.source.loss`).
    """
    left_out: tuple[tuple[int, int], ...] = ()
    """Since the last report: [first, next) of upstream records that were skipped as configured."""


class UnreachableCluster(Struct, frozen=True, kw_only=True):
    """The reason why a cluster cannot be reached."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class Throttle(Struct, frozen=True, kw_only=True):
    """Time in ms for which each cluster's brokers do not read from the lane because of quotas."""

    source_ms: int = 0
    target_ms: int = 0

    @property
    def longest_ms(self) -> int:
        return max(self.source_ms, self.target_ms)


NO_THROTTLE: Final = Throttle()


class LaneLoad(Struct, frozen=True, kw_only=True):
    """A lane's load: the records in its memory, and its traffic since the last report."""

    waiting_records: int = 0
    """Number of records that were read and are not yet acknowledged by the target."""
    free_bytes: int = 0
    """Bytes of the lane's memory for records that are not used."""
    received_bytes: int = 0
    """Bytes received from the source's brokers."""
    sent_bytes: int = 0
    """Bytes sent to the target's brokers."""


NO_LOAD: Final = LaneLoad()


class Progress(Message, frozen=True, kw_only=True):
    """Progress of the lane's partitions that have changed since the last report."""

    partitions: tuple[PartitionProgress, ...]
    unreachable: UnreachableCluster | None
    """Why a cluster cannot be reached, or None if both can."""
    throttle: Throttle = NO_THROTTLE
    cpu_ms: int = 0
    """CPU time in ms that the lane has used since the last report."""
    load: LaneLoad | None = None
    """The lane's load, or None in an extra report for a partition that leaves the lane."""


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
