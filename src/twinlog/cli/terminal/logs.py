"""Destinations and formats of a mirror's log: stderr, a rotated file, text or JSON.

stderr gets warnings, errors and good news; the file also gets the events of normal operation. A
JSON line has `time` (UTC), `level`, `logger` and `message`, and if known `flow`, `topic`,
`partition`, `code` and `traceback`.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from pythonjsonlogger.json import JsonFormatter

from twinlog.cli.terminal.output import LOG_FORMAT, TIME_FORMAT, is_quiet
from twinlog.errors import UsageError
from twinlog.flow_log import code_among
from twinlog.hidden import without_secrets
from twinlog.private_files import private_opener
from twinlog.shown import ShownFormatter, shown_in_json

FILE_BYTES: Final = 10_000_000
OLD_FILES: Final = 5


class LogFormat(StrEnum):
    """Format of log lines."""

    TEXT = "text"
    JSON = "json"


class _PrivateFile(RotatingFileHandler):
    """A log file that only this user can read, because it names topics, groups and hosts. If the
    file already exists with other permissions, the next files get the same permissions.
    """

    _rights = 0o600

    def _open(self) -> TextIOWrapper:
        with suppress(FileNotFoundError):
            self._rights = stat.S_IMODE(Path(self.baseFilename).stat().st_mode)
        file = open(  # noqa: SIM115 (the handler closes it)
            self.baseFilename, "a", encoding=self.encoding, opener=private_opener
        )
        # needed for a file that was created just now; an existing file may belong to another user
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) != self._rights:
            with suppress(PermissionError):
                os.fchmod(file.fileno(), self._rights)
        return file


def _is_for_people(record: logging.LogRecord) -> bool:
    """Return whether to show a record: warnings and errors, and good news unless -q is given."""
    is_news = getattr(record, "news", False) and not is_quiet()
    return record.levelno >= logging.WARNING or is_news


def configure_logs(file: Path | None, log_format: LogFormat, *, verbose: bool) -> None:
    """Log to stderr in this format, and also to `file` if given. Raises UsageError if the file
    cannot be written.

    The file is rotated at 10 MB, and five old files are kept. Only this user can read them, unless
    `file` already exists with other permissions.
    """
    formatter: logging.Formatter = ShownFormatter(LOG_FORMAT, TIME_FORMAT)
    if log_format is LogFormat.JSON:
        formatter = JsonLines()
    root = logging.getLogger()
    for handler in root.handlers:
        handler.filters = [] if verbose else [_is_for_people]
        handler.setFormatter(formatter)
    # the file and the support bundle get events even if stderr does not show them
    ours = logging.getLogger("twinlog")
    ours.setLevel(logging.DEBUG if verbose else logging.INFO)
    if file is None:
        return
    try:
        to_file = _PrivateFile(file, maxBytes=FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--log-file: {file} cannot be written: {error.strerror}") from error
    to_file.setFormatter(formatter)
    root.addHandler(to_file)


FIELDS: Final = ("flow", "topic", "partition", "code")


class JsonLines(JsonFormatter):
    """Formats one JSON object per line, with only our own fields of `extra`."""

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
