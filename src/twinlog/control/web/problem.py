"""Converts errors to an HTTP status and `{code, what, where, do}`."""

from __future__ import annotations

import json
from typing import Any, Final

from twinlog.codes.catalogue import conditions
from twinlog.errors import (
    AuthenticationFailed,
    ClusterError,
    ConfigError,
    CorruptData,
    Disconnected,
    TwinlogError,
    Unauthorized,
    Unreachable,
    Unsupported,
    UsageError,
)


class RequestRefused(TwinlogError):
    """A request that is refused; its code (table `request` of the codes) gives the reason."""

    code = "REQUEST_INVALID"


_STATUS: Final[tuple[tuple[type[TwinlogError], int], ...]] = (
    (UsageError, 400),
    (ConfigError, 400),
    (Unreachable, 503),
    (Disconnected, 503),
    (AuthenticationFailed, 502),
    (Unauthorized, 502),
    (Unsupported, 501),
    (ClusterError, 502),
    (CorruptData, 502),
)
"""Statuses of errors without an HTTP status of their own; the first match applies."""


def status_of(error: TwinlogError) -> int:
    """Return the HTTP status of an error, which shows whether the client caused it."""
    condition = conditions().get(error.code)
    if condition is not None and condition.status:
        return condition.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem(error: TwinlogError, where: str) -> dict[str, Any]:
    """Return the error's JSON body. `where` is the requested path."""
    condition = conditions().get(error.code)
    # an option of the command line is a parameter here
    what = error.message.removeprefix("--") if isinstance(error, UsageError) else error.message
    return {
        "code": error.code,
        "what": what,
        "where": where,
        "do": "" if condition is None else condition.advice,
    }


def internal(where: str) -> dict[str, Any]:
    """Return the body for a bug. Its text is only logged, because it may contain secrets."""
    return problem(TwinlogError("internal error; see the log of this process"), where)


def as_bytes(value: object) -> bytes:
    """Encode a JSON body, with a line feed for terminals."""
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
