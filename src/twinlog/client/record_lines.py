"""A record as one line of JSON that loses nothing: text where it is UTF-8, else base64."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from twinlog.wire.records import Record


def record_line(partition: int, record: Record, *, is_log_append_time: bool) -> str:
    """One line without its end; ASCII only, so that no terminal is told anything by it."""
    return json.dumps(
        {
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": "LogAppendTime" if is_log_append_time else "CreateTime",
            "key": _value(record.key),
            "value": _value(record.value),
            "headers": [[_name(name), _value(value)] for name, value in record.headers],
        },
        separators=(",", ":"),
    )


def _value(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


def _name(name: str) -> Any:
    # header keys that are not UTF-8 were decoded byte by byte (surrogateescape)
    return _value(name.encode("utf-8", "surrogateescape"))
