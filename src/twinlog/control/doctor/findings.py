"""Derives findings from the data of one flow and its two clusters, the most likely finding first.
The data is collected beforehand, within a few seconds, so no query is sent here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from shlex import quote
from typing import Any, Final

from twinlog.cluster.net.round_trip import FAR_S
from twinlog.cluster.topics.quotas import CONSUMER, PRODUCER, REQUESTS, Quota
from twinlog.codes import FlowState, PartitionState, conditions, without_markdown
from twinlog.config.flow.tuning import Tuning
from twinlog.control.watch.snapshot import FlowStatus, PartitionStatus
from twinlog.lane.sides.sections import MOST_SECTIONS
from twinlog.model import TopicPartition
from twinlog.quantities import count, duration, first_few, largest, plural, size, total

# A finding is one reason why a flow is slow or has stopped, with its remedy.


class Likelihood(IntEnum):
    """How certain it is that a finding holds the flow back. Findings are sorted by it."""

    CERTAIN = 1
    """The flow or a partition was observed to be stopped, or to be about to lose records."""
    LIKELY = 2
    """A measurement indicates that the finding slows the flow."""
    POSSIBLE = 3
    """The finding slows the flow by an unknown amount, possibly by none."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, printed as two lines: the observation with its numbers, and the remedy."""

    FIELDS = "likelihood=likelihood.name.lower cause what todo"

    likelihood: Likelihood
    cause: str
    """A stable identifier for programs, such as `quota`."""
    what: str
    todo: str
    """The remedy, such as a configuration key to change, or a command to run."""


