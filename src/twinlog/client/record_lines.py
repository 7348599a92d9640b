"""A record as one line of JSON without loss: UTF-8 as text, other bytes as base64."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from twinlog.wire.records import Record

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def record_line(
    partition: int, record: Record, *, is_log_append_time: bool, more: Mapping[str, Any] = NOTHING
) -> str:
    """Return one line without the line break, in ASCII, so that it has no terminal control codes.

    `more` are additional fields of the caller.
    """
    return json.dumps(
        {
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": "LogAppendTime" if is_log_append_time else "CreateTime",
            **more,
            "key": plain_value(record.key),
            "value": plain_value(record.value),
            "headers": [[_name(name), plain_value(value)] for name, value in record.headers],
        },
        separators=(",", ":"),
    )


def record_of(fields: Mapping[str, Any]) -> Record:
    """Return the record of a line that was parsed. Raises ValueError, TypeError or KeyError if the
    line is invalid.
    """
    headers = tuple((_as_name(name), _as_bytes(value)) for name, value in fields["headers"])
    return Record(
        offset=int(fields["offset"]),
        timestamp=int(fields["timestamp"]),
        key=_as_bytes(fields["key"]),
        value=_as_bytes(fields["value"]),
        headers=headers,
    )


def _as_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8")
    return b64decode(value["base64"], validate=True)


def _as_name(value: Any) -> str:
    found = _as_bytes(value)
    if found is None:
        raise ValueError("a header without a name")
    return found.decode("utf-8", "surrogateescape")


def plain_value(data: bytes | None) -> Any:
    """Return bytes as text if they are UTF-8, else as {"base64": ...}."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


def _name(name: str) -> Any:
    # header keys that are not UTF-8 were decoded byte by byte (surrogateescape)
    return plain_value(name.encode("utf-8", "surrogateescape"))
