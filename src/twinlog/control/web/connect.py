"""Kafka Connect's REST paths for scripts written for MirrorMaker 2, in Connect's format.

A flow has the same connectors as in MirrorMaker 2. Below `/SOURCE/TARGET`, where a dedicated
MirrorMaker 2 serves one Connect worker for each flow (KIP-710), the connectors have MirrorMaker 2's
names: `MirrorSourceConnector`, `MirrorCheckpointConnector`, `MirrorHeartbeatConnector`. At the
root, which all flows of a process share, a name has the flow as its prefix:
`A->B.MirrorSourceConnector`. If there is only one flow, the short names work at the root, too.

Differences from Connect: a flow is paused and resumed as a whole, by its MirrorSourceConnector.
`stop` is the same as `pause`: both end the lanes, and `resume` starts them again. Connectors cannot
be created, changed, restarted or deleted here. A connector's config contains the topics that it
copies, but no credentials of clusters.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from enum import StrEnum
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from twinlog.codes import FlowState
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.web.api.endpoints import write_intents
from twinlog.control.web.api.site import Site
from twinlog.control.web.front import CLIENT
from twinlog.control.web.problem import RequestRefused, status_of
from twinlog.errors import TwinlogError
from twinlog.mirror.state.intents import IntentKind

SOURCE: Final = "MirrorSourceConnector"
CHECKPOINT: Final = "MirrorCheckpointConnector"
HEARTBEAT: Final = "MirrorHeartbeatConnector"
KINDS: Final = (SOURCE, CHECKPOINT, HEARTBEAT)
"""The connectors of each flow. MirrorMaker 2 creates all three, whatever the flow emits."""
PACKAGE: Final = "org.apache.kafka.connect.mirror."


class ConnectState(StrEnum):
    """Connect's states of connectors and tasks (`AbstractStatus.State`)."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


_STATES: Final = {
    FlowState.PAUSED: ConnectState.PAUSED,
    FlowState.FENCED: ConnectState.STOPPED,
    FlowState.FAILED: ConnectState.FAILED,
    FlowState.NOT_RUNNING: ConnectState.UNASSIGNED,
    FlowState.UNKNOWN: ConnectState.UNASSIGNED,
    FlowState.STANDBY: ConnectState.UNASSIGNED,
    FlowState.STOPPED: ConnectState.UNASSIGNED,
    FlowState.WAITING_FOR_SPARK: ConnectState.UNASSIGNED,
}
"""Connect's state for each state of a flow. All other states of flows are RUNNING."""

Handler = Callable[[Request], Awaitable[Response]]


def routes(site: Site) -> Iterator[BaseRoute]:
    """Yield the routes at the root and the routes below each flow."""
    connect = _Connect(site)
    for prefix in ("", "/{source}/{target}"):
        for method, path, run in (
            ("GET", "", connect.names),
            ("GET", "/{name}", connect.one),
            ("GET", "/{name}/config", connect.config),
            ("GET", "/{name}/status", connect.status),
            ("GET", "/{name}/offsets", connect.offsets),
            ("PUT", "/{name}/pause", connect.wish(202, "paused", pauses=True)),
            ("PUT", "/{name}/stop", connect.wish(204, "stopped", pauses=True)),
            ("PUT", "/{name}/resume", connect.wish(202, "resumed", pauses=False)),
        ):
            yield Route(f"{prefix}/connectors{path}", _as_connect(run), methods=[method])


def _as_connect(run: Handler) -> Handler:
    """Wrap a handler so that errors have Connect's format."""

    async def answer(request: Request) -> Response:
        try:
            response = await run(request)
        except TwinlogError as error:
            status = status_of(error)
            body = {"error_code": status, "message": str(error)}
            response = JSONResponse(body, status)
        response.headers["cache-control"] = "no-store"
        return response

    return answer


