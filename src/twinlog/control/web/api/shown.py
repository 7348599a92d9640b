"""Converts snapshots of this process, reports of other processes and data of both clusters to
responses.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

from msgspec import json

from twinlog.codes import (
    FLOW_STATES,
    PARTITION_STATES,
    FlowState,
    PartitionState,
    conditions,
    severity_of,
)
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.check.reported_status import LastRun, ReportedFlow
from twinlog.control.duties.publication import is_unusual, kept_of
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.control.web.api.inputs import PartitionQuery, TopicQuery
from twinlog.control.web.api.leaders import LeaderReport
from twinlog.encoded import encoded, encoded_fields
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.state.published import PublishedStatus
from twinlog.quantities import known, largest, total

RowT = TypeVar("RowT")

HERE: Final = "here"
_IN_REST: Final = {"places": "offsets", "told": "reported"}
"""Fields that have another name in REST than in the output of commands."""
_MAPS: Final = ("round_trips_ms", "ranges")
"""Fields whose keys are data (clusters, brokers, kinds of differences), so they are not renamed."""
_FLOW: Final = (
    "flow source target state since_ms reason code guarantee lanes generation records bytes "
    "partitions unusual_partitions lag lag_unknown_partitions loss latency retention verified "
    "verify_runs wanted reported_by as_of_ms age_ms problem"
)
_SHARED_FIELDS: Final = "since_ms? reason code guarantee lanes generation records bytes lag"
_LOSS: Final = (
    "records=loss_records ms=loss_ms unknown_partitions=loss_unknown objective_ms=rpo_ms "
    "excess=rpo_excess"
)
_NO_LOSS: Final = {
    **dict.fromkeys(("records", "ms", "unknown_partitions", "objective_ms")),
    "excess": "",
}
_LATENCY: Final = "p50_ms p99_ms"
_RETENTION: Final = "kept_ms=ms kept_known=is_known topic? near_deletion"
_VERIFIED: Final = "mode at_ms? records differences is_complete"
_VERIFY_RUN: Final = (
    "began_ms ended_ms who answer is_whole topics since until deep partitions equal_records ranges "
    "not_compared configs groups sha256"
)
_PARTITION: Final = (
    "topic partition target_topic state since_ms? lag lag_ms loss_records loss_ms records bytes "
    "next_offset=upstream lane kept_ms=left_ms kept_known=is_left_known catches_up_ms=needs_ms "
    "is_near_deletion code message"
)
EVENT: Final = "number at_ms level flow topic? partition code message who person?"
_NOTHING: Final = ReportedFlow(status=None, intents=None)


def flow(
    config: FlowConfig, snapshot: FlowSnapshot | None, age_s: float, heard: LeaderReport
) -> dict[str, Any]:
    """Return a flow as its leader reports it. `snapshot`: this process's view, `age_s` old."""
    reported = heard.reported or _NOTHING
    problem = "; ".join(filter(None, (heard.problem, reported.problem)))
    runs = reported.verify_runs
    fields: dict[str, Any] = {
        "flow": str(config.flow),
        "source": config.flow.source,
        "target": config.flow.target,
        "wanted": None if reported.intents is None else wanted(reported.intents),
        "verify_runs": None if runs is None else [encoded_fields(run, _VERIFY_RUN) for run in runs],
        "problem": problem,
    }
    now_ms = int(time.time() * 1000)
    # if the target is unreachable, the last report that was read may be of a former leader
    row = (
        reported.status
        if reported.status is not None and reported.status.is_current(now_ms)
        else None
    )
    # A report counts more than the snapshot if a leader wrote it. A process that fails to set up
    # the flow knows no more than this process, unless this process is a standby.
    waits = snapshot is None or snapshot.state is FlowState.STANDBY
    is_better = row is not None and (row.is_of_leader or waits)
    if (
        row is not None
        and is_better
        and not (snapshot and snapshot.is_led_here)
        and not _has_led(snapshot, row)
    ):
        fields |= _report_fields(row, now_ms)
    elif snapshot is not None:
        fields |= _snapshot_fields(snapshot, now_ms, age_s)
    else:
        fields |= _unknown_fields(None if heard.problem else reported.run, problem)
    return {name: fields.get(name) for name in _FLOW.split()}


def _has_led(snapshot: FlowSnapshot | None, row: PublishedStatus) -> bool:
    """Return True if this process wrote the report before it lost the leadership."""
    return (
        snapshot is not None
        and snapshot.state is not FlowState.STANDBY
        and (row.host, row.pid) == (socket.gethostname(), os.getpid())
    )


def _shared_fields(flow: FlowSnapshot | PublishedStatus) -> dict[str, Any]:
    """Return the fields that snapshots and reports share."""
    return {**encoded_fields(flow, _SHARED_FIELDS), "loss": encoded_fields(flow, _LOSS)}


