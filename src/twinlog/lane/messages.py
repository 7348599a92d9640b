"""All messages between the driver and a lane: frozen, plain, JSON-serializable classes.

The channel's first frame (`channel.frames.LaneIdentity`) states which lane of which lease is
speaking. The channel also sends the signs of life.

    lane                          driver
     |  <- Work --------------------|   clusters, rules, topics (contains secrets, as does Renewed)
     |  -- Ready ------------------>|   connections to both clusters are open
     |  <- Take --------------------|   start these partitions: cold (after a search) or handed over
     |  -- Progress --------------->|   once a second; it is the lane's sign of life
     |  <- Pace --------------------|   once a second with a byte budget: this lane's share
     |  <- Renewed -----------------|   changed key files: security settings for new connections
     |  <- KnownProducers ----------|   producer IDs of other flows, when there are more
     |  <- Release -----------------|   drain these partitions
     |  -- Released --------------->|   where each partition ended: the next lane continues there
     |  -- Troubled --------------->|   a partition stopped by itself: code, fate, position
     |  <- EndLane -----------------|   drain everything, send Released, end
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from twinlog.channel.codec import Message
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.config.flow.tuning import Tuning
from twinlog.errors import TwinlogError
from twinlog.mirror.accepted import Accepted
from twinlog.mirror.copy.timings import NO_TIMINGS, Timings
from twinlog.mirror.findings import LogFinding
from twinlog.mirror.map.offset_map import Mark, Run, Term
from twinlog.mirror.plan import Pairing
from twinlog.mirror.skips import Skip
from twinlog.mirror.start_point import StartPoint
from twinlog.model import Isolation, StartAt, TopicId, TopicPartition


class Work(Message, frozen=True, kw_only=True):
    """The common settings of all partitions of a lane."""

    flow: str
    source: ClusterSettings
    target: ClusterSettings
    producer_id: int
    is_ours_alone: bool
    isolation: Isolation
    producer_expiry_ms: int | None
    known_producers: tuple[int, ...]
    """Every producer ID that a Twinlog flow was ever given on this target."""
    map_topic: str
    map_topic_id: TopicId
    """ID of the map topic. Rows are not written to another topic of the same name, which lacks
    earlier rows.
    """
    map_partitions: int
    source_topics: tuple[str, ...]
    """Topics whose leaders should be known before the first Take."""
    target_topics: tuple[str, ...]
    memory_bytes: int
    accept_source_loss: bool
    has_budget: bool
    """Whether fetches are limited to what Pace allows."""
    tuning: Tuning
    silence_ms: int
    """A lane that receives nothing from the driver for this long stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakePartition(Pairing):
    """One partition to copy. `handed` comes from a Released; without it the lane searches the start
    point.
    """

    term: Term
    limit_bytes: int
    """The target's max.message.bytes for this topic."""
    stamps_own_time: bool | None
    """Whether the target topic has LogAppendTime; None if its configs may not be read."""
    is_picky: bool
    """Whether it may reject single records for another reason than size: compaction, timestamp
    limits.
    """
    start: StartAt
    """Used once, if there is no row."""
    group_at: int
    """Offset of the source's consumer group, which replaces `start`; -1: none."""
    began_at: int
    """Where the copy began in a target topic that was since deleted; -1: none."""
    former: tuple[int, ...]
    """Target partitions to which a former source topic of this name was copied, which was since
    deleted.
    """
    is_another: bool
    """Whether this partition was copied to this target topic before, from such a former topic."""
    had_row: bool
    """Whether the offset map had a row of this copy: if there is none now, it was lost."""
    end: int
    """First upstream offset that is not copied; 2^63-1: no end."""
    runs: tuple[Run, ...]
    """The first run, and all runs after `runs_from`, which a start needs."""
    runs_from: int
    """The runs are complete from this ordinal on; -1: from the first."""
    open_from: int
    """First ordinal of the map's newest chunk, which a new term repeats; -1: there is none."""
    mark: Mark | None
    fingerprints: dict[int, int]
    our_producers: tuple[int, ...]
    """Producer IDs under which earlier generations of this flow wrote this partition."""
    acked_ordinal: int
    acked_epoch: int
    lost: tuple[int, int] | None = None
    """Copied upstream offsets that the source was found to have lost, in this generation."""
    handed: HandOver | None = None
    fan: Fan | None = None
    """Set if it is copied to several target partitions. The fields above for a single one are then
    unused.
    """
    compresses: bool = False
    """Whether the target recompresses, and may then reject batches as too large."""
    skips: tuple[Skip, ...] = ()
    """Upstream records to skip, as configured by the operator."""
    accepted: tuple[Accepted, ...] = ()
    """Foreign records in the target's log that were accepted and stay there."""
    late_requests_ms: int = 0
    """If the target does not certainly remember this producer ID, wait this long from now and
    search again: requests of a dead lane or connection may still arrive.
    """


