"""The table of endpoints, from which the routes and the OpenAPI document are made."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

from pydantic import BaseModel

from twinlog.client.steering import Change, Corrupt, FlowSteering
from twinlog.codes import conditions
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.regex.linear import linear_matcher
from twinlog.config.regex.reader import RegexProblem
from twinlog.control.check.both_logs import both_logs
from twinlog.control.check.group_readiness import ready_groups
from twinlog.control.compare import compare_flows
from twinlog.control.cutover.failover import Failover
from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.cutover.switchover import Switchover
from twinlog.control.doctor.findings import findings
from twinlog.control.doctor.findings import printed as diagnosis
from twinlog.control.doctor.observing import observe
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.flow.wishes import Ask, apply_intents
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.control.web.api import inputs, shown
from twinlog.control.web.api.inputs import WantedState
from twinlog.control.web.api.site import NO_REPORT_YET, Parts, Site
from twinlog.control.web.problem import RequestRefused
from twinlog.control.web.tokens import Client
from twinlog.encoded import encoded, encoded_fields
from twinlog.errors import Unreachable, UsageError
from twinlog.mirror.state.intents import RESUMED, IntentKind
from twinlog.model import Flow, TopicPartition
from twinlog.quantities import first_few


def changes_to_wanted(steering: FlowSteering, state: WantedState) -> list[Change]:
    """Return the changes that set a flow's wanted state: its pause, its limit, and each topic that
    is or should be paused or released. Changes that are already in effect are not written.

    If a command writes at the same time, the later row counts. Repeat the request to write what
    differs then. Raises UsageError for a topic that the flow does not mirror, unless the topic is
    already paused or released.
    """
    corrupt: Corrupt = set()
    intents = steering.intents(corrupt)
    changes = steering.changes(IntentKind.PAUSE, [""], is_set=state.paused)
    changes += steering.limit(state.bytes_per_second)
    for kind, names in (
        (IntentKind.PAUSE, {*state.paused_topics}),
        (IntentKind.RELEASE, {*state.released_topics}),
    ):
        known = {
            *intents.topics(kind),
            *(topic for corrupt_kind, topic in corrupt if corrupt_kind is kind and topic),
        }
        changes += steering.changes(kind, sorted(names & known))
        changes += steering.changes(kind, sorted(known - names), is_set=False)
        if names - known:
            changes += _new(steering, kind, names - known)
    return changes


def _new(steering: FlowSteering, kind: IntentKind, names: Collection[str]) -> list[Change]:
    every = steering.changes_to_set(kind, [".*"])
    changes = [change for change in every if change.intent.topic in names]
    if missing := {*names}.difference(change.intent.topic for change in changes):
        raise UsageError(
            f"{steering.flow} mirrors no topic named {first_few(sorted(missing))}; names are "
            "whole names here, not regular expressions"
        )
    return changes


ROOT: Final = "/api/v1"
STREAM: Final = f"{ROOT}/stream"
STREAM_SUMMARY: Final = "Server-sent events: `flows` after a change, `event` for each new event."
DOCUMENT: Final = f"{ROOT}/openapi.json"


Answer: TypeAlias = bytes | dict[str, Any]
"""Body of a response: JSON made by REST itself, or the fields that a command prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRequest:
    """A request that was validated against the types of its endpoint."""

    site: Site
    client: Client
    path: Mapping[str, str]
    """Values of `{flow}`, `{topic}` and `{code}` in the path."""
    query: Any = None
    body: Any = None

    @property
    def flow(self) -> str:
        """The name of the flow, as `A->B`. Raises NOT_FOUND."""
        return str(self.site.flow_config(self.path["flow"]).flow)


