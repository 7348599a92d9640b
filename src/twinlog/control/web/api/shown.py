"""Converts snapshots of this process, reports of other processes and data of both clusters to
answers.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from twinlog.codes import FlowState, PartitionState, conditions
from twinlog.codes.states import FLOW_STATES, PARTITION_STATES, severity_of
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.check.reported_status import LastRun, Reported
from twinlog.control.duties.publication import is_unusual, kept_of
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.control.web.api import answers
from twinlog.control.web.api.inputs import PartitionQuery
from twinlog.control.web.api.leaders import LeaderReport
from twinlog.encoded import encoded
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.state.published import PublishedStatus

HERE: Final = "here"
_IN_REST: Final = {"places": "offsets", "told": "reported"}
"""Fields of commands that have another name in REST."""
_UNKNOWN: Final = (
    *("since_ms", "lanes", "generation", "records", "bytes", "partitions", "unusual_partitions"),
    *("lag", "lag_unknown_partitions", "latency", "retention", "verified", "as_of_ms", "age_ms"),
)
"""Fields of a flow that are null if no process reports it."""
_NOTHING: Final = Reported(status=None, intents=None)


def flow(
    config: FlowConfig, snapshot: FlowSnapshot | None, age_s: float, heard: LeaderReport
) -> answers.Flow:
    """Return a flow as its leader reports it. `snapshot` is this process's, `age_s` old."""
    reported = heard.reported or _NOTHING
    problem = "; ".join(filter(None, (heard.problem, reported.problem)))
    name: dict[str, Any] = {
        "flow": str(config.flow),
        "source": config.flow.source,
        "target": config.flow.target,
        "wanted": None if reported.intents is None else wanted(reported.intents),
        "verify_runs": reported.verify_runs,
        "problem": problem,
    }
    now_ms = int(time.time() * 1000)
    # a report read before the target became unreachable may be of a leader that is gone
    row = reported.status if reported.status is not None and reported.status.is_of(now_ms) else None
    # A process that fails to set up the flow knows no more than this one, unless this one is a
    # standby.
    waits = snapshot is None or snapshot.state is FlowState.STANDBY
    is_better = row is not None and (row.is_of_leader or waits)
    if (
        row is not None
        and is_better
        and not (snapshot and snapshot.is_led_here)
        and not _has_led(snapshot, row)
    ):
        return answers.Flow(**name, **_reported(row, now_ms))
    if snapshot is not None:
        return answers.Flow(**name, **_seen(snapshot, now_ms, age_s))
    return answers.Flow(**name, **_unknown(None if heard.problem else reported.run, problem))


def _has_led(snapshot: FlowSnapshot | None, row: PublishedStatus) -> bool:
    """Return True if the report is this process's own, from before it lost the leadership."""
    return (
        snapshot is not None
        and snapshot.state is not FlowState.STANDBY
        and (row.host, row.pid) == (socket.gethostname(), os.getpid())
    )


def _alike(one: FlowSnapshot | PublishedStatus) -> dict[str, Any]:
    """Return the fields that snapshots and reports share."""
    return {
        "since_ms": one.since_ms,
        "reason": one.reason,
        "code": one.code,
        "guarantee": one.guarantee,
        "lanes": one.lanes,
        "generation": one.generation,
        "records": one.records,
        "bytes": one.bytes,
        "lag": one.lag,
        "loss": answers.Loss(
            records=one.loss_records,
            ms=one.loss_ms,
            unknown_partitions=one.loss_unknown,
            objective_ms=one.rpo_ms,
            excess=one.rpo_excess,
        ),
    }


def _seen(seen: FlowSnapshot, now_ms: int, age_s: float) -> dict[str, Any]:
    return {
        **_alike(seen),
        "state": seen.state,
        "partitions": len(seen.partitions),
        "unusual_partitions": sum(map(is_unusual, seen.partitions)),
        "lag_unknown_partitions": seen.lag_unknown,
        "latency": seen.latency,
        "retention": kept_of(seen.partitions) if seen.is_led_here else None,
        "verified": seen.verified,
        "reported_by": HERE,
        "as_of_ms": now_ms - int(age_s * 1000),
        "age_ms": int(age_s * 1000),
    }


def _reported(status: PublishedStatus, now_ms: int) -> dict[str, Any]:
    return {
        **_alike(status),
        "state": FlowState(status.state),
        "partitions": status.partitions,
        "unusual_partitions": status.unusual_partitions,
        "lag_unknown_partitions": status.lag_unknown,
        "latency": None if status.p50_ms is None else status,
        "retention": status.kept,
        "verified": status.proof,
        "reported_by": status.where,
        "as_of_ms": status.at_ms,
        "age_ms": max(0, now_ms - status.at_ms),
    }


