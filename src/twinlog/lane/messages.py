"""Everything that passes between the driver and a lane, in one place: frozen, plain, JSON-able.

Which lane of which lease speaks is said by the channel's own first frame
(`channel.frames.LaneIdentity`), which also keeps the signs of life.

    lane                          driver
     |  <- Work --------------------|   clusters, rules, topics (secrets travel here and in Renewed)
     |  -- Ready ------------------>|   connections to both clusters are open
     |  <- Take --------------------|   start these partitions: cold (look first) or handed over
     |  -- Progress --------------->|   once a second, and it is the lane's sign of life
     |  <- Pace --------------------|   once a second, with a byte budget: this lane's share
     |  <- Renewed -----------------|   key files have changed: what new connections use
     |  <- KnownProducers ----------|   producer ids of other flows, when there are more
     |  <- Release -----------------|   drain these partitions
     |  -- Released --------------->|   where each one ended: the next lane continues with it
     |  -- Troubled --------------->|   a partition stopped by itself: code, fate, where it was
     |  <- EndLane -----------------|   drain everything, send Released, end
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What all partitions of a lane have in common."""

    flow: str
    source: ClusterSettings
    target: ClusterSettings
    producer_id: int
    is_ours_alone: bool
    isolation: Isolation
    producer_expiry_ms: int | None
    known_producers: tuple[int, ...]
    """Every id that a flow of ours was ever given on this target."""
    map_topic: str
    map_topic_id: TopicId
    """Rows go to this topic and to no other of its name: another lacks what is known."""
    map_partitions: int
    source_topics: tuple[str, ...]
    """Topics whose leaders are worth knowing before the first Take."""
    target_topics: tuple[str, ...]
    memory_bytes: int
    accept_source_loss: bool
    has_budget: bool
    """Nothing is fetched but what Pace allows."""
    tuning: Tuning
    silence_ms: int
    """A lane that has heard nothing from the driver for so long stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakePartition(Pairing):
    """One partition to copy; `handed` comes from a Released, without it the lane looks itself."""

    term: Term
    limit_bytes: int
    """The target's max.message.bytes for this topic."""
    stamps_own_time: bool | None
    """The target topic says LogAppendTime; None when its configs may not be read."""
    is_picky: bool
    """It may refuse single records for another reason: compaction, limits of timestamps."""
    start: StartAt
    """Used once, when there is no row."""
    group_at: int
    """Where the source's consumer group stands, which counts instead; -1: nowhere."""
    began_at: int
    """Where the copy began in a target topic that was deleted since; -1 when there was none."""
    former: tuple[int, ...]
    """Target partitions that a source topic of this name was copied to which was deleted since."""
    is_another: bool
    """This partition was copied to this target topic before, from such a topic."""
    had_row: bool
    """A row of this very copy was in the offset map: without one it is not new, it lost it."""
    end: int
    """First upstream offset not to be copied; 2^63-1 for ever."""
    runs: tuple[Run, ...]
    """The first run, and those that a start needs: all behind `runs_from`."""
    runs_from: int
    """The map is known from this ordinal on; -1: all of it."""
    open_from: int
    """The first ordinal of its newest chunk, which a new term repeats; -1: there is none."""
    mark: Mark | None
    fingerprints: dict[int, int]
    our_producers: tuple[int, ...]
    """Producer ids under which earlier generations of this flow wrote this partition."""
    acked_ordinal: int
    acked_epoch: int
    lost: tuple[int, int] | None = None
    """Copied upstream offsets that the source was found to have lost, in this generation."""
    handed: HandOver | None = None
    fan: Fan | None = None
    """It goes to several target partitions; what is said above of one is then left out."""
    compresses: bool = False
    """The target recompresses, and may refuse what is too large then."""
    skips: tuple[Skip, ...] = ()
    """Upstream records that are left out since somebody wants it."""
    accepted: tuple[Accepted, ...] = ()
    """Records of somebody else in the target's log that stay there."""
    late_requests_ms: int = 0
    """If the target does not surely remember our producer id, wait so long from now and look again:
    requests of a dead lane or connection may still arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FanBranch:
    """What the map says of one branch."""

    target: TopicPartition
    runs: tuple[Run, ...]
    mark: Mark | None
    our_producers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fan:
    """A source partition that goes to several target partitions by key (`mirror.copy.fan_out`)."""

    producer_id: int
    """No other source partition writes under it."""
    branches: tuple[FanBranch, ...]
    """By target partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """A partition at rest: everything sent was answered, and where it resumes."""

    start: StartPoint
    chunk: int
    runs: tuple[Run, ...]
    """Runs of the open chunk."""
    durable_ordinal: int
    map_epoch: int = -1
    """Under which leader of the map's partition they are durable; -1: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Start these partitions."""

    partitions: tuple[TakePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much of each topic this lane may fetch until the next Pace; of others nothing."""

    bytes_per_second: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Drain these partitions and say where they ended."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLane:
    """Release everything, then end the lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The lane is connected to both clusters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """What Work said of security, as the driver's key files have it now (secrets, too)."""

    source: SecuritySettings | None
    target: SecuritySettings | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProducers:
    """What Work said of producer ids, as it is now: another flow has begun to write there."""

    producers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedPartition:
    """One partition at rest; without `handed` it was never started."""

    source: TopicPartition
    term: Term
    handed: HandOver | None
    done: bool
    """Everything below its end was copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """These partitions are not ours any more."""

    partitions: tuple[ReleasedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubled:
    """A partition stopped by itself and needs a new Take."""

    source: TopicPartition
    code: str
    message: str
    is_retriable: bool
    wait_ms: int
    """How long requests of ours may still be on their way to an unprotected partition."""
    lost: tuple[int, int] | None = None
    """Copied upstream offsets that the source lost."""
    poison: tuple[int, int] | None = None
    """[first, next) of the upstream offsets that it is about, where that is known exactly."""
    finding: LogFinding | None = None
    """Of what people have to decide: the driver words it."""

    def worded(self, flow: str, *, is_shared: bool) -> Troubled:
        """With the flow in its commands, which fit the kind of its topic."""
        if self.finding is None:
            return self
        return replace(self, message=self.finding.worded(flow, is_shared=is_shared))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Upstream offsets that the source does not have though its topic is not compacted."""

    first: int
    next: int
    """The first one behind the gap."""
    offsets: int
    """How many are missing: fewer than `next - first` when these are several gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far one partition is; totals count since the Take."""

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
    """The source's broker answers: `source_end` is the end of now."""
    waits_for_map: bool = False
    """It does nothing more before a row is in the offset map."""
    batches: int = 0
    """Read and not left out."""
    recoded: int = 0
    """Of those, how many were decoded, or packed with another codec."""
    age: Timings = NO_TIMINGS
    """Of the batches read since the last report."""
    latency: Timings = NO_TIMINGS
    """Of the batches acknowledged since the last report."""
    gap: Gap | None = None
    """Found since the last report."""
    has_row: bool = False
    """Its first row is in the offset map."""
    map_epoch: int = -1
    """Under which leader of the map's partition its rows surely are there; -1: not known."""
    lost: tuple[tuple[int, int], ...] = ()
    """[first, next) of upstream offsets that the source deleted before they were copied, and that
    were passed over since that is accepted, since the last report."""
    left_out: tuple[tuple[int, int], ...] = ()
    """[first, next) of upstream records that were skipped, as is wanted, since the last report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """Why a cluster cannot be reached."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


def away(error: TwinlogError) -> Away:
    """As a message has it."""
    return Away(code=error.code, message=error.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """For how many ms the brokers of each side read nothing more of a lane, by their quotas."""

    source_ms: int = 0
    target_ms: int = 0

    @property
    def longest_ms(self) -> int:
        return max(self.source_ms, self.target_ms)


NO_THROTTLE: Final = Throttle()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a lane did; partitions that did not change since the last one are left out."""

    partitions: tuple[PartitionProgress, ...]
    degraded: Away | None
    """None: both clusters are reached."""
    throttle: Throttle = NO_THROTTLE
    cpu_ms: int = 0
    """What the lane has used since the last report."""


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
"""All classes that travel by themselves."""
