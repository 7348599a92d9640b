"""Causes that slow a running flow: limits, quotas, one large partition, few lanes, long distances,
batches that are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twinlog.cluster.net.round_trip import FAR_S
from twinlog.cluster.topics.quotas import CONSUMER, PRODUCER, REQUESTS, Quota
from twinlog.codes import FlowState
from twinlog.control.doctor.observation import SLOW_MS, Finding, Likelihood, Observation
from twinlog.lane.sides.sections import MOST_SECTIONS
from twinlog.quantities import count, duration, first_few, plural, size

MOST_OF_IT: Final = 0.8
"""Share of the lag above which a single partition is the bottleneck."""

NEAR: Final = 0.5
"""Share of a limit above which the flow would probably copy more without it."""

MUCH: Final = 0.2
"""Share of batches on the slow path above which they are most of the work."""

FAR_MS: Final = 50.0
"""A round trip within one region is far shorter."""


def limited(seen: Observation) -> Iterator[Finding]:
    """Report `twinlog.max.bytes.per.second`, or a limit set by a user."""
    limit = seen.limit
    is_throttled = seen.snapshot.state is FlowState.THROTTLED
    if limit is None:
        return
    is_near = seen.rate is None or seen.rate >= NEAR * limit.bytes_per_second
    if not (is_throttled or (seen.is_slow and is_near)):
        return
    rate = "" if seen.rate is None else f", and it copies {size(seen.rate)}/s"
    todo = "raise twinlog.max.bytes.per.second, or remove it"
    if not limit.is_key:
        todo = f"{seen.command('flow limit')} --none"
    what = f"it is limited to {size(limit.bytes_per_second)}/s by {limit.who}{rate}"
    yield Finding(Likelihood.LIKELY, "limit", what, todo)


def quota(seen: Observation) -> Iterator[Finding]:
    """Report the brokers' quotas for the flow's clients."""
    is_throttled = seen.snapshot.state is FlowState.THROTTLED
    if not (is_throttled or seen.is_slow):
        return
    ours = [
        (side, one)
        for side, key in ((seen.source, CONSUMER), (seen.target, PRODUCER))
        for one in side.quotas or ()
        if one.key in (key, REQUESTS)
    ]
    for side, one in ours:
        likelihood = Likelihood.LIKELY if is_throttled else _binds(seen, one)
        if likelihood is not None:
            yield Finding(
                likelihood,
                "quota",
                f"{side.alias} has a quota of {_number(one)} for {one.whose} ({one.key}, for "
                "each broker)",
                f"raise it: kafka-configs.sh --alter --add-config {one.key}=... for {one.whose}",
            )
    if is_throttled and not ours and seen.limit is None:
        hidden = [one.alias for one in (seen.source, seen.target) if one.quotas is None]
        todo = "check the quotas of users and client IDs: kafka-configs.sh --describe"
        if hidden:
            todo = f"grant DESCRIBE_CONFIGS on the cluster of {', '.join(hidden)} to see which"
        what = "brokers throttle it by a quota (THROTTLED), but none for its clients is visible"
        yield Finding(Likelihood.LIKELY, "quota", what, todo)


def _binds(seen: Observation, one: Quota) -> Likelihood | None:
    """Decide by the rate if it is known. The share of a broker's thread is never known here."""
    if one.key == REQUESTS or seen.rate is None:
        return Likelihood.POSSIBLE
    return Likelihood.LIKELY if seen.rate >= NEAR * one.value else None


def _number(one: Quota) -> str:
    return f"{one.value:g} % of a thread" if one.key == REQUESTS else f"{size(one.value)}/s"


