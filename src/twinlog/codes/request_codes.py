"""Codes of refused HTTP requests."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import Condition, Fault

REQUEST_CODES: Final = (
    Condition(
        codes=("REQUEST_INVALID",),
        meaning="the request is invalid; the response says why",
        advice="correct the request; `/api/v1/openapi.json` describes each path",
        status=400,
    ),
    Condition(
        codes=("NOT_FOUND",),
        meaning="there is no such path, flow, connector or code",
        advice=(
            "`/api/v1/openapi.json` lists the paths, `/api/v1/flows` the flows; write `->` in a "
            "path as `-%3E`"
        ),
        status=404,
    ),
    Condition(
        codes=("METHOD_NOT_ALLOWED",),
        meaning="the path exists but does not support this method",
        advice="use the method that the message or `/api/v1/openapi.json` names",
        status=405,
    ),
    Condition(
        codes=("TOKEN_NEEDED",),
        meaning="the request has no token, or one that is not in the file",
        advice=(
            "send `Authorization: Bearer TOKEN`; `twinlog token new FILE` creates a token in the "
            "file that `twinlog.rest.tokens.file` names"
        ),
        status=401,
    ),
    Condition(
        codes=("ROLE_TOO_SMALL",),
        meaning="the client requested a change, but its role only allows reading",
        advice="use a token with the role `operate`: `twinlog token new FILE --role operate`",
        status=403,
    ),
    Condition(
        codes=("FOREIGN_ORIGIN",),
        meaning="the request comes from a page of another site",
        advice="send it from a program, or from a page that this process serves",
        status=403,
    ),
    Condition(
        codes=("FOREIGN_HOST",),
        meaning="the request names a host that is not served",
        advice="use 127.0.0.1 or localhost; a proxy must not pass on its own host name",
        status=421,
    ),
    Condition(
        codes=("REQUEST_TOO_LARGE",),
        meaning="the body is longer than 64 KiB",
        advice="name fewer topics in one request, or use a regular expression",
        status=413,
    ),
    Condition(
        codes=("REST_UNGUARDED",),
        meaning=(
            "a REST request arrived at an address that other hosts can reach, but no tokens "
            "are configured"
        ),
        advice=(
            "set `twinlog.rest.tokens.file` or `twinlog.rest.tls.client.ca.file`, or serve only "
            "this machine with `--listen 127.0.0.1:PORT`"
        ),
        status=403,
    ),
    Condition(
        codes=("REST_BUSY",),
        meaning="too many long-running requests are already waiting",
        advice="retry in some seconds",
        fault=Fault.HOST,
        status=503,
    ),
    Condition(
        codes=("CONNECTOR_OF_A_FLOW",),
        meaning=(
            "a request over the paths of Kafka Connect would pause a connector that is only a "
            "part of a flow"
        ),
        advice="pause the flow's MirrorSourceConnector: it pauses the whole flow",
        status=409,
    ),
)
