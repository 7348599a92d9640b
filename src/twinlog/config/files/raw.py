"""The contents of any configuration file before values are parsed: settings with their lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from twinlog.config.files.connector import Connector
from twinlog.config.files.names import Names
from twinlog.config.files.properties import DuplicateKey, PropertiesText
from twinlog.config.values.origin import Setting, Settings
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning
from twinlog.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RawConfig:
    """A file's settings under the keys of mm2.properties, with unresolved variables (`${..}`)."""

    file: str
    settings: Settings
    duplicates: tuple[DuplicateKey, ...] = ()
    warnings: tuple[ConfigWarning, ...] = ()
    """Warnings about parts of the file that have no effect."""
    errors: tuple[ConfigError, ...] = ()
    """Errors in the file's format that did not prevent the rest from being read."""
    names: Names | None = None
    """Replaces keys in messages by the file's own names. None for an mm2.properties."""
    more_files: tuple[str, ...] = ()
    """Files in addition to `file`, if several files form one configuration."""
    connectors: tuple[Connector, ...] = ()
    """The connectors on Kafka Connect from which the settings were read, if any."""


def read_bytes(path: Path, kind: str) -> bytes:
    """Return a file's content. `kind` names the expected kind of file."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"no such file; name {kind}", file=str(path)) from error
    except IsADirectoryError as error:
        raise ConfigError(f"is a folder; name {kind}", file=str(path)) from error
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}; check path and permissions", file=str(path)
        ) from error


def audit_text(text: PropertiesText) -> Iterator[ConfigWarning]:
    """Yield warnings about values that Java reads in another way than a user expects. Java drops a
    backslash, which is usually half of an escape in a regular expression, or decodes bytes as
    ISO-8859-1.
    """
    for entry in text.entries:
        setting = Setting(key=entry.key, value=entry.value, file=text.file, line=entry.line)
        if not entry.is_ascii:
            message = "non-ASCII characters are read as ISO-8859-1, as in Java; write \\uXXXX"
            yield warning(WarningCode.NOT_ASCII, setting, message)
        if entry.dropped:
            dropped = " and ".join(entry.dropped)
            yield warning(
                WarningCode.BACKSLASH_DROPPED,
                setting,
                f"Java drops the backslash before {dropped}, so that the value is {setting.shown}; "
                "write " + " and ".join(f"\\\\{key}" for key in entry.dropped),
            )


def settings_of(text: PropertiesText) -> Settings:
    """Return the entries of a properties file, each with its line."""
    return Settings(
        {
            entry.key: Setting(key=entry.key, value=entry.value, file=text.file, line=entry.line)
            for entry in text.entries
        }
    )