def one_partition(seen: Observation) -> Iterator[Finding]:
    """Report a single partition with most of the lag: one lane copies it, and more do not help."""
    if not seen.is_slow or len(seen.snapshot.partitions) < 2:
        return
    worst = max(seen.behind, key=lambda one: one.lag or 0)
    share = (worst.lag or 0) / seen.lag
    if share < MOST_OF_IT:
        return
    yield Finding(
        Likelihood.LIKELY,
        "one_partition",
        f"{worst.topic}-{worst.partition} has {share:.0%} of the lag ({count(worst.lag)} of "
        f"{count(seen.lag)} records), and one lane copies it",
        f"spread its records over more partitions at {seen.source.alias}; until then raise "
        f"{seen.source.alias}.consumer.max.partition.fetch.bytes "
        f"({size(seen.tuning.partition_fetch_bytes)} now)",
    )


def few_lanes(seen: Observation) -> Iterator[Finding]:
    """Report unused cores, or partitions without a lane."""
    if not seen.is_slow or not seen.snapshot.lanes:
        return
    if seen.cores is None:
        yield from _bounded_by_tasks(seen)
        return
    could = min(seen.cores, len(seen.behind))
    if seen.snapshot.lanes >= could:
        return
    lanes = plural(seen.snapshot.lanes, "lane")
    why, todo = "", "give the process more with --lanes, or --master 'local[*]'"
    if seen.tasks_max is not None and seen.tasks_max < could:
        why, todo = f", because tasks.max = {seen.tasks_max}", f"raise tasks.max to {could}"
    yield Finding(
        Likelihood.LIKELY,
        "few_lanes",
        f"{lanes} copy {plural(len(seen.behind), 'partition')} that are behind, of "
        f"{seen.cores} cores{why}",
        todo,
    )


def _bounded_by_tasks(seen: Observation) -> Iterator[Finding]:
    """Report `tasks.max` as the limit for a flow on another host, whose cores are unknown."""
    most = seen.tasks_max
    if most is not None and seen.snapshot.lanes >= most < len(seen.behind):
        yield Finding(
            Likelihood.POSSIBLE,
            "few_lanes",
            f"{plural(seen.snapshot.lanes, 'lane')} copy {plural(len(seen.behind), 'partition')} "
            f"that are behind, because tasks.max = {most}",
            f"raise tasks.max, to at most {len(seen.behind)}, if its host has more cores",
        )


def open_transaction(seen: Observation) -> Iterator[Finding]:
    """Report open transactions: with read_committed no record after one can be copied.

    For a moment, a record that arrives between the report of the lag and the query of the log end
    looks the same.
    """
    parts = [one for one in seen.snapshot.partitions if (one.loss_ms or 0) > SLOW_MS]
    held = [one for one in parts if one.loss_records and (not one.lag or one.is_held_back)]
    if not held:
        return
    worst = max(held, key=lambda one: one.loss_records or 0)
    yield Finding(
        Likelihood.LIKELY,
        "open_transaction",
        f"an open transaction at the source blocks {plural(len(held), 'partition')}: "
        f"{plural(worst.loss_records or 0, 'offset')} after it in {worst.topic}-{worst.partition}",
        "end it, or find its producer: kafka-transactions.sh find-hanging",
    )


def small_fetches(seen: Observation) -> Iterator[Finding]:
    """Report fetch sizes that limit the rate: a broker sends one response per round trip, or
    several if it is far.
    """
    trip_ms = seen.source.round_trip_ms
    if not seen.is_slow or not trip_ms:
        return
    a_second = 1000 / trip_ms
    sizes = seen.tuning
    responses = MOST_SECTIONS if trip_ms >= FAR_S * 1000 else 1
    key, now, whose = "max.partition.fetch.bytes", sizes.partition_fetch_bytes, "a partition"
    bound = responses * now * a_second
    fastest = max((seen.rates or {}).values(), default=0.0)
    lanes = max(1, seen.snapshot.lanes)
    if fastest < NEAR * bound:
        whose = "a lane of a broker"
        if responses == 1:
            key, now, bound = "fetch.max.bytes", sizes.fetch_bytes, sizes.fetch_bytes * a_second
        if (seen.rate or 0.0) < NEAR * bound * lanes:
            return
    what = f"a response of {size(now)} every {trip_ms:.0f} ms is"
    if responses > 1:
        what = f"{responses} responses of {size(now)} every {trip_ms:.0f} ms are"
    yield Finding(
        Likelihood.LIKELY,
        "small_fetches",
        f"{what} at most {size(bound)}/s for {whose}, "
        f"and {size(max(fastest, (seen.rate or 0.0) / lanes))}/s are copied",
        f"raise {seen.source.alias}.consumer.{key} above {now}",
    )


