"""Runs the endpoints: Starlette routes the path, pydantic validates the request, and errors become
answers.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from twinlog.config.values.nearest import suggestion
from twinlog.control.web import connect
from twinlog.control.web.api import openapi
from twinlog.control.web.api.endpoints import ENDPOINTS, CheckedRequest, Endpoint
from twinlog.control.web.api.kept import KeptAnswers
from twinlog.control.web.api.site import Site
from twinlog.control.web.api.stream import Streams
from twinlog.control.web.front import CLIENT, HEADERS, JSON
from twinlog.control.web.problem import RequestRefused, as_bytes, internal, problem, status_of
from twinlog.errors import TwinlogError

log = logging.getLogger(__name__)


def app(site: Site) -> ASGIApp:
    """Return the ASGI application for `/api/v1` and the paths of Kafka Connect's API."""
    kept = KeptAnswers(site)
    by_path: dict[str, list[Endpoint]] = {}
    for one in ENDPOINTS:
        by_path.setdefault(one.path, []).append(one)
    routes: list[BaseRoute] = [
        Route(one.path, _Answering(site, one, kept), methods=[one.method])
        for some in by_path.values()
        for one in some
    ]
    text = as_bytes(openapi.document())
    routes.append(Route(openapi.PATH, lambda _: _json(200, text), methods=["GET"]))
    routes.append(Route(openapi.STREAM, _Streaming(Streams(site)), methods=["GET"]))
    routes += connect.routes(site)
    return kept.before(
        Starlette(
            routes=routes,
            exception_handlers={TwinlogError: _refused, HTTPException: _not_routed},
        )
    )


class _Answering:
    """One endpoint as an ASGI application."""

    def __init__(self, site: Site, endpoint: Endpoint, kept: KeptAnswers) -> None:
        self._site = site
        self._endpoint = endpoint
        self._kept = kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        endpoint = self._endpoint
        query = _checked(endpoint.query or _Nothing, _query(request), "query")
        body = None
        if endpoint.body is not None:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != JSON:  # an HTML form of another site could send other types
                raise RequestRefused(f"the body must be JSON: Content-Type: {JSON}")
            body = _checked(endpoint.body, _parsed(await request.body()), "body")
        asked = CheckedRequest(
            site=self._site,
            client=scope[CLIENT],
            path=request.path_params,
            query=query,
            body=body,
        )
        basis = self._site.basis
        try:
            found = await endpoint.run(asked)
        except TwinlogError:
            raise
        except Exception:
            # the error's text may contain secrets
            log.exception("%s %s failed", request.method, scope["path"])
            response = _json(500, as_bytes(internal(scope["path"])))
        else:
            answer = found.model_dump_json(by_alias=True).encode() + b"\n"
            if endpoint.is_kept:
                self._kept.keep(scope["path"], basis, answer)
            response = _json(200, answer)
        await response(scope, receive, send)


class _Streaming:
    """The stream as an ASGI application."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "HEAD":
            response = Response(headers=HEADERS, media_type="text/event-stream")
            await response(scope, receive, send)
            return
        await self._streams.run(request, send)


class _Nothing(BaseModel):
    """Query of a path that takes no parameters."""

    model_config = {"extra": "forbid"}


def _query(request: Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in found:
            raise RequestRefused(f"query: {name[:100]} is given twice")
        found[name] = value
    return found


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RequestRefused(f"body: invalid JSON: {error.msg} at {where}") from error
    except (ValueError, RecursionError) as error:
        raise RequestRefused("body: invalid JSON") from error


def _checked(model: type[BaseModel], value: Any, where: str) -> BaseModel:
    try:
        return model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        # a misspelt name explains a missing one, so it is reported first
        first = min(found, key=lambda one: one["type"] != "extra_forbidden")
        name = ".".join(str(one) for one in first["loc"])[:100]
        what = f"{where}: {name}: {_why(model, name, first['type'], first['msg'])}"
        raise RequestRefused(what.replace(": : ", ": ")) from error


def _why(model: type[BaseModel], name: str, kind: str, message: str) -> str:
    """Explain what is wrong with a value, in terms of JSON instead of pydantic's Python terms."""
    match kind:
        case "extra_forbidden":
            known = [field.alias or key for key, field in model.model_fields.items()]
            there = f"there are {', '.join(known)}" if known else "this path takes no parameters"
            return f"unknown name; {suggestion(name, known) or there}"
        case "missing":
            return "is missing"
        case "model_type":
            return "must be a JSON object"
        case _:
            return message.replace("Input should be ", "must be ", 1)


def _json(status: int, body: bytes) -> Response:
    return Response(body, status, headers=HEADERS, media_type=JSON)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, TwinlogError)  # noqa: S101 (registered for these)
    path = request.scope["path"]
    response = _json(status_of(error), as_bytes(problem(error, path)))
    if response.status_code == 503:
        response.headers["retry-after"] = "5"
    return response


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for these)
    path, headers = request.scope["path"], dict(error.headers or {})
    if error.status_code == 405:
        takes = headers.get("Allow", "GET")
        body = problem(
            RequestRefused(f"{path[:200]} accepts only {takes}", code="METHOD_NOT_ALLOWED"), path
        )
    else:
        body = problem(RequestRefused(f"no such path: {path[:200]}", code="NOT_FOUND"), path)
    response = _json(error.status_code, as_bytes(body))
    response.headers.update(headers)
    return response
