"""Causes that stop a flow, or some of its partitions, and records that will be lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from shlex import quote
from typing import Final

from twinlog.codes import FlowState, PartitionState, conditions
from twinlog.control.doctor.observation import ClusterView, Finding, Likelihood, Observation
from twinlog.control.watch.snapshot import FlowStatus, PartitionStatus
from twinlog.quantities import count, duration, first_few, plural, total

SILENT_MS: Final = 10_000
"""A process reports its state once a second."""

MARKDOWN_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
AS_SAID: Final = "see the message; twinlog explain CODE explains more"


def _certain(cause: str, what: str, todo: str) -> Finding:
    return Finding(Likelihood.CERTAIN, cause, what, todo)


def advice_of(code: str) -> str:
    """Return the catalogue's advice on a code as plain text."""
    found = conditions().get(code)
    text = "" if found is None else found.advice
    return MARKDOWN_LINK.sub(r"\1: docs/\2", text).replace("`", "") or AS_SAID


def unreachable(seen: Observation) -> Iterator[Finding]:
    """Report clusters that are unreachable from this host."""
    for side in (seen.source, seen.target):
        if side.problem:
            yield _certain(
                "unreachable",
                _named(side.alias, side.problem),
                f"start its brokers, or correct {side.alias}.bootstrap.servers and its security",
            )


def _named(alias: str, problem: str) -> str:
    """Return the problem of a cluster, adding its name if the error lacks it."""
    if f"{alias} (" in problem or f"cluster {alias} " in problem:
        return f"from this host: {problem}"
    return f"{alias} cannot be reached from this host: {problem}"


def not_running(seen: Observation) -> Iterator[Finding]:
    """Report that no process is known to lead the flow."""
    is_unheard = seen.snapshot.state is FlowState.UNKNOWN and not seen.snapshot.code
    if is_unheard or seen.snapshot.state in (FlowState.NOT_RUNNING, FlowState.STOPPED):
        waiting = f"{count(seen.lag)} records wait" if seen.lag else ""
        reasons = ("no process is known to run it", waiting, seen.snapshot.reason)
        todo = f"twinlog mirror {quote(seen.file)}; if another host runs it, check there"
        yield _certain("not_running", "; ".join(filter(None, reasons)), todo)


def failed(seen: Observation) -> Iterator[Finding]:
    """Report that the flow cannot run, or that a cluster is unreachable for it."""
    snapshot = seen.snapshot
    is_failed = snapshot.state is FlowState.FAILED
    is_unasked = snapshot.state is FlowState.UNKNOWN and bool(snapshot.code)
    if (is_failed or is_unasked) and not (seen.source.problem or seen.target.problem):
        yield _certain("failed", snapshot.reason, advice_of(snapshot.code))
    if snapshot.state is FlowState.DEGRADED:
        yield _certain("degraded", snapshot.reason, _advice(snapshot))


def _advice(snapshot: FlowStatus) -> str:
    """Return the advice for a flow that waits for a cluster, or whose records are at risk."""
    is_near = any(one.is_near_deletion for one in snapshot.partitions)
    risks = ("RPO_EXCEEDED" if snapshot.rpo_excess else "", "RETENTION_NEAR" if is_near else "")
    code = next(filter(None, (snapshot.code, *risks)), "")
    return (
        advice_of(code) if code else "check the cluster that it names; the flow resumes by itself"
    )


def silent(seen: Observation) -> Iterator[Finding]:
    """Report a live process that has stopped reporting."""
    if seen.silent_ms > SILENT_MS:
        yield _certain(
            "silent",
            f"its process is alive, but has not reported for {duration(seen.silent_ms / 1000)}",
            "check if the host swaps, or if the process is suspended (kill -CONT); then restart it",
        )


def paused(seen: Observation) -> Iterator[Finding]:
    """Report a paused flow, or paused topics."""
    if seen.pause or seen.snapshot.state is FlowState.PAUSED:
        waiting = f"{count(seen.lag)} records wait" if seen.lag else ""
        what = "; ".join(filter(None, (seen.pause or "paused", waiting)))
        yield _certain("paused", what, seen.command("flow resume"))
        return
    parts = [one for one in seen.snapshot.partitions if one.state is PartitionState.PAUSED]
    for topic, some in _by(parts, lambda one: one.topic):
        why = some[0].message or "paused"
        lag = total(one.lag for one in some) or 0
        yield _certain(
            "topic_paused",
            f"{topic}: {why}; {count(lag)} records wait",
            f"{seen.command('topic resume')} --topics {quote(topic)}",
        )