def far_away(seen: Observation) -> Iterator[Finding]:
    """Report long round trips."""
    for side in (seen.source, seen.target):
        if seen.is_slow and (side.round_trip_ms or 0) >= FAR_MS:
            slowest = max(side.round_trips_ms, key=lambda node: side.round_trips_ms[node])
            yield Finding(
                Likelihood.POSSIBLE,
                "far_away",
                f"a round trip to {side.alias} takes {side.round_trip_ms:.0f} ms from here (broker "
                f"{slowest})",
                "run the mirror near its target; larger fetches and more lanes help too",
            )


def recoded(seen: Observation) -> Iterator[Finding]:
    """Report batches that cannot pass unchanged, by the lanes' counts: they cost much more CPU."""
    batches, costly = seen.batches
    if not seen.is_slow or costly <= MUCH * batches:
        return
    why = "gaps of compaction, LogAppendTime, too large for the target, or another codec"
    if seen.decoded:
        why = "; ".join(f"{topic}: {one}" for topic, one in [*seen.decoded.items()][:3])
    todo = "give them more lanes (tasks.max), or change that config of the source's topic"
    if seen.tuning.recompression is not None:
        todo = "remove compression.type of the target's producer: then batches keep their codec"
    yield Finding(
        Likelihood.LIKELY,
        "recoded",
        f"{costly / batches:.0%} of the batches of partitions that are behind were decoded or "
        f"repacked ({count(costly)} of {count(batches)}): {why}",
        todo,
    )


def decoded(seen: Observation) -> Iterator[Finding]:
    """Report the same from the configuration, if no lane has reported counts."""
    recompression, is_counted = seen.tuning.recompression, seen.batches[0] > 0
    if not seen.is_slow:
        return
    if recompression is not None and not is_counted:
        which = "every batch" if recompression.every else "batches without a codec"
        yield Finding(
            Likelihood.POSSIBLE,
            "recompressed",
            f"{which} may be repacked with {recompression.codec.name.lower()}, as configured",
            "remove compression.type of the target's producer: then batches keep their codec",
        )
    if seen.tuning.join_bytes:
        yield Finding(
            Likelihood.POSSIBLE,
            "joined",
            f"small batches are joined up to batch.size = {seen.tuning.join_bytes}",
            "set batch.size = 0 for the target's producer: then batches pass unchanged",
        )
    if seen.decoded and not is_counted:
        some, all_of = plural(len(seen.decoded), "topic"), {one.topic for one in seen.behind}
        why = next(iter(seen.decoded.values()))
        yield Finding(
            Likelihood.POSSIBLE,
            "decoded",
            f"batches of {some}, of {len(all_of)} that are behind, may "
            f"be decoded and encoded again ({first_few(seen.decoded)}: {why})",
            "give them more lanes (tasks.max), or change that config of the source's topic",
        )


def at_its_limits(seen: Observation) -> Iterator[Finding]:
    """Report a slow flow without any other finding: the machine or the network is the limit."""
    if not seen.is_slow:
        return
    rate = "an unknown rate" if seen.rate is None else f"{size(seen.rate)}/s"
    yield Finding(
        Likelihood.POSSIBLE,
        "at_its_limits",
        f"{count(seen.lag)} records have waited for {duration(seen.lag_ms / 1000)}; "
        f"{plural(seen.snapshot.lanes, 'lane')} copy {rate}; "
        f"round trips: {seen.round_trips or 'unknown'}",
        "check CPU, disks and network of the brokers and of this host; docs/capacity.md shows "
        "what to expect",
    )
