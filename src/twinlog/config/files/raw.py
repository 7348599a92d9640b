"""The contents of any configuration file before values are parsed: settings with their lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twinlog.config.files.connector import Connector
from twinlog.config.files.names import Names
from twinlog.config.values.origin import Settings
from twinlog.config.values.warnings import ConfigWarning
from twinlog.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RawConfig:
    """A file's settings under the keys of mm2.properties, with unresolved variables (`${..}`)."""

    file: str
    settings: Settings
    warnings: tuple[ConfigWarning, ...] = ()
    """Warnings about the file's format, and about parts of the file that have no effect."""
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