def _snapshot_fields(snapshot: FlowSnapshot, now_ms: int, age_s: float) -> dict[str, Any]:
    return {
        **_shared_fields(snapshot),
        "state": snapshot.state,
        "partitions": len(snapshot.partitions),
        "unusual_partitions": sum(map(is_unusual, snapshot.partitions)),
        "lag_unknown_partitions": snapshot.lag_unknown,
        "latency": encoded_fields(snapshot.latency, _LATENCY),
        "retention": encoded_fields(kept_of(snapshot.partitions), _RETENTION)
        if snapshot.is_led_here
        else None,
        "verified": encoded_fields(snapshot.verified, _VERIFIED),
        "reported_by": HERE,
        "as_of_ms": now_ms - int(age_s * 1000),
        "age_ms": int(age_s * 1000),
    }


def _report_fields(status: PublishedStatus, now_ms: int) -> dict[str, Any]:
    return {
        **_shared_fields(status),
        "state": FlowState(status.state),
        "partitions": status.partitions,
        "unusual_partitions": status.unusual_partitions,
        "lag_unknown_partitions": status.lag_unknown,
        "latency": None if status.p50_ms is None else encoded_fields(status, _LATENCY),
        "retention": encoded_fields(status.kept, _RETENTION),
        "verified": encoded_fields(status.proof, _VERIFIED),
        "reported_by": status.where,
        "as_of_ms": status.at_ms,
        "age_ms": max(0, now_ms - status.at_ms),
    }


def _unknown_fields(run: LastRun | None, problem: str) -> dict[str, Any]:
    """Return the fields of a flow that neither another process nor this one reports."""
    if run is None:
        run = LastRun(FlowState.UNKNOWN, problem or "its target has not responded yet")
    return {
        "state": run.state,
        "reason": run.text,
        "code": run.code,
        "guarantee": "",
        "loss": _NO_LOSS,
        "reported_by": HERE,
    }


def printed(fields: Any) -> dict[str, Any]:
    """Return what a command prints with `--format json`, with names in camelCase."""
    fields_of: dict[str, Any] = _in_camel_case(encoded(fields))
    return fields_of


def _in_camel_case(value: Any, *, has_names: bool = True) -> Any:
    """Return the value with names in camelCase. `has_names`: False for a map whose keys are data,
    which stay unchanged.
    """
    if isinstance(value, dict):
        out = {}
        for name, each in value.items():
            shown = _in_camel_case(each, has_names=has_names and name not in _MAPS)
            key = _camel_case(name) if has_names else _in_camel_case(name)
            out[key] = _camel_case(shown) if name == "aspect" else shown
        return out
    if isinstance(value, list):
        return [_in_camel_case(part) for part in value]
    if not isinstance(value, str) or value.isascii():
        return value
    # UTF-8 cannot encode lone surrogates, so they are escaped
    return value.encode("utf-8", "backslashreplace").decode()


def compact(fields: Mapping[str, Any]) -> bytes:
    """Encode what `printed` returns as JSON without blanks."""
    return json.encode(printed(fields))


@cache
def _camel_case(name: str) -> str:
    first, *more = _IN_REST.get(name, name).split("_")
    return first + "".join(map(str.capitalize, more))


def wanted(intents: FlowIntents) -> list[dict[str, Any]]:
    """Return the commands in effect for a flow and its topics, the flow's first."""
    set_intents = (
        intents.get(kind, topic)
        for kind, topic in sorted(intents.keys(), key=lambda key: key[::-1])
    )
    names = "intent=kind topic? bytes_per_second who at_ms reason"
    return [encoded_fields(intent, names) for intent in set_intents if intent is not None]


def unknown_as_largest(number: int | None) -> int:
    """Return a sort key that treats unknown values as the largest."""
    return 1 << 62 if number is None else number


_COLUMNS: Final[dict[str, Callable[[PartitionSnapshot], int]]] = {
    "lag": lambda part: unknown_as_largest(part.lag),
    "lossRecords": lambda part: unknown_as_largest(part.loss_records),
    "lossMs": lambda part: unknown_as_largest(part.loss_ms),
    "keptMs": lambda part: unknown_as_largest(part.left_ms),
    "records": lambda part: part.records,
    "sinceMs": lambda part: part.since_ms,
}


def page(
    partitions: Iterable[PartitionSnapshot], query: PartitionQuery
) -> tuple[int, list[dict[str, Any]]]:
    """Return (count, rows): the number of matching partitions, and the rows of the requested page.
    Ties are sorted by topic and partition.
    """
    matching = [
        part
        for part in partitions
        if query.topic in part.topic
        and (not query.of_topic or part.topic == query.of_topic)
        and _is_wanted(part, query)
    ]
    rows = _sorted(matching, query, lambda part: (part.topic, part.partition), _COLUMNS)
    return len(matching), [encoded_fields(part, _PARTITION) for part in rows]


def _is_wanted(partition: PartitionSnapshot, query: PartitionQuery | TopicQuery) -> bool:
    is_in_state = query.state is None or partition.state is query.state
    return is_in_state and (not query.code or partition.code == query.code)


def _sorted(
    matching: list[RowT],
    query: PartitionQuery | TopicQuery,
    name: Callable[[RowT], tuple[str, int]],
    columns: Mapping[str, Callable[[RowT], int]],
) -> list[RowT]:
    """Sort the matching rows, and return the rows of the requested page."""
    column, is_down = query.sort.removeprefix("-"), query.sort.startswith("-")
    matching.sort(key=name, reverse=is_down and column == "topic")
    if column != "topic":
        matching.sort(key=columns[column], reverse=is_down)
    return matching[query.offset : query.offset + query.limit]