SLOW_MS: Final = 10_000
"""Lag in milliseconds up to which a copy is not regarded as slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The current state of one cluster, as queried from this host."""

    alias: str
    problem: str = ""
    """Why the cluster does not respond. Empty if it does; else the other fields are empty."""
    round_trips_ms: Mapping[int, float] = field(default_factory=dict)
    """Round-trip time of a small request in milliseconds, by broker ID."""
    leaderless: tuple[TopicPartition, ...] = ()
    """Partitions that the flow reads or writes and that have no leader."""
    under_min_isr: tuple[TopicPartition, ...] = ()
    quotas: tuple[Quota, ...] | None = ()
    """Quotas that may apply to the flow's clients. None if this user must not query quotas, or the
    brokers are too old.
    """

    @property
    def round_trip_ms(self) -> float | None:
        """Round-trip time of the cluster's slowest broker, or None if no broker was measured."""
        return max(self.round_trips_ms.values(), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The flow's rate limit, from the configuration or set by a user."""

    bytes_per_second: int
    who: str
    """The user who set the limit, or the configuration key."""
    is_key: bool


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The current data of one flow, from which findings are derived."""

    snapshot: FlowStatus
    file: str
    """Path of the configuration file, as the user typed it."""
    source: ClusterView
    target: ClusterView
    pause: str = ""
    """Text with the user who paused the whole flow, and the reason. Empty if it is not paused."""
    limit: Limit | None = None
    tuning: Tuning = field(default_factory=Tuning)
    tasks_max: int | None = None
    cores: int | None = None
    """Number of cores of this host. None if the flow's process runs on another host."""
    silent_ms: int = 0
    """Milliseconds by which the next report of the flow's live process is overdue. 0 if the report
    is not overdue, or if there is no such process on this host.
    """
    rates: Mapping[TopicPartition, float] | None = None
    """Bytes per second that are copied of each partition, measured now; None if not measured."""
    reported_rate: float | None = None
    """Bytes per second of the whole flow, as reported by a leader on another host; else None."""
    why_decoded: Mapping[str, str] = field(default_factory=dict)
    """The config that requires decoding of batches, by source topic with a lag."""
    notes: tuple[str, ...] = ()
    """A line for each failed query, with its error."""

    @property
    def flow(self) -> str:
        return self.snapshot.flow

    @cached_property
    def lagging(self) -> tuple[PartitionStatus, ...]:
        """Partitions with a lag, except those that an open transaction holds back."""
        parts = self.snapshot.partitions
        return tuple(part for part in parts if part.lag and not part.is_held_back)

    @cached_property
    def lag(self) -> int:
        """Number of records not copied yet, summed over the partitions with a known lag."""
        return total(partition.lag for partition in self.lagging) or 0

    @cached_property
    def lag_ms(self) -> int:
        return largest(partition.lag_ms for partition in self.lagging) or 0

    @cached_property
    def batches(self) -> tuple[int, int]:
        """Return (read, recoded), summed over the lagging partitions: the batches that lanes have
        read, and the batches among them that lanes have decoded or repacked.
        """
        return sum(partition.batches for partition in self.lagging), sum(
            partition.recoded for partition in self.lagging
        )

    @property
    def is_slow(self) -> bool:
        """True if a record has waited for more than SLOW_MS to be copied."""
        return self.lag_ms > SLOW_MS

    @property
    def round_trips(self) -> str:
        """The known round-trip times of both clusters as text, or empty if none is known."""
        return ", ".join(
            f"{cluster.alias} {cluster.round_trip_ms:.1f} ms"
            for cluster in (self.source, self.target)
            if cluster.round_trip_ms is not None
        )

    @property
    def rate(self) -> float | None:
        """Bytes per second that the whole flow copies, or None if unknown."""
        return self.reported_rate if self.rates is None else sum(self.rates.values())

    def command(self, words: str) -> str:
        """Return a command line for this flow. `words`: the command, such as `flow resume`."""
        return f"twinlog {words} {quote(self.file)} --flow '{self.flow}'"


# Causes that slow a running flow: rate limits, quotas, one large partition, few lanes, long round
# trips, and batches that are decoded.

MOST_OF_IT: Final = 0.8
"""Share of the flow's lag above which a single partition is reported as the bottleneck."""

NEAR: Final = 0.5
"""If the rate is at least this share of a limit, the flow would probably be faster without it."""

MUCH: Final = 0.2
"""Share of decoded or recompressed batches above which they cost more than all other batches."""

FAR_MS: Final = 50.0
"""Minimum round trip in ms of clusters that are reported as far. Round trips within one region are
far shorter.
"""


def limited(observation: Observation) -> Iterator[Finding]:
    """Report that the flow is limited by `twinlog.max.bytes.per.second` or a user's limit."""
    limit = observation.limit
    is_throttled = observation.snapshot.state is FlowState.THROTTLED
    if limit is None:
        return
    is_near = observation.rate is None or observation.rate >= NEAR * limit.bytes_per_second
    if not (is_throttled or (observation.is_slow and is_near)):
        return
    rate = "" if observation.rate is None else f", and it copies {size(observation.rate)}/s"
    todo = "raise twinlog.max.bytes.per.second, or remove it"
    if not limit.is_key:
        todo = f"{observation.command('flow limit')} --none"
    what = f"it is limited to {size(limit.bytes_per_second)}/s by {limit.who}{rate}"
    yield Finding(Likelihood.LIKELY, "limit", what, todo)


def quota(observation: Observation) -> Iterator[Finding]:
    """Report the brokers' quotas that throttle the flow's clients or may do so."""
    is_throttled = observation.snapshot.state is FlowState.THROTTLED
    if not (is_throttled or observation.is_slow):
        return
    quotas = [
        (side, quota)
        for side, key in ((observation.source, CONSUMER), (observation.target, PRODUCER))
        for quota in side.quotas or ()
        if quota.key in (key, REQUESTS)
    ]
    for side, quota in quotas:
        likelihood = Likelihood.LIKELY if is_throttled else _binds(observation, quota)
        if likelihood is not None:
            yield Finding(
                likelihood,
                "quota",
                f"{side.alias} has a quota of {_number(quota)} for {quota.whose} ({quota.key}, for "
                "each broker)",
                f"raise it: kafka-configs.sh --alter --add-config {quota.key}=... for "
                f"{quota.whose}",
            )
    if is_throttled and not quotas and observation.limit is None:
        hidden = [
            cluster.alias
            for cluster in (observation.source, observation.target)
            if cluster.quotas is None
        ]
        todo = "check the quotas of users and client IDs: kafka-configs.sh --describe"
        if hidden:
            names = ", ".join(hidden)
            todo = f"to see the quotas, grant DESCRIBE_CONFIGS on the cluster of {names}"
        what = "brokers throttle the flow (THROTTLED), but no quota of its clients is visible"
        yield Finding(Likelihood.LIKELY, "quota", what, todo)


def _binds(observation: Observation, quota: Quota) -> Likelihood | None:
    """Return how likely a quota throttles the flow, or None if the flow's rate is far below it. A
    request quota is always POSSIBLE, because the flow's share of broker threads is unknown.
    """
    if quota.key == REQUESTS or observation.rate is None:
        return Likelihood.POSSIBLE
    return Likelihood.LIKELY if observation.rate >= NEAR * quota.value else None


def _number(quota: Quota) -> str:
    return f"{quota.value:g} % of a thread" if quota.key == REQUESTS else f"{size(quota.value)}/s"


def one_partition(observation: Observation) -> Iterator[Finding]:
    """Report a partition with most of the lag. More lanes do not help: one lane copies it."""
    if not observation.is_slow or len(observation.snapshot.partitions) < 2:
        return
    worst = max(observation.lagging, key=lambda partition: partition.lag or 0)
    share = (worst.lag or 0) / observation.lag
    if share < MOST_OF_IT:
        return
    yield Finding(
        Likelihood.LIKELY,
        "one_partition",
        f"{worst.topic}-{worst.partition} has {share:.0%} of the lag ({count(worst.lag)} of "
        f"{count(observation.lag)} records), and one lane copies it",
        f"spread its records over more partitions at {observation.source.alias}; until then raise "
        f"{observation.source.alias}.consumer.max.partition.fetch.bytes "
        f"({size(observation.tuning.partition_fetch_bytes)} now)",
    )


def few_lanes(observation: Observation) -> Iterator[Finding]:
    """Report that more lanes would help: there are unused cores, and partitions with a lag."""
    if not observation.is_slow or not observation.snapshot.lanes:
        return
    if observation.cores is None:
        yield from _bounded_by_tasks(observation)
        return
    could = min(observation.cores, len(observation.lagging))
    if observation.snapshot.lanes >= could:
        return
    lanes = plural(observation.snapshot.lanes, "lane")
    why, todo = "", "give the process more with --lanes, or --master 'local[*]'"
    if observation.tasks_max is not None and observation.tasks_max < could:
        why, todo = f", because tasks.max = {observation.tasks_max}", f"raise tasks.max to {could}"
    yield Finding(
        Likelihood.LIKELY,
        "few_lanes",
        f"{lanes} copy {plural(len(observation.lagging), 'partition')} that are behind, of "
        f"{observation.cores} cores{why}",
        todo,
    )


def _bounded_by_tasks(observation: Observation) -> Iterator[Finding]:
    """Report that `tasks.max` limits the lanes, if the cores of the flow's host are unknown."""
    most = observation.tasks_max
    if most is not None and observation.snapshot.lanes >= most < len(observation.lagging):
        yield Finding(
            Likelihood.POSSIBLE,
            "few_lanes",
            f"{plural(observation.snapshot.lanes, 'lane')} copy "
            f"{plural(len(observation.lagging), 'partition')} that are behind, "
            f"because tasks.max = {most}",
            f"raise tasks.max, to at most {len(observation.lagging)}, if its host has more cores",
        )


def open_transaction(observation: Observation) -> Iterator[Finding]:
    """Report open transactions, because a `read_committed` flow cannot copy any record after them.

    A record that arrives between the report of the lag and the query of the log end may briefly
    cause the same finding.
    """
    parts = [
        partition
        for partition in observation.snapshot.partitions
        if (partition.loss_ms or 0) > SLOW_MS
    ]
    held = [part for part in parts if part.loss_records and (not part.lag or part.is_held_back)]
    if not held:
        return
    worst = max(held, key=lambda partition: partition.loss_records or 0)
    yield Finding(
        Likelihood.LIKELY,
        "open_transaction",
        f"an open transaction at the source blocks {plural(len(held), 'partition')}: "
        f"{plural(worst.loss_records or 0, 'offset')} after it in {worst.topic}-{worst.partition}",
        "find its producer (kafka-transactions.sh find-hanging), and let it end the transaction",
    )


def small_fetches(observation: Observation) -> Iterator[Finding]:
    """Report fetch sizes that limit the rate. A broker sends one response per round trip, or up to
    MOST_SECTIONS if the round trip is long.
    """
    trip_ms = observation.source.round_trip_ms
    if not observation.is_slow or not trip_ms:
        return
    a_second = 1000 / trip_ms
    sizes = observation.tuning
    responses = MOST_SECTIONS if trip_ms >= FAR_S * 1000 else 1
    key, now, unit = "max.partition.fetch.bytes", sizes.partition_fetch_bytes, "a partition"
    bound = responses * now * a_second
    fastest = max((observation.rates or {}).values(), default=0.0)
    lanes = max(1, observation.snapshot.lanes)
    if fastest < NEAR * bound:
        unit = "a lane of a broker"
        if responses == 1:
            key, now, bound = "fetch.max.bytes", sizes.fetch_bytes, sizes.fetch_bytes * a_second
        if (observation.rate or 0.0) < NEAR * bound * lanes:
            return
    what = f"a response of {size(now)} every {trip_ms:.0f} ms is"
    if responses > 1:
        what = f"{responses} responses of {size(now)} every {trip_ms:.0f} ms are"
    yield Finding(
        Likelihood.LIKELY,
        "small_fetches",
        f"{what} at most {size(bound)}/s for {unit}, "
        f"which copies {size(max(fastest, (observation.rate or 0.0) / lanes))}/s",
        f"raise {observation.source.alias}.consumer.{key} above {now}",
    )


def far_away(observation: Observation) -> Iterator[Finding]:
    """Report clusters whose round trip from this host takes at least FAR_MS."""
    for side in (observation.source, observation.target):
        if observation.is_slow and (side.round_trip_ms or 0) >= FAR_MS:
            slowest = max(side.round_trips_ms, key=lambda node: side.round_trips_ms[node])
            yield Finding(
                Likelihood.POSSIBLE,
                "far_away",
                f"a round trip to {side.alias} takes {side.round_trip_ms:.0f} ms from here (broker "
                f"{slowest})",
                "run the mirror near its target; larger fetches and more lanes help too",
            )


def recoded(observation: Observation) -> Iterator[Finding]:
    """Report a large share of batches that lanes cannot copy unchanged, which costs more CPU."""
    batches, costly = observation.batches
    if not observation.is_slow or costly <= MUCH * batches:
        return
    why = "gaps of compaction, LogAppendTime, too large for the target, or another codec"
    if observation.why_decoded:
        why = "; ".join(f"{topic}: {why}" for topic, why in [*observation.why_decoded.items()][:3])
    todo = "give them more lanes (tasks.max), or change that config of the source's topic"
    if observation.tuning.recompression is not None:
        todo = "remove compression.type of the target's producer: then batches keep their codec"
    yield Finding(
        Likelihood.LIKELY,
        "recoded",
        f"{costly / batches:.0%} of the batches of partitions that are behind were decoded or "
        f"repacked ({count(costly)} of {count(batches)}): {why}",
        todo,
    )


def decoded(observation: Observation) -> Iterator[Finding]:
    """Report configs because of which batches are joined, or decoded and encoded again. Decoding
    and encoding are reported only if no lane has counted batches.
    """
    recompression, is_counted = observation.tuning.recompression, observation.batches[0] > 0
    if not observation.is_slow:
        return
    if recompression is not None and not is_counted:
        which = "every batch" if recompression.every else "batches without a codec"
        yield Finding(
            Likelihood.POSSIBLE,
            "recompressed",
            f"{which} may be repacked with {recompression.codec.name.lower()}, as configured",
            "remove compression.type of the target's producer: then batches keep their codec",
        )
    if observation.tuning.join_bytes:
        yield Finding(
            Likelihood.POSSIBLE,
            "joined",
            f"small batches are joined up to batch.size = {observation.tuning.join_bytes}",
            "set batch.size = 0 for the target's producer: then batches pass unchanged",
        )
    if observation.why_decoded and not is_counted:
        behind = {partition.topic for partition in observation.lagging}
        why = next(iter(observation.why_decoded.values()))
        yield Finding(
            Likelihood.POSSIBLE,
            "decoded",
            f"{len(observation.why_decoded)} of {plural(len(behind), 'topic')} with a lag may have "
            "batches that are decoded and encoded again "
            f"({first_few(observation.why_decoded)}: {why})",
            "give them more lanes (tasks.max), or change that config of the source's topic",
        )


def at_its_limits(observation: Observation) -> Iterator[Finding]:
    """Report that machine or network limit a slow flow, if there is no other finding."""
    if not observation.is_slow:
        return
    rate = "an unknown rate" if observation.rate is None else f"{size(observation.rate)}/s"
    yield Finding(
        Likelihood.POSSIBLE,
        "at_its_limits",
        f"{count(observation.lag)} records have waited for {duration(observation.lag_ms / 1000)}; "
        f"{plural(observation.snapshot.lanes, 'lane')} copy {rate}; "
        f"round trips: {observation.round_trips or 'unknown'}",
        "check CPU, disks and network of the brokers and of this host; docs/capacity.md shows "
        "what to expect",
    )


# Causes that stop a flow or some of its partitions, or lose records before they are copied.

SILENT_MS: Final = 10_000
"""A live process is reported as silent if its next report is overdue by this many milliseconds. A
process reports its state once a second.
"""

AS_SAID: Final = "see the message; twinlog explain CODE explains more"


def _certain_finding(cause: str, what: str, todo: str) -> Finding:
    return Finding(Likelihood.CERTAIN, cause, what, todo)


def advice_of(code: str) -> str:
    """Return the advice of `twinlog explain` on a code as plain text."""
    condition = conditions().get(code)
    return (without_markdown(condition.advice) if condition else "") or AS_SAID


def unreachable(observation: Observation) -> Iterator[Finding]:
    """Report clusters that are unreachable from this host."""
    for side in (observation.source, observation.target):
        if side.problem:
            yield _certain_finding(
                "unreachable",
                _named(side.alias, side.problem),
                f"start its brokers, or correct {side.alias}.bootstrap.servers and the keys of its "
                "security",
            )


def _named(alias: str, problem: str) -> str:
    """Return the problem of a cluster, with the cluster's alias even if the error lacks it."""
    if f"{alias} (" in problem or f"cluster {alias} " in problem:
        return f"from this host: {problem}"
    return f"{alias} cannot be reached from this host: {problem}"


def not_running(observation: Observation) -> Iterator[Finding]:
    """Report that no process is known to lead the flow."""
    is_unheard = observation.snapshot.state is FlowState.UNKNOWN and not observation.snapshot.code
    if is_unheard or observation.snapshot.state in (FlowState.NOT_RUNNING, FlowState.STOPPED):
        waiting = f"{count(observation.lag)} records wait" if observation.lag else ""
        reasons = ("no process is known to run it", waiting, observation.snapshot.reason)
        todo = f"twinlog mirror {quote(observation.file)}; if another host runs it, check that host"
        yield _certain_finding("not_running", "; ".join(filter(None, reasons)), todo)


def failed(observation: Observation) -> Iterator[Finding]:
    """Report that the flow has failed, could not be queried or is degraded, with its own reason."""
    snapshot = observation.snapshot
    is_failed = snapshot.state is FlowState.FAILED
    is_unasked = snapshot.state is FlowState.UNKNOWN and bool(snapshot.code)
    if (is_failed or is_unasked) and not (observation.source.problem or observation.target.problem):
        yield _certain_finding("failed", snapshot.reason, advice_of(snapshot.code))
    if snapshot.state is FlowState.DEGRADED:
        yield _certain_finding("degraded", snapshot.reason, _advice(snapshot))


def _advice(snapshot: FlowStatus) -> str:
    """Return the advice for a degraded flow: it waits for a cluster, or its records are at risk."""
    is_near = any(partition.is_near_deletion for partition in snapshot.partitions)
    risks = ("RPO_EXCEEDED" if snapshot.rpo_excess else "", "RETENTION_NEAR" if is_near else "")
    code = next(filter(None, (snapshot.code, *risks)), "")
    return (
        advice_of(code)
        if code
        else "check the cluster that the message names; the flow resumes by itself"
    )


def silent(observation: Observation) -> Iterator[Finding]:
    """Report that the flow's process is alive, but its report is overdue."""
    if observation.silent_ms > SILENT_MS:
        yield _certain_finding(
            "silent",
            "its process is alive, but has not reported for "
            f"{duration(observation.silent_ms / 1000)}",
            "check if the host swaps, or if the process is suspended (kill -CONT); then restart it",
        )


def paused(observation: Observation) -> Iterator[Finding]:
    """Report that the flow is paused, or else each of its topics that is paused."""
    if observation.pause or observation.snapshot.state is FlowState.PAUSED:
        waiting = f"{count(observation.lag)} records wait" if observation.lag else ""
        what = "; ".join(filter(None, (observation.pause or "paused", waiting)))
        yield _certain_finding("paused", what, observation.command("flow resume"))
        return
    parts = [
        partition
        for partition in observation.snapshot.partitions
        if partition.state is PartitionState.PAUSED
    ]
    for topic, paused in _grouped_by(parts, lambda partition: partition.topic):
        why = paused[0].message or "paused"
        lag = total(partition.lag for partition in paused) or 0
        yield _certain_finding(
            "topic_paused",
            f"{topic}: {why}; {count(lag)} records wait",
            f"{observation.command('topic resume')} --topics {quote(topic)}",
        )


def no_lanes(observation: Observation) -> Iterator[Finding]:
    """Report that Spark runs no lane for the flow."""
    if observation.snapshot.state is FlowState.WAITING_FOR_SPARK:
        yield _certain_finding(
            "no_lanes", observation.snapshot.reason, advice_of(observation.snapshot.code)
        )
    works = observation.snapshot.state in (
        FlowState.RUNNING,
        FlowState.PARTLY_FAILED,
        FlowState.STARTING,
    )
    if works and not observation.snapshot.lanes and observation.lagging:
        yield _certain_finding(
            "no_lanes",
            f"no lane runs ({observation.snapshot.state}), "
            f"and {count(observation.lag)} records wait",
            "check that Spark has free cores for a job of this application, and check its log",
        )


def stopped_by_codes(observation: Observation) -> Iterator[Finding]:
    """Report stopped and retried partitions by code. The most frequent code comes first."""
    parts = [partition for partition in observation.snapshot.partitions if partition.code]
    groups = sorted(
        _grouped_by(parts, lambda partition: partition.code), key=lambda item: -len(item[1])
    )
    for code, stopped in groups:
        names = first_few(f"{partition.topic}-{partition.partition}" for partition in stopped)
        is_failed = any(partition.state is PartitionState.FAILED for partition in stopped)
        verb = "have stopped" if is_failed else "are being retried"
        yield _certain_finding(
            code.lower(),
            f"{plural(len(stopped), 'partition')} {verb} with {code} ({names}): "
            f"{stopped[0].message}",
            advice_of(code),
        )


def leaderless(observation: Observation) -> Iterator[Finding]:
    """Report partitions without a leader, unless the flow's status already reports NO_LEADER."""
    if any(partition.code == "NO_LEADER" for partition in observation.snapshot.partitions):
        return
    for side in (observation.source, observation.target):
        if side.leaderless:
            yield _certain_finding(
                "no_leader", _side_text(side, side.leaderless, "no leader"), advice_of("NO_LEADER")
            )


def under_min_isr(observation: Observation) -> Iterator[Finding]:
    """Report target partitions under min.insync.replicas, unless the flow's status reports them."""
    if any(
        partition.code == "TARGET_UNDER_MIN_ISR" for partition in observation.snapshot.partitions
    ):
        return
    side = observation.target
    if side.under_min_isr:
        what = _side_text(
            side, side.under_min_isr, "fewer replicas in sync than min.insync.replicas"
        )
        todo = (
            "start the target's other brokers; until then acks=all is rejected "
            "(kafka-topics.sh --describe --under-min-isr-partitions)"
        )
        yield _certain_finding("target_under_min_isr", what, todo)


def _side_text(side: ClusterView, tps: Sequence[object], what: str) -> str:
    return (
        f"{plural(len(tps), 'partition')} of {side.alias} have {what} ({first_few(map(str, tps))})"
    )


def retention_near(observation: Observation) -> Iterator[Finding]:
    """Report topics whose retention will probably delete records before they are copied."""
    near = [
        partition for partition in observation.snapshot.partitions if partition.is_near_deletion
    ]
    for topic, of_topic in _grouped_by(near, lambda partition: partition.topic):
        first = min(of_topic, key=lambda partition: partition.left_ms or 0)
        needs = (
            "is not catching up"
            if first.needs_ms is None
            else f"needs {duration(first.needs_ms / 1000)} to catch up"
        )
        left = duration((first.left_ms or 0) / 1000)
        yield _certain_finding(
            "retention_near",
            f"{topic}-{first.partition}: in {left} the source may delete records that are not "
            f"copied yet, and the copy {needs}",
            f"raise retention.ms or retention.bytes of {topic} on {observation.source.alias} "
            "until the copy has caught up",
        )


def _grouped_by(
    partitions: Iterable[PartitionStatus], key: Callable[[PartitionStatus], str]
) -> Iterator[tuple[str, list[PartitionStatus]]]:
    out: dict[str, list[PartitionStatus]] = {}
    for part in partitions:
        out.setdefault(key(part), []).append(part)
    yield from out.items()


CHECKS: Final[tuple[Callable[[Observation], Iterator[Finding]], ...]] = (
    unreachable,
    not_running,
    failed,
    silent,
    paused,
    retention_near,
    no_lanes,
    stopped_by_codes,
    leaderless,
    under_min_isr,
    limited,
    quota,
    open_transaction,
    small_fetches,
    few_lanes,
    one_partition,
    recoded,
    decoded,
    far_away,
)
"""All checks. Findings of the same likelihood are printed in this order."""


def printed(observation: Observation, findings_of: list[Finding]) -> dict[str, Any]:
    """Return the measurements and findings of a flow for the JSON output."""
    return {
        "flow": observation.flow,
        "state": observation.snapshot.state,
        "lag": observation.lag,
        "lag_ms": observation.lag_ms,
        "lanes": observation.snapshot.lanes,
        "bytes_per_second": None if observation.rate is None else round(observation.rate),
        "round_trips_ms": {
            cluster.alias: {str(node): round(ms, 3) for node, ms in cluster.round_trips_ms.items()}
            for cluster in (observation.source, observation.target)
        },
        "notes": observation.notes,
        "findings": findings_of,
    }


def findings(observation: Observation) -> list[Finding]:
    """Return the findings, the most likely first. Empty if the flow is neither slow nor stopped."""
    results = [finding for check in CHECKS for finding in check(observation)]
    if not results:
        results = list(at_its_limits(observation))
    return sorted(results, key=lambda finding: finding.likelihood)