def _unknown(run: LastRun | None, problem: str) -> dict[str, Any]:
    """Return the fields of a flow that neither another process nor this one reports."""
    if run is None:
        run = LastRun(FlowState.UNKNOWN, problem or "its target has not answered yet")
    nothing = answers.Loss(
        records=None, ms=None, unknown_partitions=None, objective_ms=None, excess=""
    )
    return {
        **dict.fromkeys(_UNKNOWN),
        "state": run.state,
        "reason": run.text,
        "code": run.code,
        "guarantee": "",
        "loss": nothing,
        "reported_by": HERE,
    }


def printed(fields: Mapping[str, Any], *, has_names: bool = True) -> dict[str, Any]:
    """Return what a command prints with `--format json`, with names in camelCase. `has_names`:
    False for a map by clusters and brokers, whose keys stay as they are.
    """
    out = {}
    for name, value in encoded(fields).items():
        shown = _printed(value, has_names=has_names and name != "round_trips_ms")
        key = _camel_case(name) if has_names else name
        out[key] = _camel_case(shown) if name == "aspect" else shown
    return out


def _printed(value: Any, *, has_names: bool = True) -> Any:
    if isinstance(value, Mapping):
        return printed(value, has_names=has_names)
    if isinstance(value, list):
        return [_printed(one) for one in value]
    return answers.sendable(value)


def _camel_case(name: str) -> str:
    first, *more = _IN_REST.get(name, name).split("_")
    return first + "".join(map(str.capitalize, more))


def wanted(intents: FlowIntents) -> list[answers.Wanted]:
    """Return the commands in effect for a flow and its topics, the flow's first."""
    found = (intents.get(kind, topic) for kind, topic in sorted(intents.keys(), key=_by_topic))
    return [answers.Wanted.model_validate(one) for one in found if one is not None]


def _by_topic(key: tuple[str, str]) -> tuple[str, str]:
    return key[1], key[0]


def most(number: int | None) -> int:
    """Return a sort key that treats unknown values as the largest."""
    return 1 << 62 if number is None else number


_COLUMNS: Final[dict[str, Callable[[PartitionSnapshot], int]]] = {
    "lag": lambda part: most(part.lag),
    "lossRecords": lambda part: most(part.loss_records),
    "lossMs": lambda part: most(part.loss_ms),
    "keptMs": lambda part: most(part.left_ms),
    "records": lambda part: part.records,
    "sinceMs": lambda part: part.since_ms,
}


def page(
    parts: Iterable[PartitionSnapshot], query: PartitionQuery
) -> tuple[int, list[answers.Partition]]:
    """Return the number of matching partitions and the page's rows. Ties are sorted by topic and
    partition.
    """
    found = [
        part
        for part in parts
        if query.topic in part.topic
        and (not query.of_topic or part.topic == query.of_topic)
        and (query.state is None or part.state is query.state)
        and (not query.code or part.code == query.code)
    ]
    column, is_down = query.sort.removeprefix("-"), query.sort.startswith("-")
    found.sort(key=lambda part: (part.topic, part.partition), reverse=is_down and column == "topic")
    if column != "topic":
        found.sort(key=_COLUMNS[column], reverse=is_down)
    rows = found[query.offset : query.offset + query.limit]
    return len(found), [answers.Partition.model_validate(part) for part in rows]


def code(name: str) -> dict[str, str]:
    """Return one code of the catalogue."""
    found = conditions()[name]
    names = ("meaning", "advice", "retry")
    return {"code": name} | {each: getattr(found, each) for each in names}


def catalogue() -> dict[str, Any]:
    """Return all codes and states."""
    return {
        "codes": [code(name) for name in sorted(conditions())],
        "flow_states": [_state(one, text) for one, text in FLOW_STATES.items()],
        "partition_states": [_state(one, text) for one, text in PARTITION_STATES.items()],
    }


def _state(state: FlowState | PartitionState, meaning: str) -> dict[str, str]:
    return {"state": state, "meaning": meaning, "severity": severity_of(state)}


def clusters(config: MirrorConfig) -> list[dict[str, Any]]:
    """Return the clusters with their addresses and flows, but without credentials."""
    names = [one.flow for one in config.every_flow]
    return [
        {
            "alias": one.alias,
            "bootstrap_servers": [str(server) for server in one.servers],
            "source_of": [str(flow) for flow in names if flow.source == one.alias],
            "target_of": [str(flow) for flow in names if flow.target == one.alias],
        }
        for one in config.clusters
    ]