class _Connect:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._worker = socket.gethostname()

    async def names(self, request: Request) -> Response:
        connectors = [(name, flow, kind) for flow, kind, name in self._connectors(request)]
        expanded = request.query_params.getlist("expand")
        if not expanded:
            return JSONResponse([name for name, _, _ in connectors])
        out: dict[str, dict[str, Any]] = {}
        for name, flow, kind in connectors:
            out[name] = {}
            if "status" in expanded:
                answer = await self._site.flow(str(flow.flow))
                out[name]["status"] = self._status(name, kind, answer)
            if "info" in expanded:
                out[name]["info"] = await self._info(name, flow, kind)
        return JSONResponse(out)

    async def one(self, request: Request) -> Response:
        return JSONResponse(await self._info(*self._named(request)))

    async def config(self, request: Request) -> Response:
        return JSONResponse(_config(*self._named(request)))

    async def status(self, request: Request) -> Response:
        name, flow, kind = self._named(request)
        return JSONResponse(self._status(name, kind, await self._site.flow(str(flow.flow))))

    async def offsets(self, request: Request) -> Response:
        _, flow, kind = self._named(request)
        if kind != SOURCE:
            return JSONResponse({"offsets": []})  # these connectors have no offsets
        parts = await self._site.parts(str(flow.flow))
        rows = [
            {
                "partition": {
                    "cluster": flow.source_alias,
                    "partition": part.partition,
                    "topic": part.topic,
                },
                # Connect stores the offset of the last record, not of the next one
                "offset": {"offset": part.upstream - 1},
            }
            for part in sorted(parts.partitions, key=lambda part: (part.topic, part.partition))
            if part.upstream
        ]
        return JSONResponse({"offsets": rows})

    def wish(self, status: int, word: str, *, pauses: bool) -> Handler:
        """Return a handler that pauses or resumes a flow, and responds with this status."""

        async def run(request: Request) -> Response:
            name, flow, kind = self._named(request)
            if kind != SOURCE:
                raise RequestRefused(
                    f"{name}: a flow is paused as a whole; use {flow.flow}.{SOURCE}",
                    code="CONNECTOR_OF_A_FLOW",
                )
            await write_intents(
                self._site,
                request.scope[CLIENT],
                str(flow.flow),
                lambda steering: steering.changes(IntentKind.PAUSE, is_set=pauses),
                reason=f"{word} over Connect's paths",
                dry_run=False,
            )
            return Response(status_code=status)

        return run

    def _named(self, request: Request) -> tuple[str, FlowConfig, str]:
        """Return the name, flow and kind of the connector in the path. Raises NOT_FOUND."""
        name = request.path_params["name"]
        for flow, kind, known in self._connectors(request):
            if name == known:
                return name, flow, kind
        flows = self._site.config.flows
        if name in KINDS and len(flows) == 1 and "source" not in request.path_params:
            return name, flows[0], name
        raise RequestRefused(f"Connector {name[:200]} not found", code="NOT_FOUND")

    def _connectors(self, request: Request) -> Iterator[tuple[FlowConfig, str, str]]:
        """Yield flow, kind and name of each connector below the request's path."""
        below = request.path_params.get("source"), request.path_params.get("target")
        for flow in self._site.config.every_flow:
            if below == (None, None):
                prefix = f"{flow.flow}."
            elif below == (flow.flow.source, flow.flow.target):
                prefix = ""
            else:
                continue
            for kind in KINDS:
                yield flow, kind, f"{prefix}{kind}"

    async def _info(self, name: str, flow: FlowConfig, kind: str) -> dict[str, Any]:
        answer = await self._site.flow(str(flow.flow))
        tasks = [{"connector": name, "task": number} for number in range(_tasks(kind, answer))]
        config = _config(name, flow, kind)
        return {"name": name, "config": config, "tasks": tasks, "type": "source"}

    def _status(self, name: str, kind: str, answer: dict[str, Any]) -> dict[str, Any]:
        state = _STATES.get(answer["state"], ConnectState.RUNNING)
        worker = self._worker if answer["reported_by"] == "here" else answer["reported_by"]
        where: dict[str, Any] = {"state": state, "worker_id": worker}
        if state is ConnectState.FAILED:
            where["trace"] = answer["reason"]
        tasks = [{"id": number, **where} for number in range(_tasks(kind, answer))]
        if answer["state"] == FlowState.PARTLY_FAILED:
            # partitions move between lanes, so a failure is always shown at the first task
            failed = {"state": ConnectState.FAILED, "trace": answer["reason"]}
            tasks[:1] = [task | failed for task in tasks[:1]]
        return {"name": name, "connector": where, "tasks": tasks, "type": "source"}


def _tasks(kind: str, answer: dict[str, Any]) -> int:
    """Return a connector's number of tasks: one per lane for the MirrorSourceConnector, else 0."""
    return answer["lanes"] or 0 if kind == SOURCE else 0


def _config(name: str, flow: FlowConfig, kind: str) -> dict[str, str]:
    """Return the connector's config without cluster credentials."""
    return {
        "name": name,
        "connector.class": PACKAGE + kind,
        "source.cluster.alias": flow.source_alias,
        "target.cluster.alias": flow.target_alias,
        "replication.policy.class": flow.policy.custom or flow.policy.kind.value,
        **({} if flow.lanes.tasks_max is None else {"tasks.max": str(flow.lanes.tasks_max)}),
        **(
            {"topics": flow.settings["topics"].value}
            if kind == SOURCE and "topics" in flow.settings
            else {}
        ),
    }
