"""Warnings about lines of a configuration. A warning never prevents a command from running."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from twinlog.config.values.origin import Setting, shown_key


class WarningCode(StrEnum):
    UNKNOWN_KEY = "UNKNOWN_KEY"
    DEAD_KEY = "DEAD_KEY"
    DUPLICATE_KEY = "DUPLICATE_KEY"
    DEPRECATED_KEY = "DEPRECATED_KEY"
    FLOW_OFF = "FLOW_OFF"
    COMMENT_IN_VALUE = "COMMENT_IN_VALUE"
    STAR_PATTERN = "STAR_PATTERN"
    BLANK_NAME = "BLANK_NAME"
    MATCHES_NOTHING = "MATCHES_NOTHING"
    NO_BOOTSTRAP = "NO_BOOTSTRAP"
    UNRESOLVED = "UNRESOLVED"
    NOT_ASCII = "NOT_ASCII"
    NO_MEANING = "NO_MEANING"
    READ_AS = "READ_AS"
    INSECURE = "INSECURE"
    CUSTOM_CODE = "CUSTOM_CODE"
    BACKSLASH_DROPPED = "BACKSLASH_DROPPED"
    NO_PROTOCOL = "NO_PROTOCOL"
    NOT_SHOWN = "NOT_SHOWN"
    LISTEN_UNGUARDED = "LISTEN_UNGUARDED"
    SECRET_IN_FILE = "SECRET_IN_FILE"  # noqa: S105 (a code)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigWarning:
    """A line that probably does not do what was intended."""

    code: WarningCode
    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        location = self.file if self.line is None else f"{self.file}:{self.line}"
        about = f"{self.key}: " if self.key else ""
        return f"{location}: {about}{self.message} [{self.code}]"


def warning(code: WarningCode, setting: Setting, message: str) -> ConfigWarning:
    return ConfigWarning(
        code=code,
        file=setting.file,
        line=setting.line,
        key=shown_key(setting.key),
        message=message,
    )