def code(name: str) -> dict[str, str]:
    """Return one code with its meaning, advice and retry rule."""
    return {"code": name, **encoded_fields(conditions()[name], "meaning advice retry")}


def catalogue() -> dict[str, Any]:
    """Return all codes and states."""
    return {
        "codes": [code(name) for name in sorted(conditions())],
        "flow_states": [_state(state, text) for state, text in FLOW_STATES.items()],
        "partition_states": [_state(state, text) for state, text in PARTITION_STATES.items()],
    }


def _state(state: FlowState | PartitionState, meaning: str) -> dict[str, str]:
    return {"state": state, "meaning": meaning, "severity": severity_of(state)}


def clusters(config: MirrorConfig) -> list[dict[str, Any]]:
    """Return the clusters with their addresses and flows, but without credentials."""
    names = [flow.flow for flow in config.every_flow]
    return [
        {
            "alias": cluster.alias,
            "bootstrap_servers": [str(server) for server in cluster.servers],
            "source_of": [str(flow) for flow in names if flow.source == cluster.alias],
            "target_of": [str(flow) for flow in names if flow.target == cluster.alias],
        }
        for cluster in config.clusters
    ]


# Topics of a flow as `/api/v1` returns them, with the totals of their partitions.
#
# With up to 100,000 partitions, only the sort column is computed for every topic; the other columns
# are computed for the rows of the page.

WORST_FIRST: Final = (
    *(PartitionState.FAILED, PartitionState.TAKEN_OVER, PartitionState.RETRYING),
    *(PartitionState.SOURCE_AWAY, PartitionState.SOURCE_DELETED, PartitionState.PAUSED),
    *(PartitionState.PROMOTED, PartitionState.RELEASED, PartitionState.NEW, PartitionState.BEHIND),
    *(PartitionState.PENDING, PartitionState.STARTING, PartitionState.DRAINING),
    *(PartitionState.COPYING, PartitionState.AT_END, PartitionState.DONE),
)
_BADNESS: Final = {state: rank for rank, state in enumerate(reversed(WORST_FIRST))}


Parts = Sequence[PartitionSnapshot]


def _badness(parts: Parts) -> int:
    return max(_BADNESS[state] for state in {part.state for part in parts})


def _unusual(parts: Parts) -> int:
    return sum(map(is_unusual, parts))


_TOPIC_COLUMNS: Final[dict[str, Callable[[Parts], int]]] = {
    "state": _badness,
    "lag": lambda parts: sum(unknown_as_largest(part.lag) for part in parts),
    "lossRecords": lambda parts: sum(unknown_as_largest(part.loss_records) for part in parts),
    "lossMs": lambda parts: max(unknown_as_largest(part.loss_ms) for part in parts),
    "keptMs": lambda parts: min(unknown_as_largest(part.left_ms) for part in parts),
    "records": lambda parts: sum(part.records for part in parts),
    "bytes": lambda parts: sum(part.bytes for part in parts),
    "partitions": len,
    "unusualPartitions": _unusual,
}


def topic_page(
    partitions: Iterable[PartitionSnapshot], query: TopicQuery
) -> tuple[int, list[dict[str, Any]]]:
    """Return (count, rows): the number of matching topics, and the rows of the requested page. Ties
    are sorted by name. A topic matches if one partition has both the state and the code.
    """
    groups: dict[str, list[PartitionSnapshot]] = {}
    for part in partitions:
        groups.setdefault(part.topic, []).append(part)
    matching: list[Parts] = [
        group
        for name, group in groups.items()
        if query.topic in name and any(_is_wanted(part, query) for part in group)
    ]
    rows = _sorted(matching, query, lambda group: (group[0].topic, 0), _TOPIC_COLUMNS)
    return len(matching), [topic(group) for group in rows]


def topic(parts: Parts) -> dict[str, Any]:
    """Combine the partitions of a topic to one row."""
    lags = known(part.lag for part in parts)
    losses = known(part.loss_records for part in parts)
    return {
        "topic": parts[0].topic,
        "target_topic": next((part.target_topic for part in parts if part.target_topic), ""),
        "partitions": len(parts),
        "state": WORST_FIRST[-1 - _badness(parts)],
        "unusual_partitions": _unusual(parts),
        "codes": sorted({part.code for part in parts if part.code}),
        "lag": total(lags),
        "lag_ms": largest(part.lag_ms for part in parts),
        "lag_unknown_partitions": len(parts) - len(lags),
        "loss_records": total(losses),
        "loss_ms": largest(part.loss_ms for part in parts),
        "loss_unknown_partitions": len(parts) - len(losses),
        "records": sum(part.records for part in parts),
        "bytes": sum(part.bytes for part in parts),
        "kept_ms": min(known(part.left_ms for part in parts), default=None),
        "kept_known": all(part.is_left_known for part in parts),
        "is_near_deletion": any(part.is_near_deletion for part in parts),
    }