def no_lanes(seen: Observation) -> Iterator[Finding]:
    """Report that Spark runs no lane for the flow."""
    if seen.snapshot.state is FlowState.WAITING_FOR_SPARK:
        yield _certain("no_lanes", seen.snapshot.reason, advice_of(seen.snapshot.code))
    works = seen.snapshot.state in (FlowState.RUNNING, FlowState.PARTLY_FAILED, FlowState.STARTING)
    if works and not seen.snapshot.lanes and seen.behind:
        yield _certain(
            "no_lanes",
            f"no lane runs ({seen.snapshot.state}), and {count(seen.lag)} records wait",
            "check that Spark has free cores for a job of this application, and check its log",
        )


def stopped_by_codes(seen: Observation) -> Iterator[Finding]:
    """Report partitions that have stopped with a code or are retried; the most frequent first."""
    parts = [one for one in seen.snapshot.partitions if one.code]
    groups = sorted(_by(parts, lambda one: one.code), key=lambda item: -len(item[1]))
    for code, some in groups:
        names = first_few(f"{one.topic}-{one.partition}" for one in some)
        is_failed = any(one.state is PartitionState.FAILED for one in some)
        verb = "have stopped" if is_failed else "are being retried"
        yield _certain(
            code.lower(),
            f"{plural(len(some), 'partition')} {verb} with {code} ({names}): {some[0].message}",
            advice_of(code),
        )


def leaderless(seen: Observation) -> Iterator[Finding]:
    """Report partitions without a leader on the clusters, if no partition reports it itself."""
    if any(one.code == "NO_LEADER" for one in seen.snapshot.partitions):
        return
    for side in (seen.source, seen.target):
        if side.leaderless:
            yield _certain(
                "no_leader", _of(side, side.leaderless, "no leader"), advice_of("NO_LEADER")
            )


def under_min_isr(seen: Observation) -> Iterator[Finding]:
    """Report partitions of the target with too few replicas in sync to accept records."""
    if any(one.code == "TARGET_UNDER_MIN_ISR" for one in seen.snapshot.partitions):
        return
    side = seen.target
    if side.under_min_isr:
        what = _of(side, side.under_min_isr, "fewer replicas in sync than min.insync.replicas")
        todo = (
            "start the target's other brokers; until then acks=all is rejected "
            "(kafka-topics.sh --describe --under-min-isr-partitions)"
        )
        yield _certain("target_under_min_isr", what, todo)


def _of(side: ClusterView, tps: Sequence[object], what: str) -> str:
    return (
        f"{plural(len(tps), 'partition')} of {side.alias} have {what} ({first_few(map(str, tps))})"
    )


def retention_near(seen: Observation) -> Iterator[Finding]:
    """Report records that will be deleted before they are copied."""
    near = [one for one in seen.snapshot.partitions if one.is_near_deletion]
    for topic, some in _by(near, lambda one: one.topic):
        first = min(some, key=lambda one: one.left_ms or 0)
        needs = (
            "more time than it has (it is not catching up)"
            if first.needs_ms is None
            else duration(first.needs_ms / 1000)
        )
        left = duration((first.left_ms or 0) / 1000)
        yield _certain(
            "retention_near",
            f"{topic}-{first.partition}: in {left} the source may delete records not copied yet, "
            f"and the copy needs: {needs}",
            f"raise retention.ms or retention.bytes of {topic} on {seen.source.alias} until it "
            "has caught up",
        )


def _by(
    parts: Iterable[PartitionStatus], key: Callable[[PartitionStatus], str]
) -> Iterator[tuple[str, list[PartitionStatus]]]:
    out: dict[str, list[PartitionStatus]] = {}
    for one in parts:
        out.setdefault(key(one), []).append(one)
    yield from out.items()
