"""Converts errors to an HTTP status and problem details (RFC 9457).

In addition to the standard's members, a body has `code`, `what`, `where` and `do`.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from twinlog.codes import conditions
from twinlog.errors import (
    AuthenticationFailed,
    ClusterError,
    ConfigError,
    CorruptData,
    Disconnected,
    FlowError,
    TwinlogError,
    Unauthorized,
    Unreachable,
    Unsupported,
    UsageError,
)

PROBLEM: Final = "application/problem+json"


class RequestRefused(TwinlogError):
    """A request that is refused; its code (table `request` of the codes) gives the reason."""

    code = "REQUEST_INVALID"


class MethodRefused(RequestRefused):
    """A request with a method that its path does not support."""

    code = "METHOD_NOT_ALLOWED"

    def __init__(self, path: str, allowed: str) -> None:
        super().__init__(f"{path[:200]} accepts only {allowed}")
        self.allowed = allowed
        """The supported methods, separated by commas."""


_STATUS: Final[tuple[tuple[type[TwinlogError], int], ...]] = (
    (UsageError, 400),
    (ConfigError, 400),
    (FlowError, 409),
    (Unreachable, 503),
    (Disconnected, 503),
    (AuthenticationFailed, 502),
    (Unauthorized, 502),
    (Unsupported, 501),
    (ClusterError, 502),
    (CorruptData, 502),
)
"""HTTP statuses for errors whose code has no status of its own. The first match applies."""


def status_of(error: TwinlogError) -> int:
    """Return the HTTP status of an error. It shows whether the client caused the error."""
    condition = conditions().get(error.code)
    if condition is not None and condition.status:
        return condition.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem(error: TwinlogError, where: str) -> dict[str, Any]:
    """Return the error's JSON body (`answers.Problem`). `where` is the requested path."""
    condition, status = conditions().get(error.code), status_of(error)
    # options of the command line are parameters in REST
    what = error.message.removeprefix("--") if isinstance(error, UsageError) else error.message
    meaning = HTTPStatus(status).phrase if condition is None else condition.meaning
    return {
        "type": "about:blank" if condition is None else f"/api/v1/codes/{error.code}",
        "title": meaning.partition(". ")[0],
        "status": status,
        "detail": what,
        "instance": quote(where),
        "code": error.code,
        "what": what,
        "where": where,
        "do": "" if condition is None else condition.advice,
    }


def internal_error() -> TwinlogError:
    """Return the error for a bug. The bug's message is only logged, as it may contain secrets."""
    return TwinlogError("internal error; see the log of this process")


def as_bytes(value: object) -> bytes:
    """Encode a JSON body, with a line feed for terminals."""
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
