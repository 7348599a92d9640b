"""What any configuration file says before its values are read: settings with their lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from twinlog.config.files.properties import DuplicateKey, PropertiesText
from twinlog.config.values.origin import Setting, Settings
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning
from twinlog.errors import ConfigError


class Names(Protocol):
    """What keys of mm2.properties are called in the file."""

    def error(self, error: ConfigError) -> ConfigError:
        """With all that it holds, in the file's words."""

    def warning(self, warning: ConfigWarning) -> ConfigWarning:
        """In the file's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawConfig:
    """A file under the keys of mm2.properties; variables (`${..}`) are still variables."""

    file: str
    settings: Settings
    duplicates: tuple[DuplicateKey, ...] = ()
    warnings: tuple[ConfigWarning, ...] = ()
    """About what the file's own format says and nothing here needs."""
    errors: tuple[ConfigError, ...] = ()
    """What is wrong with the file's own format, and did not keep the rest from being read."""
    names: Names | None = None
    """Of a format whose keys have other names in the file."""
    is_latin_1: bool = False
    """Read as Java reads properties, so that characters beyond ASCII are seldom what was meant."""


def read_bytes(path: Path, wanted: str) -> bytes:
    """A whole file; `wanted` says what it should be."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"no such file; name {wanted}", file=str(path)) from error
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}; check path and permissions", file=str(path)
        ) from error


def dropped_backslashes(text: PropertiesText) -> Iterator[ConfigWarning]:
    """Values in which a backslash vanishes, as it does in Java: of expressions it was the half."""
    for entry in text.entries:
        if entry.dropped:
            setting = Setting(key=entry.key, value=entry.value, file=text.file, line=entry.line)
            dropped = " and ".join(entry.dropped)
            yield warning(
                WarningCode.BACKSLASH_DROPPED,
                setting,
                f"Java drops the backslash before {dropped}, so that the value is {setting.shown}; "
                "write " + " and ".join(f"\\\\{one}" for one in entry.dropped),
            )


def settings_of(text: PropertiesText) -> Settings:
    """The entries of a properties file, each with its line."""
    return Settings(
        {
            entry.key: Setting(key=entry.key, value=entry.value, file=text.file, line=entry.line)
            for entry in text.entries
        }
    )
