"""Codes with which a request over HTTP is refused."""

from __future__ import annotations

from typing import Final

from twinlog.codes.condition import Condition, Fault

REQUEST_CODES: Final = (
    Condition(
        codes=("REQUEST_INVALID",),
        meaning="a request cannot be understood; the answer says why",
        advice="correct the request; `/api/v1/openapi.json` says what each path takes",
        status=400,
    ),
    Condition(
        codes=("NOT_FOUND",),
        meaning="there is no such path, flow, connector or code",
        advice=(
            "`/api/v1/openapi.json` has the paths, `/api/v1/flows` the flows; `->` in a path is "
            "written `-%3E`"
        ),
        status=404,
    ),
    Condition(
        codes=("METHOD_NOT_ALLOWED",),
        meaning="the path is there, and takes another method",
        advice="use the method that the message or `/api/v1/openapi.json` names",
        status=405,
    ),
    Condition(
        codes=("TOKEN_NEEDED",),
        meaning="no token came with the request, or one that is not in the file",
        advice=(
            "send `Authorization: Bearer TOKEN`; `twinlog token new FILE` makes one, into the file "
            "that `twinlog.rest.tokens.file` names"
        ),
        status=401,
    ),
    Condition(
        codes=("ROLE_TOO_SMALL",),
        meaning="the client may read, and asked for a change",
        advice="use a token of the role `operate`: `twinlog token new FILE --role operate`",
        status=403,
    ),
    Condition(
        codes=("FOREIGN_ORIGIN",),
        meaning="a page of another site asks",
        advice="ask from a program, or from a page that this process serves",
        status=403,
    ),
    Condition(
        codes=("FOREIGN_HOST",),
        meaning="the request names another host than the one that is served",
        advice="name 127.0.0.1 or localhost; a proxy in front must not pass its own name on",
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
        meaning="REST is asked for at an address that others reach, and there are no tokens",
        advice=(
            "set `twinlog.rest.tokens.file`, or `twinlog.rest.tls.client.ca.file`; or serve this "
            "machine alone with `--listen 127.0.0.1:PORT`"
        ),
        status=403,
    ),
    Condition(
        codes=("REST_BUSY",),
        meaning="too many questions that take long wait already",
        advice="ask again in some seconds",
        fault=Fault.HOST,
        status=503,
    ),
    Condition(
        codes=("CONNECTOR_OF_A_FLOW",),
        meaning=(
            "a connector that is a part of a flow is to be paused alone, over the paths of Connect"
        ),
        advice="name the flow's MirrorSourceConnector: it pauses all of the flow",
        status=409,
    ),
)