Handler: TypeAlias = Callable[[CheckedRequest], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path and method of `/api/v1`."""

    path: str
    summary: str
    answer: str
    """Name of the response's type in the OpenAPI document (`tools.pages.reports`)."""
    run: Handler
    query: type[BaseModel] | None = None
    _: KW_ONLY
    method: str = "GET"
    body: type[BaseModel] | None = None
    is_kept: bool = False
    """Whether the response is cached, because many clients poll it."""


async def _flows(request: CheckedRequest) -> Answer:
    return shown.compact(await request.site.flows())


async def _flow(request: CheckedRequest) -> Answer:
    return shown.compact(await request.site.flow(request.flow))


def _printing(make: Callable[[CheckedRequest], Any]) -> Handler:
    """Return a handler that responds with what `make` returns, as a command prints it."""

    async def run(request: CheckedRequest) -> Answer:
        return shown.printed(make(request))

    return run


def _paging(
    rows: str, page: Callable[[Iterable[PartitionSnapshot], Any], tuple[int, list[dict[str, Any]]]]
) -> Handler:
    """Return a handler that responds with a page of rows. `rows`: their name in the response, and
    the last part of the path.
    """

    async def run(request: CheckedRequest) -> Answer:
        parts = await request.site.parts(request.flow)
        work = partial(page, parts.partitions, request.query)
        total, of_page = await request.site.pages.run(work)
        return shown.compact(_head(request, rows, parts, total) | {rows: of_page})

    return run


def _head(request: CheckedRequest, rows: str, parts: Parts, total: int) -> dict[str, Any]:
    """Return the fields of a page of rows that precede the rows: counts, age, and the path of the
    next page. `rows`: the last part of that path. `total`: number of matching rows.
    """
    age_ms = int(parts.age_s * 1000)
    query: inputs.PageQuery = request.query
    following, after = None, query.offset + query.limit
    if after < total:
        names = query.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        path = f"{ROOT}/flows/{quote(request.flow, safe='')}/{rows}"
        following = f"{path}?{urlencode(names | {'offset': after})}"
    return {
        "flow": request.flow,
        "total": total,
        "offset": query.offset,
        "next": following,
        "reported_by": "here" if parts.is_here else "clusters",
        "as_of_ms": int(time.time() * 1000) - age_ms,
        "age_ms": age_ms,
    }


async def _logs(request: CheckedRequest) -> Answer:
    query: inputs.LogsQuery = request.query
    config, parts = request.site.flow_config(request.flow), await request.site.parts(request.flow)
    known = {part.partition: part for part in parts.partitions if part.topic == query.topic}
    numbers = dict.fromkeys(map(int, query.partitions.split(",")))
    missing = next((number for number in numbers if number not in known), None)
    if missing is not None:
        raise RequestRefused(
            f"{request.flow} has no partition {query.topic[:200]}-{missing}", code="NOT_FOUND"
        )
    selected = [known[number] for number in numbers]
    source_partitions = [TopicPartition(part.topic, part.partition) for part in selected]
    target_partitions = [
        TopicPartition(part.target_topic, part.partition) for part in selected if part.target_topic
    ]
    source, target = await request.site.cluster_queries.run(
        lambda: both_logs(config, source_partitions, target_partitions)
    )
    rows = [
        {
            "partition": part.partition,
            "next_offset": part.upstream,
            "lane": part.lane,
            "source": source[TopicPartition(part.topic, part.partition)],
            "target": target.get(TopicPartition(part.target_topic, part.partition)),
        }
        for part in selected
    ]
    as_of_ms = int(time.time() * 1000)
    fields = {"flow": request.flow, "topic": query.topic, "partitions": rows, "as_of_ms": as_of_ms}
    return shown.printed(fields)


def _querying(read: Callable[[CheckedRequest, MirrorConfig], Any]) -> Handler:
    """Return a handler that responds with what `read` returns for a flow. Reading and encoding run
    in the worker that queries the clusters, because the response may be large.
    """

    async def run(request: CheckedRequest) -> Answer:
        config = request.site.alone(request.flow)
        return await request.site.cluster_queries.run(lambda: shown.printed(read(request, config)))

    return run


def _groups(request: CheckedRequest, config: MirrorConfig) -> Any:
    names = [request.query.group] if request.query.group else []
    (groups,) = ready_groups(config, names)
    if names and not groups.groups:
        raise RequestRefused(
            f"{request.flow} has no group {names[0][:200]} on its source", code="NOT_FOUND"
        )
    return groups


def _matching(topics: str | None) -> Callable[[str], bool]:
    """Compile a client's regular expression to a linear-time matcher, because with Python's `re`,
    an expression such as `(a+)+b` could block the process.
    """
    if topics is None:
        return lambda _: True
    try:
        return linear_matcher(topics)
    except RegexProblem as problem:
        raise UsageError(
            f"topics: {topics} is not a supported regular expression: {problem}"
        ) from None


def _diff(request: CheckedRequest, config: MirrorConfig) -> Any:
    matches, every = _matching(request.query.topics), bool(request.query.all)
    (comparisons,) = compare_flows(config, matches, with_left_alone=every, say=lambda _: None)
    return comparisons.as_json(with_left_alone=every)


def _doctor(request: CheckedRequest, config: MirrorConfig) -> Any:
    (seen,) = observe(config, request.site.file)
    return diagnosis(seen, findings(seen))


def _planning(make: Callable[[CutoverScope], Switchover | Failover]) -> Handler:
    def plan(_: CheckedRequest, config: MirrorConfig) -> Any:
        with CutoverScope(flow_setup(config.flows[0])) as scope:
            return encoded(make(scope).plan())

    return _querying(plan)


async def _events(request: CheckedRequest) -> Answer:
    query: inputs.EventQuery = request.query
    await request.site.read_reports()
    events = request.site.events.since(query.since)
    last = events[-1].number if events else query.since
    wanted = [event for event in events if query.flow in ("", *Flow.of(event.flow).spellings)]
    wanted.sort(key=lambda event: event.time)
    rows = [encoded_fields(event, shown.EVENT) for event in wanted[-query.limit :]]
    return shown.compact({"events": rows, "last": last})


async def _code(request: CheckedRequest) -> Answer:
    name = request.path["code"]
    if name not in conditions():
        raise RequestRefused(f"no code {name[:200]}", code="NOT_FOUND")
    return shown.printed(shown.code(name))


async def _in_effect(request: CheckedRequest) -> Answer:
    name = str(request.site.flow_config(request.flow).flow)
    heard = (await request.site.read_reports()).get(name, NO_REPORT_YET)
    intents = None if heard.reported is None else heard.reported.intents
    if intents is None:
        why = heard.problem or (heard.reported.problem if heard.reported else "")
        raise Unreachable(f"the commands in effect for {name} are unknown: {why}")
    return shown.printed(
        {
            "paused": intents.pause is not None,
            "bytes_per_second": intents.limit,
            "paused_topics": intents.topics(IntentKind.PAUSE),
            "released_topics": intents.topics(IntentKind.RELEASE),
        }
    )


async def write_intents(site: Site, client: Client, flow: str, ask: Ask, **options: Any) -> Answer:
    """Write intents as the command line does. `options`: `reason`, `dry_run`, and `nothing`, which
    is the error if there is nothing to act on.
    """
    config = site.flow_config(flow)
    who = f"{client.name} (REST)"
    changes = await site.command_writers.run(
        lambda: apply_intents([config], ask, who=who, **options)
    )
    site.leaders.on_write()
    return shown.printed({"dry_run": options["dry_run"], "changes": changes})


_NO_TOPIC: Final = "topics: no mirrored topic of the flow matches"
_NOT_PAUSED: Final = "topics: no matching topic is paused or released by name"
_FLOW: Final = f"{ROOT}/flows/{{flow}}"


def _wish(
    name: str,
    summary: str,
    body: type[inputs.Wish],
    act: Callable[[FlowSteering, Any], Any],
    nothing: str = "",
    method: str = "POST",
) -> Endpoint:
    """Return the endpoint that calls `act` with the flow's steering and the body. `nothing` is the
    error if there is nothing to act on.
    """

    async def run(request: CheckedRequest) -> Answer:
        body = request.body
        return await write_intents(
            request.site,
            request.client,
            request.flow,
            lambda steering: list(act(steering, body)),
            reason=body.reason,
            dry_run=body.dry_run,
            nothing=nothing,
        )

    return Endpoint(f"{_FLOW}/{name}", summary, "Changes", run, method=method, body=body)


ENDPOINTS: Final = (
    Endpoint(
        f"{ROOT}/flows",
        "All flows of the file, as reported by their leaders.",
        "Flows",
        _flows,
        is_kept=True,
    ),
    Endpoint(
        _FLOW,
        "One flow: state, loss, latency, retention, and the commands in effect.",
        "Flow",
        _flow,
        is_kept=True,
    ),
    Endpoint(
        f"{_FLOW}/history",
        "The last hour of a flow that this process leads, for charts.",
        "History",
        _printing(lambda asked: asked.site.history(asked.flow)),
    ),
    Endpoint(
        f"{_FLOW}/topics",
        "Topics of a flow, with the totals of their partitions.",
        "TopicPage",
        _paging("topics", shown.topic_page),
        inputs.TopicQuery,
    ),
    Endpoint(
        f"{_FLOW}/topics/{{topic}}/history",
        "The last hour of a topic of a flow that this process leads, for charts.",
        "TopicHistory",
        _printing(lambda asked: asked.site.topic_history(asked.flow, asked.path["topic"])),
    ),
    Endpoint(
        f"{_FLOW}/partitions",
        "Partitions of a flow. If another process leads it, both clusters are queried.",
        "PartitionPage",
        _paging("partitions", shown.page),
        inputs.PartitionQuery,
    ),
    Endpoint(
        f"{_FLOW}/logs",
        "Both logs of partitions of a topic: start, end and leader. The request may take seconds.",
        "Logs",
        _logs,
        inputs.LogsQuery,
    ),
    Endpoint(
        f"{_FLOW}/groups",
        "Groups of a flow's source: ready to move, or why not. The request may take seconds.",
        "SourceGroups",
        _querying(_groups),
        inputs.GroupQuery,
    ),
    Endpoint(
        f"{_FLOW}/diff",
        "Differences between the two clusters of a flow. The request may take seconds.",
        "Diff",
        _querying(_diff),
        inputs.DiffQuery,
    ),
    Endpoint(
        f"{_FLOW}/doctor",
        "Why a flow is slow or has stopped. The request takes a few seconds.",
        "Doctor",
        _querying(_doctor),
    ),
    Endpoint(
        f"{_FLOW}/switchover",
        "Plan of a switchover: gates with evidence, and groups. The request may take seconds.",
        "PlannedSwitchover",
        _planning(Switchover),
    ),
    Endpoint(
        f"{_FLOW}/failover",
        "Plan of a failover: loss, and where groups would resume. The request may take seconds.",
        "PlannedFailover",
        _planning(Failover),
    ),
    Endpoint(
        f"{ROOT}/events",
        "The last log lines of this process, and unusual events of flows led elsewhere.",
        "Events",
        _events,
        inputs.EventQuery,
    ),
    Endpoint(
        f"{ROOT}/codes",
        "All codes, with meaning and advice.",
        "Codes",
        _printing(lambda _: shown.catalogue()),
    ),
    Endpoint(f"{ROOT}/codes/{{code}}", "One code, with meaning and advice.", "Code", _code),
    Endpoint(
        f"{ROOT}/clusters",
        "The clusters, without credentials.",
        "Clusters",
        _printing(lambda asked: {"clusters": shown.clusters(asked.site.config)}),
    ),
    _wish(
        "pause",
        "Pause a flow until it is resumed.",
        inputs.Wish,
        lambda steering, _: steering.changes(IntentKind.PAUSE),
    ),
    _wish(
        "resume",
        "Resume a paused flow.",
        inputs.Wish,
        lambda steering, _: steering.changes(IntentKind.PAUSE, is_set=False),
    ),
    _wish(
        "limit",
        "Limit a flow's bytes per second.",
        inputs.LimitWish,
        lambda steering, body: steering.limit(body.bytes_per_second),
    ),
    _wish(
        "topics/pause",
        "Pause topics.",
        inputs.TopicWish,
        lambda steering, body: steering.changes_to_set(IntentKind.PAUSE, body.topics),
        _NO_TOPIC,
    ),
    _wish(
        "topics/resume",
        "Resume paused or released topics.",
        inputs.TopicWish,
        lambda steering, body: steering.changes_to_remove(RESUMED, body.topics),
        _NOT_PAUSED,
    ),
    _wish(
        "topics/release",
        "Stop mirroring topics. Other clients may then write to the remote topics.",
        inputs.TopicWish,
        lambda steering, body: steering.changes_to_set(IntentKind.RELEASE, body.topics),
        _NO_TOPIC,
    ),
    Endpoint(
        f"{_FLOW}/wanted",
        "The wanted state of a flow: pause, limit, paused and released topics.",
        "InEffect",
        _in_effect,
    ),
    _wish(
        "wanted",
        "Set the whole wanted state of a flow. The response lists the changes.",
        inputs.WantedState,
        changes_to_wanted,
        method="PUT",
    ),
)
