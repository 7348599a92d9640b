"""What goes wrong with a request, as a status and `{code, what, where, do}`."""

from __future__ import annotations

import json
from typing import Any, Final

from twinlog.codes.catalogue import CONDITIONS
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
    """A request that is not answered as it stands; its code (`codes.request_codes`) says why."""

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
"""Of errors that know nothing of HTTP; the first that fits."""


def status_of(error: TwinlogError) -> int:
    """The HTTP status that tells a client whose fault it is."""
    condition = CONDITIONS.get(error.code)
    if condition is not None and condition.status:
        return condition.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem(error: TwinlogError, where: str) -> dict[str, Any]:
    """For a client; `where`: the path that was asked for."""
    condition = CONDITIONS.get(error.code)
    # what the command line has as an option is a name here
    what = error.message.removeprefix("--") if isinstance(error, UsageError) else error.message
    return {
        "code": error.code,
        "what": what,
        "where": where,
        "do": "" if condition is None else condition.advice,
    }


def internal(where: str) -> dict[str, Any]:
    """Of a bug: its text is in the log, and may say more than a client is to know."""
    return problem(TwinlogError("an internal error: the log of this process has it"), where)


def as_bytes(value: object) -> bytes:
    """A JSON body, ended by a line feed for those who read it in a terminal."""
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
