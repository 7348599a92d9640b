"""A log line as a JSON object: what `--log-format json` writes."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Final

from pythonjsonlogger.json import JsonFormatter

from twinlog.flow_log import code_among
from twinlog.hidden import without_secrets
from twinlog.shown import shown_in_json

FIELDS: Final = ("flow", "topic", "partition", "code")


class JsonLines(JsonFormatter):
    """One object a line; of what a call of the logging module gave as `extra`, our own fields."""

    def __init__(self) -> None:
        super().__init__(json_ensure_ascii=False)

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        log_data["time"] = datetime.fromtimestamp(record.created, UTC).isoformat(
            timespec="milliseconds"
        )
        log_data["level"], log_data["logger"] = record.levelname, record.name
        log_data["message"] = without_secrets(record.getMessage())
        log_data |= {name: record.__dict__[name] for name in FIELDS if name in record.__dict__}
        values = record.args if isinstance(record.args, tuple) else ()
        if "code" not in log_data and (code := code_among(values)):
            log_data["code"] = code
        if "exc_info" in message_dict:
            log_data["traceback"] = without_secrets(message_dict["exc_info"])

    def jsonify_log_record(self, log_data: dict[str, Any]) -> str:
        return shown_in_json(super().jsonify_log_record(log_data))