class FanBranch(Struct, frozen=True, kw_only=True):
    """The map of one branch."""

    target: TopicPartition
    runs: tuple[Run, ...]
    mark: Mark | None
    our_producers: tuple[int, ...]


class Fan(Struct, frozen=True, kw_only=True):
    """A source partition that is copied to several target partitions by key
    (`mirror.copy.fan_out`).
    """

    producer_id: int
    """Used by this source partition only."""
    branches: tuple[FanBranch, ...]
    """Branches, by target partition."""


class HandOver(Struct, frozen=True, kw_only=True):
    """A drained partition and its resume point. Every request was answered."""

    start: StartPoint
    chunk: int
    runs: tuple[Run, ...]
    """Runs of the open chunk."""
    durable_ordinal: int
    map_epoch: int = -1
    """Leader epoch of the map's partition under which they are durable; -1: unknown."""


class Take(Message, frozen=True, kw_only=True):
    """Start these partitions."""

    partitions: tuple[TakePartition, ...]


class Pace(Message, frozen=True, kw_only=True):
    """Maximum fetch rate per topic until the next Pace. Topics that are not listed fetch
    nothing.
    """

    bytes_per_second: dict[str, int]


class Release(Message, frozen=True, kw_only=True):
    """Drain these partitions and report where they ended."""

    partitions: tuple[TopicPartition, ...]


class EndLane(Message, frozen=True, kw_only=True):
    """Release everything, then end the lane."""


class Ready(Message, frozen=True, kw_only=True):
    """The lane is connected to both clusters."""


class Renewed(Message, frozen=True, kw_only=True):
    """The current security settings from the driver's key files, which replace those in Work
    (contains secrets).
    """

    source: SecuritySettings | None
    target: SecuritySettings | None


class KnownProducers(Message, frozen=True, kw_only=True):
    """The current producer IDs, which replace those in Work: another flow has begun to
    write there.
    """

    producers: tuple[int, ...]


class ReleasedPartition(Struct, frozen=True, kw_only=True):
    """One drained partition. Without `handed` it was never started."""

    source: TopicPartition
    term: Term
    handed: HandOver | None
    done: bool
    """Whether everything below its end was copied."""


class Released(Message, frozen=True, kw_only=True):
    """These partitions have left the lane."""

    partitions: tuple[ReleasedPartition, ...]


class Troubled(Message, frozen=True, kw_only=True):
    """A partition stopped by itself and needs a new Take."""

    source: TopicPartition
    code: str
    message: str
    is_retriable: bool
    wait_ms: int
    """How long requests of this lane may still reach an unprotected partition."""
    lost: tuple[int, int] | None = None
    """Copied upstream offsets that the source lost."""
    poison: tuple[int, int] | None = None
    """[first, next) of the upstream offsets in question, if known exactly."""
    finding: LogFinding | None = None
    """A finding on which people must decide. The driver words it."""

    def worded(self, flow: str, *, is_shared: bool) -> Troubled:
        """Return the message with the flow in its commands, suitable for the kind of topic."""
        if self.finding is None:
            return self
        return replace(self, message=self.finding.worded(flow, is_shared=is_shared))


class Gap(Struct, frozen=True, kw_only=True):
    """Upstream offsets missing at the source although its topic is not compacted."""

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
    downstream: int
    source_end: int
    """High watermark, or last stable offset under read_committed."""
    log_start: int
    records: int
    bytes: int
    last_timestamp: int
    is_protected: bool
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
    has_row: bool = False
    """Whether its first row is in the offset map."""
    map_epoch: int = -1
    """Leader epoch of the map's partition under which its rows certainly exist; -1: unknown."""
    lost: tuple[tuple[int, int], ...] = ()
    """[first, next) of upstream offsets that the source deleted before they were copied and that
    were skipped because that is accepted, since the last report.
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
    """For how many ms the brokers of each side read nothing more from a lane, because of quotas."""

    source_ms: int = 0
    target_ms: int = 0

    @property
    def longest_ms(self) -> int:
        return max(self.source_ms, self.target_ms)


NO_THROTTLE: Final = Throttle()


class LaneLoad(Struct, frozen=True, kw_only=True):
    """The records in a lane's memory, and its traffic since the last report."""

    waiting_records: int = 0
    """Records that were read and are not acknowledged."""
    free_bytes: int = 0
    """Memory for records that is not in use."""
    received_bytes: int = 0
    """Bytes received from the source's brokers."""
    sent_bytes: int = 0
    """Bytes sent to the target's brokers."""


NO_LOAD: Final = LaneLoad()


class Progress(Message, frozen=True, kw_only=True):
    """Progress of a lane. Partitions that did not change since the last report are left out."""

    partitions: tuple[PartitionProgress, ...]
    degraded: Away | None
    """None: both clusters are reachable."""
    throttle: Throttle = NO_THROTTLE
    cpu_ms: int = 0
    """CPU time used since the last report."""
    load: LaneLoad | None = None
    """None in a report between two regular ones."""


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
